//! Generated code as files for people to read. The package `awkward` compiles them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use frpc_build::Builder;

use crate::new_dir;

#[test]
fn a_service_generates_a_trait_a_server_and_a_client() {
    check("echo", &["echo.proto"], frpc_build::configure());
}

#[test]
fn fields_are_encoded_in_wire_order() {
    check("fields", &["fields.proto"], frpc_build::configure());
}

#[test]
fn packages_generate_files_and_a_module_tree() {
    check("shop", &["shop/order.proto"], frpc_build::configure());
}

#[test]
fn messages_with_json_describe_each_field() {
    check("json", &["json.proto"], frpc_build::configure().json(true));
}

#[test]
fn required_fields_are_no_options() {
    let builder = frpc_build::configure().json(true).required_fields(true).build_server(false).build_client(false);
    let builder = builder.extern_path(".buf.validate", "::rules").extern_path(".google.api", "::rules");
    check("required", &["required.proto"], builder);
}

/// The examples in the documentation of `frpc` use this code.
#[test]
fn mocks_implement_the_trait_by_expectations() {
    check_crate("frpc", &["echo.proto"], frpc_build::configure().mocks(true));
}

/// The crates of the workspace come with generated code, so that those who use them need no compiler of proto files.
#[test]
fn checked_in_code_matches_the_generator() {
    let services = [
        "grpc/health/v1/health.proto",
        "grpc/reflection/v1/reflection.proto",
        "grpc/reflection/v1alpha/reflection.proto",
    ];
    // Far above the operations of services of one's own, which count from 10, so that plain peers can call both.
    let builder = frpc_build::configure()
        .json(true)
        .first_operation(services[0], 65_000)
        .first_operation(services[1], 65_010)
        .first_operation(services[2], 65_020)
        .bytes(".grpc.reflection");
    check_crate("frpc-services", &services, builder);
    let admin = ["frpc/admin/v1/admin.proto", "grpc/channelz/v1/channelz.proto"];
    let builder = frpc_build::configure()
        .json(true)
        .first_operation(admin[0], 65_100)
        .first_operation(admin[1], 65_110)
        .bytes(".grpc.channelz");
    check_crate("frpc-admin", &admin, builder);
    let builder = frpc_build::configure().json(true).build_server(false).bytes(".frpc.functions.v1");
    check_crate("frpc-jsonrpc", &["frpc/functions/types.proto", "frpc/functions/v1/values.proto"], builder);
    check_crate("frpc-cli", &["echo.proto"], frpc_build::configure().json(true));
    let builder = frpc_build::configure().first_operation(METRICS_SERVICE, 65_100);
    check_crate("frpc-opentelemetry", &[METRICS_SERVICE], builder);
    let builder = frpc_build::configure().first_operation(DISCOVERY_SERVICE, 65_120);
    check_crate("frpc-xds", &[DISCOVERY_SERVICE, "frpc/xds/v3/resources.proto"], builder);
    let builder = frpc_build::configure().bytes(".frpc.record");
    check_crate("frpc-record", &["frpc/record/v1/record.proto"], builder);
}

const DISCOVERY_SERVICE: &str = "envoy/service/discovery/v3/ads.proto";

const METRICS_SERVICE: &str = "opentelemetry/proto/collector/metrics/v1/metrics_service.proto";

/// Checks the folder `generated` of a crate against the proto files in its folder `proto`.
fn check_crate(name: &str, protos: &[&str], builder: Builder) {
    let krate = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    check_dirs(&krate.join("proto"), &krate.join("generated"), protos, builder);
}

/// Generates a directory's code beside it, and fails if that changes anything.
fn check(name: &str, protos: &[&str], builder: Builder) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    check_dirs(&golden, &golden, protos, builder);
}

/// Generates the code of proto files, brings a directory up to date, and fails if that changes anything.
fn check_dirs(includes: &Path, golden: &Path, protos: &[&str], builder: Builder) {
    let fresh = new_dir();
    let protos: Vec<_> = protos.iter().map(|proto| includes.join(proto)).collect();
    builder.out_dir(&fresh).compile_protos(&protos, &[includes]).unwrap();

    let (expected, found) = (generated(golden), generated(&fresh));
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
