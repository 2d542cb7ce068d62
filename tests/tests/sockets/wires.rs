//! Other protocols over real sockets, on every engine.

use frpc::{Address, Call, Channel, Code, Engine, Layered, Server, Status, Streaming, interceptor};
use frpc_http::Http;
use frpc_jsonrpc::JsonRpc;
use frpc_types::{ErrorDetails, RetryInfo, StatusExt};
use support::{
    SECOND,
    calls::{TestClient, TestServer, TestService, ask},
    engines, in_real_time,
    interop::{
        Service,
        schema::{
            Blob, Number, Rich, Series, Summary, Text, interop_client::InteropClient, interop_server::InteropServer,
        },
    },
    sockets::pattern,
    until,
};

pub(crate) async fn serve(engine: Engine, service: impl frpc::Service) -> Server {
    serve_at("127.0.0.1:0".parse().unwrap(), engine, service).await
}

pub(crate) async fn serve_at(address: Address, engine: Engine, service: impl frpc::Service) -> Server {
    let json = JsonRpc::new();
    let server = Server::builder().engine(engine).add_service(service).wire(json.clone());
    let server = server.wire(Http::new().mount("/rpc", json)).bind(address).await.unwrap();
    assert_eq!(server.engine(), engine);
    server
}

/// Schemes of addresses with their path. The flag is set if requests can be streams.
pub(crate) const SCHEMES: [(&str, &str, bool); 9] = [
    ("grpc", "", true),
    ("grpc-web+http", "", false),
    ("http", "", false),
    ("twirp+http", "", false),
    ("ws", "", true),
    ("jsonrpc+tcp", "", false),
    ("jsonrpc+http", "/rpc", false),
    ("jsonrpc+ws", "/rpc", false),
    ("tcp", "", true),
];

pub(crate) async fn connect(server: &Server, scheme: &str, path: &str) -> Channel {
    let address = server.local_addr().to_string();
    let (_, address) = address.split_once("://").unwrap_or(("", &address));
    let channel = Channel::builder().transport(frpc_http::transport()).transport(frpc_websocket::transport());
    channel.transport(frpc_jsonrpc::transport()).connect(format!("{scheme}://{address}{path}")).await.unwrap()
}

async fn converse(channel: Channel, number: i64, scheme: &str, streams: bool) {
    let interop = InteropClient::new(channel);
    for number in number..number + 20 {
        let rich = Rich { title: format!("number {number}"), i64: number, ..Rich::default() };
        assert_eq!(interop.echo(rich.clone()).await.unwrap().into_inner(), rich, "{scheme}");
    }
    let blob = Blob { data: pattern(200_000).to_vec() };
    assert!(interop.payload(blob.clone()).await.unwrap().into_inner() == blob, "{scheme}");
    let status = interop.fail(Text { text: "as asked".into() }).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unknown, "as asked"), "{scheme}");
    if !scheme.starts_with("twirp") && scheme != "jsonrpc+http" {
        let series = Series { start: number, count: 500, fail_with: "enough".into() };
        let mut numbers = interop.numbers(series).await.unwrap().into_inner();
        for value in (number..).take(500) {
            assert_eq!(numbers.message().await.unwrap(), Some(Number { value }), "{scheme}");
        }
        assert_eq!(numbers.message().await.unwrap_err().message(), "enough", "{scheme}");
    }
    if streams {
        let values = Streaming::from_iter((0..500).map(|value| Number { value }));
        assert_eq!(interop.total(values).await.unwrap().into_inner(), Summary { sum: 499 * 250, count: 500 });
    }
}

#[test]
fn every_wire_is_served_by_every_engine() {
    for engine in engines() {
        in_real_time(async {
            let server = serve(engine, InteropServer::new(Service)).await;
            let mut clients = Vec::new();
            for (scheme, path, streams) in SCHEMES {
                let channel = connect(&server, scheme, path).await;
                clients.extend((0..4).map(|number| tokio::spawn(converse(channel.clone(), number, scheme, streams))));
            }
            for client in clients {
                client.await.unwrap();
            }
            until(|| server.connections().iter().all(|connection| connection.metrics().streams == 0)).await;
            assert_eq!(server.shutdown(10 * SECOND).await, 0, "{engine}");
        });
    }
}

#[test]
fn shutdown_lets_calls_finish_on_every_wire_and_engine() {
    for engine in engines() {
        in_real_time(async {
            let service = TestService::default();
            let server = serve(engine, TestServer::new(service.clone())).await;
            let mut calls = Vec::new();
            for (scheme, path, _) in SCHEMES {
                let client = TestClient::new(connect(&server, scheme, path).await);
                calls.push(tokio::spawn(async move { ask(&client, "wait").await }));
                service.gate.arrival().await;
            }
            let shutdown = tokio::spawn(server.shutdown(15 * SECOND));
            service.gate.open(SCHEMES.len());
            for ((scheme, ..), call) in SCHEMES.into_iter().zip(calls) {
                assert_eq!(call.await.unwrap().unwrap(), "wait", "{scheme}");
            }
            assert_eq!(shutdown.await.unwrap(), 0, "{engine}");
        });
    }
}

#[test]
fn error_details_arrive_over_every_supporting_wire() {
    in_real_time(async {
        let mut details = ErrorDetails::new();
        details.add_bad_request_violation("title", "must not be empty").set_retry_info(2 * SECOND).set_error_info(
            "TITLE_MISSING",
            "shop.example.com",
            [("shelf".to_owned(), "A1".to_owned())],
        );
        let told = details.clone();
        let refusal = interceptor(move |_: &mut Call| {
            Err(Status::with_error_details(Code::InvalidArgument, "a mistake", told.clone()))
        });
        let server = serve(Engine::Tokio, Layered::new(InteropServer::new(Service), refusal)).await;
        for (scheme, path, _) in SCHEMES {
            let interop = InteropClient::new(connect(&server, scheme, path).await);
            let status = interop.echo(Rich::default()).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "a mistake"), "{scheme}");
            if scheme.starts_with("twirp") {
                assert_eq!(status.get_error_details(), ErrorDetails::new(), "Twirp has no place for them");
                continue;
            }
            assert_eq!(status.get_error_details(), details, "{scheme}");
            assert_eq!(status.error_detail::<RetryInfo>().unwrap().delay(), Some(2 * SECOND), "{scheme}");
        }
    });
}
