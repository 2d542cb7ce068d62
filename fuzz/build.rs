//! Compiles the messages that `fuzz_targets/codec.rs` reads, with fields whose order in the bytes is always the same.

fn main() -> Result<(), frpc_build::Error> {
    frpc_build::configure().bytes(".").btree_map(".").build_server(false).build_client(false).compile_protos(
        &["../tests/vectors/vectors.proto", "../tests/awkward/proto/codec/hostile.proto"],
        &["../tests/vectors", "../tests/awkward/proto"],
    )
}
