//! Compiles the protos of the suite.

fn main() -> Result<(), frpc_build::Error> {
    let protos = ["client_compat", "server_compat", "service"];
    let protos = protos.map(|name| format!("proto/connectrpc/conformance/v1/{name}.proto"));
    frpc_build::configure()
        .json(true)
        // Requests are echoed as `Any`.
        .prost_config(|config| {
            config.enable_type_names();
        })
        .compile_protos(&protos, &["proto"])
}
