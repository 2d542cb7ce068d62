//! Several wires on one port.

use frpc::{Channel, Server};
use frpc_http::Http;
use frpc_jsonrpc::{JsonRpc, function};
use frpc_services::{Health, Reflection};

use crate::{
    Host, Outcome,
    hello_world::{HelloRequest, greeter_client::GreeterClient, greeter_server::GreeterServer},
};

/// Adds two numbers.
#[function]
fn sum(a: i64, b: i64) -> i64 {
    a + b
}

pub(crate) async fn run() -> Outcome {
    // ANCHOR: server
    let json_rpc = JsonRpc::new().function(sum);
    let server = Server::builder()
        .add_service(GreeterServer::new(Host))
        .add_service(Health::new())
        .add_service(Reflection::v1())
        .wire(Http::new().mount("/rpc", json_rpc.clone()))
        .wire(json_rpc)
        .bind("tcp://127.0.0.1:0")
        .await?;
    // ANCHOR_END: server
    let address = server.local_addr().to_string().replace("tcp://", "grpc://");
    // ANCHOR: client
    let channel = Channel::builder().transport(frpc_http::transport()).connect(&*address).await?;
    // ANCHOR_END: client
    GreeterClient::new(channel).say_hello(HelloRequest { name: "Ada".into() }).await?;
    Ok(())
}
