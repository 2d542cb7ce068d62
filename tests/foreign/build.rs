//! Compiles the services of the tests of gRPC and Twirp, and those of the examples.

fn main() -> Result<(), frpc_build::Error> {
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
