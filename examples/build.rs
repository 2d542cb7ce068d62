//! Compiles the schemas of the RPC examples and the load tools.

use frpc_build::manual;

fn main() -> Result<(), frpc_build::Error> {
    let protos = [
        "proto/benchmark.proto",
        "proto/browser.proto",
        "proto/fleet.proto",
        "proto/gate.proto",
        "proto/mixed.proto",
        "proto/orders.proto",
        "proto/routeguide.proto",
        "proto/shop.proto",
    ];
    let bytes = [".BytesRequest", ".BytesResponse", ".BytesRepeatRequest"];
    bytes
        .into_iter()
        .fold(frpc_build::configure(), |config, path| config.bytes(path))
        .json(true)
        .topic("orders.OrderCreated", "orders.*.created")
        .compile_protos(&protos, &["proto"])?;
    frpc_build::configure()
        .json(true)
        .mocks(true)
        .include_file("helloworld_includes.rs")
        .compile_protos(&["proto/helloworld.proto"], &["proto"])?;
    // ANCHOR: rest
    frpc_build::configure()
        .rest(true)
        .openapi("library.openapi.json")
        .include_file("library_includes.rs")
        .compile_protos(&["proto/library.proto"], &["proto"])?;
    // ANCHOR_END: rest
    let etcd = ["mvccpb/kv", "authpb/auth", "etcdserverpb/rpc"].map(|file| format!("proto/etcd/api/{file}.proto"));
    frpc_build::configure().build_server(false).include_file("etcd.rs").compile_protos(&etcd, &["proto"])?;
    build_json_codec_service()
}

/// Describes the service of `json_codec`, which has no proto file.
fn build_json_codec_service() -> Result<(), frpc_build::Error> {
    let say_hello = manual::Method::builder()
        .name("say_hello")
        .route_name("SayHello")
        .input_type("crate::HelloRequest")
        .output_type("crate::HelloResponse")
        .codec_path("crate::JsonCodec")
        .comment("Greets somebody.")
        .build();
    let greeter = manual::Service::builder().name("Greeter").package("json.helloworld").method(say_hello).build();
    manual::Builder::new().compile(&[greeter])
}
