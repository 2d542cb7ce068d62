//! Channels to JSON-RPC servers: our own, and hand-written ones.

#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod codecs;
mod hostile;
mod mismatch;

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use frpc::{CallError, Channel, ChannelBuilder, Code, ConnectRetry, Request, Server};
use frpc_http::{Http, HttpSettings};
use frpc_jsonrpc::{Client, JsonRpc, JsonRpcSettings};
use support::{
    SECOND,
    calls::{TestClient, TestServer, TestService, all, ask, asking, words},
    in_real_time, in_virtual_time,
};
use tokio::io::duplex;

pub(crate) fn channel() -> ChannelBuilder {
    Channel::builder().transport(Client::new())
}

/// A server on every wire, with the address of each.
async fn serve(service: &TestService) -> (Server, [String; 3]) {
    let wire = JsonRpc::new();
    let server = Server::builder()
        .add_service(TestServer::new(service.clone()))
        .wire(Http::new().mount("/rpc", wire.clone()))
        .wire(wire)
        .bind("127.0.0.1:0")
        .await
        .unwrap();
    let address = server.local_addr().socket_addr().unwrap();
    let addresses = ["jsonrpc+tcp://ADDRESS", "jsonrpc+ws://ADDRESS/rpc", "jsonrpc+http://ADDRESS/rpc"];
    (server, addresses.map(|url| url.replace("ADDRESS", &address.to_string())))
}

async fn connect(address: &str) -> TestClient {
    TestClient::new(
        channel().retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() }).connect(address).await.unwrap(),
    )
}

#[test]
fn concurrent_calls_are_answered_over_every_address() {
    in_real_time(async {
        let service = TestService::default();
        let (_server, addresses) = serve(&service).await;
        for address in &addresses {
            let client = connect(address).await;
            assert_eq!(ask(&client, "hi \"you\" ü").await.unwrap(), "hi \"you\" ü", "{address}");
            let waiting = asking(&client, "wait");
            let large = "x".repeat(100_000);
            assert_eq!(ask(&client, &large).await.unwrap(), large);
            service.gate.open(1);
            assert_eq!(waiting.await.unwrap().unwrap(), "wait");
        }
    });
}

#[test]
fn a_connector_opens_the_connections_of_every_address() {
    in_virtual_time(async {
        let service = TestServer::new(TestService::default());
        let http = Http::new().mount("/rpc", JsonRpc::new());
        let server = Arc::new(
            Server::builder().add_service(service).wire(http).wire(JsonRpc::new()).without_listener().unwrap(),
        );
        for url in ["jsonrpc+tcp://nowhere", "jsonrpc+ws://nowhere/rpc", "jsonrpc+http://nowhere/rpc"] {
            let (server, opened) = (server.clone(), Arc::new(AtomicUsize::new(0)));
            let counted = opened.clone();
            let connector = move || {
                let (near, far) = duplex(1 << 10);
                server.attach(far);
                counted.fetch_add(1, Relaxed);
                ready(Ok(near))
            };
            let channel = Channel::builder().transport(Client::new().connector(connector)).connect(url).await.unwrap();
            assert_eq!(ask(&TestClient::new(channel), "hello").await.unwrap(), "hello", "{url}");
            assert_eq!(opened.load(Relaxed), 1, "{url}");
        }
    });
}

#[test]
fn calls_report_status_codes_and_keep_their_timeouts() {
    in_real_time(async {
        let (_server, addresses) = serve(&TestService::default()).await;
        for address in &addresses {
            let client = connect(address).await;
            let status = ask(&client, "fail 5 no such order").await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::NotFound, "no such order"), "{address}");
            assert_eq!(ask(&client, "panic").await.unwrap_err().code(), Code::Internal);
            let mut request = Request::new(words("wait"));
            request.set_timeout(SECOND / 20);
            assert_eq!(client.say(request).await.unwrap_err().code(), Code::DeadlineExceeded, "{address}");
            assert_eq!(ask(&client, "still here").await.unwrap(), "still here");
        }
    });
}

#[test]
fn server_streams_are_subscriptions_and_report_their_end() {
    in_real_time(async {
        let service = TestService::default();
        let (_server, addresses) = serve(&service).await;
        for address in &addresses[..2] {
            let client = connect(address).await;
            let texts = all(client.count(words("a, b, c")).await.unwrap()).await.unwrap();
            assert_eq!(texts, ["a", "b", "c"], "{address}");
            let mut stream = client.count(words("a, fail 5 gone")).await.unwrap().into_inner();
            assert_eq!(stream.message().await.unwrap().unwrap().text, "a");
            let status = stream.message().await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::NotFound, "gone"));
            assert_eq!(client.count(words("first fail 5 gone")).await.unwrap_err().code(), Code::NotFound);

            let mut stream = client.count(words("a, wait")).await.unwrap().into_inner();
            assert_eq!(stream.message().await.unwrap().unwrap().text, "a");
            service.log.take();
            drop(stream);
            // The answer arrives after the end of the subscription.
            ask(&client, "hi").await.unwrap();
            assert!(service.log.take().contains(&"dropped count a, wait".to_owned()), "{address}");
        }
        let client = connect(&addresses[2]).await;
        assert_eq!(client.count(words("a")).await.unwrap_err().code(), Code::Unimplemented);
    });
}

#[test]
fn metadata_is_supported_over_http_only() {
    in_real_time(async {
        let (_server, addresses) = serve(&TestService::default()).await;
        for (index, address) in addresses.iter().enumerate() {
            let client = connect(address).await;
            let mut request = Request::new(words("hi"));
            request.metadata_mut().insert("color", "red").unwrap();
            let answer = client.say(request).await;
            match answer {
                Ok(_) => assert_eq!(index, 2),
                Err(status) => {
                    assert!(index < 2 && matches!(status.call_error(), Some(CallError::MetadataNotCarried { .. })));
                }
            }
        }
    });
}

#[test]
fn reconnects_after_a_lost_connection() {
    in_real_time(async {
        let service = TestService::default();
        let (server, addresses) = serve(&service).await;
        let clients = [connect(&addresses[0]).await, connect(&addresses[1]).await];
        let waiting: Vec<_> = clients.iter().map(|client| asking(client, "wait")).collect();
        for client in &clients {
            assert_eq!(ask(client, "hi").await.unwrap(), "hi");
            // Another task makes the second call. It is sent only when that task runs.
            service.gate.arrival().await;
        }
        let address = server.local_addr().clone();
        drop(server);
        for waiting in waiting {
            let status = waiting.await.unwrap().unwrap_err();
            assert!(matches!(status.call_error(), Some(CallError::ConnectionLost { may_have_executed: true, .. })));
        }
        for client in &clients {
            let status = ask(client, "hi").await.unwrap_err();
            assert!(matches!(status.call_error(), Some(CallError::Unreachable(_))), "{status}");
        }
        let wire = JsonRpc::new();
        let _server = Server::builder()
            .add_service(TestServer::new(service))
            .wire(Http::new().mount("/rpc", wire.clone()))
            .wire(wire)
            .bind(address)
            .await
            .unwrap();
        for client in &clients {
            assert_eq!(ask(client, "back").await.unwrap(), "back");
        }
    });
}

#[test]
fn unreachable_and_invalid_addresses_are_rejected() {
    in_real_time(async {
        let unused = support::calls::unused_address().to_string();
        let unused = unused.strip_prefix("tcp://").unwrap_or(&unused);
        for address in [
            format!("jsonrpc+tcp://{unused}"),
            format!("jsonrpc+http://{unused}"),
            "jsonrpc+tcp://".to_owned(),
            "jsonrpc+tcp://nowhere".to_owned(),
        ] {
            assert!(
                channel()
                    .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
                    .connect(&*address)
                    .await
                    .is_err(),
                "{address}"
            );
        }
    });
}

#[test]
fn oversized_requests_are_resource_exhausted_on_every_wire() {
    in_real_time(async {
        for (wire_max, http_max) in [(1000, 4 << 20), (4 << 20, 1000)] {
            let wire =
                JsonRpc::new().settings(JsonRpcSettings { message_len_max: wire_max, ..JsonRpcSettings::default() });
            let server = Server::builder()
                .add_service(TestServer::new(TestService::default()))
                .wire(
                    Http::new()
                        .settings(HttpSettings { message_len_max: http_max, ..HttpSettings::default() })
                        .mount("/rpc", wire.clone()),
                )
                .wire(wire)
                .bind("127.0.0.1:0")
                .await
                .unwrap();
            let address = server.local_addr().socket_addr().unwrap();
            for scheme in ["jsonrpc+tcp://ADDRESS", "jsonrpc+ws://ADDRESS/rpc", "jsonrpc+http://ADDRESS/rpc"] {
                if scheme.contains("tcp") && wire_max > 1000 {
                    continue;
                }
                let client = connect(&scheme.replace("ADDRESS", &address.to_string())).await;
                let status = ask(&client, &"x".repeat(5000)).await.unwrap_err();
                assert_eq!(status.code(), Code::ResourceExhausted, "{scheme}, {wire_max}: {status}");
                assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{scheme}");
            }
        }
    });
}
