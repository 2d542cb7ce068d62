//! Compiles the messages of values.

fn main() -> Result<(), frpc_build::Error> {
    frpc_build::configure()
        .json(true)
        .build_server(false)
        .bytes(".frpc.functions.v1")
        .compile_protos(&["proto/frpc/functions/types.proto", "proto/frpc/functions/v1/values.proto"], &["proto"])
}
