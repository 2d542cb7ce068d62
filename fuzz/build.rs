//! Compiles the messages of the fuzz targets. Maps become `BTreeMap`s, so their entries are always encoded in the same
//! order.

fn main() -> Result<(), frpc_build::Error> {
    let builder = frpc_build::configure().json(true).bytes(".").btree_map(".");
    builder.build_server(false).build_client(false).compile_protos(
        &[
            "../tests/vectors/vectors.proto",
            "../tests/awkward/proto/codec/hostile.proto",
            "../tests/awkward/proto/names/shapes.proto",
        ],
        &["../tests/vectors", "../tests/awkward/proto"],
    )?;
    frpc_build::configure()
        .rest(true)
        .build_server(false)
        .build_client(false)
        .compile_protos(&["../crates/frpc-rest/tests/library.proto"], &["../crates/frpc-rest/tests"])
}
