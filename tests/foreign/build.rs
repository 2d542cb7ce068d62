//! Compiles the services of the tests of gRPC and Twirp, and those of the examples.

fn main() -> Result<(), frpc_build::Error> {
    let out_dir = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    frpc_build::configure()
        .rest(true)
        .mocks(true)
        .out_dir(out_dir.join("gateway"))
        .compile_descriptor_set("proto/gateway/examples.binpb")?;
    let examples = "../../examples/proto";
    frpc_build::configure().json(true).compile_protos(
        &[
            "proto/grpc/testing/test.proto",
            "proto/twirp/clientcompat.proto",
            "proto/twirp/haberdasher.proto",
            &format!("{examples}/helloworld.proto"),
            &format!("{examples}/routeguide.proto"),
        ],
        &["proto", examples],
    )
}
