//! Compiles the schema of the test service.

fn main() -> Result<(), frpc_build::Error> {
    frpc_build::configure().first_operation("callback.proto", 200).compile_protos(
        &["../../support/proto/callback.proto", "../../support/proto/test.proto"],
        &["../../support/proto"],
    )
}
