//! Compiles the schema that the peers in Go speak, and those of the tests of calls.

fn main() -> Result<(), frpc_build::Error> {
    frpc_build::configure().first_operation("phone.proto", 200).compile_protos(
        &["go/interop.proto", "proto/desk.proto", "proto/echo.proto", "proto/phone.proto"],
        &["go", "proto"],
    )
}
