//! Compiles the schema of the page.

fn main() -> Result<(), frpc_build::Error> {
    frpc_build::configure().build_server(false).compile_protos(&["../../proto/browser.proto"], &["../../proto"])
}
