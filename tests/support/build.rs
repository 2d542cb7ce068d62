//! Compiles the schema that the peers in Go speak, and those of the tests of calls.

#[cfg(feature = "full")]
fn main() -> Result<(), frpc_build::Error> {
    frpc_build::configure().first_operation("callback.proto", 200).compile_protos(
        &["../go/interop.proto", "proto/callback.proto", "proto/echo.proto", "proto/test.proto"],
        &["../go", "proto"],
    )
}

#[cfg(not(feature = "full"))]
fn main() {}
