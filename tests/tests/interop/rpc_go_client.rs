//! Go RPC clients against our server.

use std::time::Duration;

use frpc::{CallSettings, Dispatch, Server};
use support::interop::{
    Service,
    schema::{interop_server::InteropServer, second_server::SecondServer},
};

use crate::clients::{GoClient, run_clients};

#[tokio::test(flavor = "multi_thread")]
async fn go_clients_pass_against_our_services() {
    let dispatches = [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned];
    run_clients("rpc-client", &dispatches, Dispatch::Spawned, serve).await;
}

async fn serve(client: GoClient) {
    let dispatch = client.dispatch;
    let builder = Server::builder().calls(CallSettings { dispatch, ..CallSettings::default() }).engine(client.engine);
    let mut builder = builder.add_service(InteropServer::new(Service)).add_service(SecondServer::new(Service));
    if let Some(identity) = client.identity() {
        builder = builder.tls(identity.server());
    }
    let server = builder.bind("tcp://127.0.0.1:0").await.expect("some port is free");
    let addr = server.local_addr().socket_addr().expect("it listens on TCP");
    client.run(addr.to_string(), |check| dispatch != Dispatch::Ordered || !check.contains(AT_ONCE)).await;
    assert_eq!(server.shutdown(Duration::from_secs(5)).await, 0, "connections outlived their client");
}

/// The check of the Go client that fails if handlers run one after another.
const AT_ONCE: &str = "40 calls at once";
