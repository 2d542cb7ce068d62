//! Generated code as files for people to read. The package `awkward` compiles them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use frpc_build::Builder;

use crate::new_dir;

#[test]
fn a_service_becomes_a_trait_a_server_and_a_client() {
    check("echo", &["echo.proto"], frpc_build::configure());
}

#[test]
fn fields_become_calls_in_the_order_of_the_wire() {
    check("fields", &["fields.proto"], frpc_build::configure());
}

#[test]
fn packages_become_files_and_a_tree_of_modules() {
    check("shop", &["shop/order.proto"], frpc_build::configure());
}

#[test]
fn messages_with_json_name_each_field_and_what_it_is() {
    check("json", &["json.proto"], frpc_build::configure().json(true));
}

/// Generates a directory's code beside it, and fails if that changes anything.
fn check(name: &str, protos: &[&str], builder: Builder) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let fresh = new_dir();
    let protos: Vec<_> = protos.iter().map(|proto| golden.join(proto)).collect();
    builder.out_dir(&fresh).compile_protos(&protos, &[&golden]).unwrap();

    let (expected, found) = (generated(&golden), generated(&fresh));
    for path in expected.keys().filter(|path| !found.contains_key(*path)) {
        fs::remove_file(golden.join(path)).unwrap();
    }
    for (path, content) in &found {
        fs::write(golden.join(path), content).unwrap();
    }
    let mut drifted: Vec<_> = found.keys().chain(expected.keys()).collect();
    drifted.retain(|path| expected.get(*path) != found.get(*path));
    drifted.dedup();
    assert!(
        drifted.is_empty(),
        "generated code has changed, see the difference to {drifted:?} in {}",
        golden.display()
    );
}

/// Returns the generated files of a directory.
fn generated(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let paths =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs" || extension == "binpb"));
    paths.map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap())).collect()
}
