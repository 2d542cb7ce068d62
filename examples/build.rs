//! Compiles the schemas of the RPC examples and the load tools.

fn main() -> Result<(), frpc_build::Error> {
    let protos = [
        "proto/benchmark.proto",
        "proto/browser.proto",
        "proto/helloworld.proto",
        "proto/mixed.proto",
        "proto/orders.proto",
        "proto/postgres.proto",
        "proto/routeguide.proto",
    ];
    let bytes = [".BytesRequest", ".BytesResponse", ".BytesRepeatRequest"];
    bytes
        .into_iter()
        .fold(frpc_build::configure(), |config, path| config.bytes(path))
        .json(true)
        .topic("orders.OrderCreated", "orders.*.created")
        .compile_protos(&protos, &["proto"])
}
