//! Other protocols over real sockets, on every engine.

use std::{ops::Deref, time::Duration};

use frpc::{Address, Call, Channel, ChannelBuilder, Code, Engine, Layered, Server, Status, Streaming, interceptor};
use frpc_http::Http;
use frpc_jsonrpc::JsonRpc;
use frpc_nats::{NatsCluster, NatsServer};
use frpc_types::{ErrorDetails, RetryInfo, StatusExt};
use support::{
    NatsProgram, SECOND,
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
use tokio::{runtime, sync::OnceCell};

use crate::plain_posts::PlainPosts;

/// A server on a port, served through NATS as well once a channel asks for it.
pub(crate) struct EveryWire {
    server: Server,
    nats: OnceCell<(support::NatsServer, NatsServer)>,
}

impl EveryWire {
    /// Returns the address for channels through NATS.
    async fn through_nats(&self) -> String {
        let start = || async {
            let nats = NatsProgram::find().unwrap().start("one", "").await;
            let cluster = NatsCluster::new(nats.url());
            let server = NatsServer::builder("test").serve(&cluster, self.server.endpoint()).await.unwrap();
            (nats, server)
        };
        self.nats.get_or_init(start).await.0.addr.to_string()
    }

    /// Ends both servers, and continues NATS.
    pub(crate) fn stop(self) -> StoppedWires {
        let nats = self.nats.into_inner().map(|(nats, _server)| nats);
        StoppedWires { address: self.server.local_addr().clone(), nats }
    }

    /// Shuts both servers down. NATS runs until the result is dropped, because it may still have answers to deliver.
    pub(crate) async fn shutdown(self, limit: Duration) -> CutCalls {
        let (nats, through_nats) = self.nats.into_inner().unzip();
        let through_nats = async {
            match through_nats {
                Some(server) => server.shutdown(limit).await,
                None => 0,
            }
        };
        let (left, cut) = tokio::join!(self.server.shutdown(limit), through_nats);
        CutCalls { count: left + cut, _nats: nats }
    }
}

/// The address and NATS of a stopped server.
pub(crate) struct StoppedWires {
    address: Address,
    nats: Option<support::NatsServer>,
}

impl StoppedWires {
    /// Serves again for the same channels.
    pub(crate) async fn serve(self, engine: Engine, service: impl frpc::Service) -> EveryWire {
        let EveryWire { server, .. } = serve_at(self.address, engine, service).await;
        let Some(nats) = self.nats else { return EveryWire { server, nats: OnceCell::new() } };
        let cluster = NatsCluster::new(nats.url());
        let through_nats = NatsServer::builder("test").serve(&cluster, server.endpoint()).await.unwrap();
        EveryWire { server, nats: OnceCell::new_with(Some((nats, through_nats))) }
    }
}

/// The number of connections and calls cut by a shutdown.
#[derive(Debug)]
pub(crate) struct CutCalls {
    count: usize,
    _nats: Option<support::NatsServer>,
}

impl PartialEq<usize> for CutCalls {
    fn eq(&self, other: &usize) -> bool {
        self.count == *other
    }
}

impl Deref for EveryWire {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

pub(crate) async fn serve(engine: Engine, service: impl frpc::Service) -> EveryWire {
    serve_at("127.0.0.1:0".parse().unwrap(), engine, service).await
}

pub(crate) async fn serve_at(address: Address, engine: Engine, service: impl frpc::Service) -> EveryWire {
    serve_over(Http::new(), address, engine, service).await
}

/// Serves REST as well. The code for unknown methods differs then.
pub(crate) async fn serve_with_rest(service: impl frpc::Service) -> EveryWire {
    serve_over(Http::new().rest(), "127.0.0.1:0".parse().unwrap(), Engine::Tokio, service).await
}

async fn serve_over(http: Http, address: Address, engine: Engine, service: impl frpc::Service) -> EveryWire {
    let json = JsonRpc::new();
    let server = Server::builder().engine(engine).add_service(service).wire(json.clone());
    let server = server.wire(http.mount("/rpc", json)).bind(address).await.unwrap();
    assert_eq!(server.engine(), engine);
    EveryWire { server, nats: OnceCell::new() }
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

/// Returns the schemes, and that of NATS if nats-server is installed.
pub(crate) fn schemes() -> Vec<(&'static str, &'static str, bool)> {
    let nats = NatsProgram::find().map(|_| ("nats", "/test", true));
    SCHEMES.into_iter().chain(nats).collect()
}

pub(crate) async fn connect(server: &EveryWire, scheme: &str, path: &str) -> Channel {
    let address = match scheme {
        "nats" => server.through_nats().await,
        _ => server.local_addr().to_string(),
    };
    let (_, address) = address.split_once("://").unwrap_or(("", &address));
    connect_at(address, scheme, path).await
}

/// Returns a channel to this host and port.
pub(crate) async fn connect_at(address: &str, scheme: &str, path: &str) -> Channel {
    every_transport().connect(format!("{scheme}://{address}{path}")).await.unwrap()
}

fn every_transport() -> ChannelBuilder {
    let channel = Channel::builder().transport(frpc_http::transport()).transport(frpc_websocket::transport());
    channel.transport(frpc_jsonrpc::transport()).transport(frpc_nats::transport()).transport(PlainPosts)
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
            for (scheme, path, streams) in schemes() {
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
fn schemes_in_upper_case_reach_the_same_wires() {
    in_real_time(async {
        let server = serve(Engine::Tokio, InteropServer::new(Service)).await;
        for (scheme, path, _) in SCHEMES {
            let interop = InteropClient::new(connect(&server, &scheme.to_ascii_uppercase(), path).await);
            let rich = Rich { title: scheme.to_owned(), ..Rich::default() };
            assert_eq!(interop.echo(rich.clone()).await.unwrap().into_inner(), rich, "{scheme}");
        }
    });
}

#[test]
fn channels_recover_from_the_end_of_their_runtime() {
    let runtime = || runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let serving = runtime();
    let server = serving.block_on(serve(Engine::Tokio, InteropServer::new(Service)));
    let address = server.local_addr().socket_addr().unwrap();
    for ((scheme, path, _), is_lazy) in SCHEMES.into_iter().flat_map(|scheme| [(scheme, true), (scheme, false)]) {
        let target = format!("{scheme}://{address}{path}");
        let home = runtime();
        let interop = home.block_on(async {
            InteropClient::new(match is_lazy {
                true => every_transport().connect_lazy(target).unwrap(),
                false => every_transport().connect(target).await.unwrap(),
            })
        });
        let rich = Rich { title: scheme.to_owned(), ..Rich::default() };
        // The first one is where the channel began. Each call after that finds an ended runtime.
        for here in [home, runtime(), runtime()] {
            let reply = here.block_on(interop.echo(rich.clone()));
            assert_eq!(reply.unwrap().into_inner(), rich, "{scheme}");
        }
    }
}

#[test]
fn shutdown_lets_calls_finish_on_every_wire_and_engine() {
    for engine in engines() {
        in_real_time(async {
            let service = TestService::default();
            let server = serve(engine, TestServer::new(service.clone())).await;
            let mut calls = Vec::new();
            for (scheme, path, _) in schemes() {
                let client = TestClient::new(connect(&server, scheme, path).await);
                calls.push(tokio::spawn(async move { ask(&client, "wait").await }));
                service.gate.arrival().await;
            }
            let shutdown = tokio::spawn(server.shutdown(15 * SECOND));
            service.gate.open(calls.len());
            for ((scheme, ..), call) in schemes().into_iter().zip(calls) {
                assert_eq!(call.await.unwrap().as_deref().ok(), Some("wait"), "{scheme}");
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
        for (scheme, path, _) in schemes() {
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
