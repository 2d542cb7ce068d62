//! Rejected schemas. A file next to each contains the expected error. `tests/awkward` compiles the other schemas.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::new_dir;

#[test]
fn unsupported_schemas_are_rejected_with_the_location() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/awkward/proto/refused");
    let out_dir = new_dir();
    let mut drifted = Vec::new();
    for proto in protos(&dir) {
        let options = frpc_build::configure().out_dir(&out_dir).emit_rerun_if_changed(false);
        let found = match options.compile_protos(&[&proto], &[&dir]) {
            Ok(()) => "this is not refused\n".to_owned(),
            Err(error) => format!("{error}\n").replace(&format!("{}/", dir.display()), ""),
        };
        let has_place = found.contains(".proto:") && found.contains(" | ") && found.contains('^');
        let beside = proto.with_extension("txt");
        if !has_place || fs::read_to_string(&beside).ok().as_ref() != Some(&found) {
            fs::write(&beside, found).unwrap();
            drifted.push(proto.file_name().unwrap().to_owned());
        }
    }
    assert!(fs::read_dir(&out_dir).unwrap().next().is_none(), "no code is written for what is refused");
    assert!(drifted.is_empty(), "errors have changed or show no line, see the difference to {drifted:?}");
}

#[test]
fn at_least_a_hundred_schemas_are_tested() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/awkward/proto");
    assert!(protos(&proto.join("refused")).len() + protos(&proto.join("accepted")).len() >= 100);
}

fn protos(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    paths.sort();
    paths
}
