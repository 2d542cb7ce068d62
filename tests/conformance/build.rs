//! Compiles the protos of the suites.

use std::{env, path::Path};

fn main() -> Result<(), frpc_build::Error> {
    let out_dir = env::var_os("OUT_DIR").expect("cargo sets it");
    frpc_build::configure()
        .json(true)
        .type_attribute(".", "#[allow(missing_docs)]")
        .out_dir(Path::new(&out_dir).join("protobuf"))
        .compile_descriptor_set("proto/protobuf/test_messages.binpb")?;

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
