//! Compiles the schemas of the RPC examples and the load tools.

fn main() -> Result<(), frpc_build::Error> {
    let protos = ["proto/benchmark.proto", "proto/helloworld.proto", "proto/mixed.proto", "proto/routeguide.proto"];
    frpc_build::configure().bytes(".BytesRequest").bytes(".BytesResponse").compile_protos(&protos, &["proto"])
}
