//! Generates the code of the echo service.

fn main() -> Result<(), frpc_build::Error> {
    frpc_build::configure().json(true).compile_protos(&["proto/echo.proto"], &["proto"])
}
