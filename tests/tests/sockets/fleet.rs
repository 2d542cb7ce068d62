//! Channels to several servers which restart while calls are made.

use std::{
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use frpc::{
    Address, CallError, Channel, Engine, Method, RefusalReason, Server, Status,
    fleet::{Endpoint, Endpoints, FleetSettings, PickPolicy, Refresh, Resolve, Target},
    layers::{AdaptiveLimit, LimitSettings, OverloadSettings},
};
use frpc_http::Http;
use frpc_jsonrpc::JsonRpc;
use futures_util::stream::{self, BoxStream, StreamExt};
use support::{
    SECOND,
    calls::{TestClient, TestServer, TestService, Words, all, ask, asking, schema::test_methods, words},
    in_real_time,
    sockets::Kind,
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

use crate::restarts::{bind_when_free, lasting_address};

static SAY: Method = test_methods::SAY.idempotent();

async fn serve_at(address: &Address) -> Server {
    bind_when_free(async || {
        let service = TestServer::new(TestService::default());
        Server::builder()
            .engine(Engine::Tokio)
            .add_service(service)
            .wire(Http::new())
            .wire(JsonRpc::new())
            .bind(address)
            .await
    })
    .await
}

/// Calls one of several servers until the end of the test.
async fn call_until(channel: Channel, is_over: Arc<AtomicBool>, answered: Arc<Semaphore>) -> Result<(), Status> {
    while !is_over.load(Ordering::Relaxed) {
        let answer = channel.unary::<_, Words>(&SAY, words("hi")).await?;
        assert_eq!(answer.get_ref().text, "hi");
        answered.add_permits(1);
    }
    Ok(())
}

async fn restarts_lose_no_call(scheme: &str) {
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        let address = lasting_address(Kind::Tcp);
        servers.push((serve_at(&address).await, address));
    }
    let endpoints = servers.iter().map(|(_, address)| {
        let place = address.socket_addr().unwrap();
        Endpoint::new(format!("{scheme}://{place}")).unwrap()
    });
    let channel = Channel::builder().transport(frpc_http::transport()).connect(Target::endpoints(endpoints).unwrap());
    let channel = channel.await.unwrap();
    let (is_over, answered) = (Arc::<AtomicBool>::default(), Arc::new(Semaphore::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(call_until(channel.clone(), is_over.clone(), answered.clone()));
    }
    for limit in [5 * SECOND, Duration::ZERO] {
        for (server, address) in &mut servers {
            answered.acquire_many(CALLS).await.unwrap().forget();
            let before = mem::replace(server, Server::builder().without_listener().unwrap());
            before.shutdown(limit).await;
            answered.acquire_many(CALLS).await.unwrap().forget();
            *server = serve_at(address).await;
        }
    }
    answered.acquire_many(CALLS).await.unwrap().forget();
    is_over.store(true, Ordering::Relaxed);
    for outcome in callers.join_all().await {
        outcome.unwrap();
    }
}

#[test]
fn restarts_lose_no_call_over_frisbee() {
    in_real_time(restarts_lose_no_call("tcp"));
}

#[test]
fn restarts_lose_no_call_over_grpc() {
    in_real_time(restarts_lose_no_call("grpc"));
}

#[test]
fn restarts_lose_no_call_over_connect() {
    in_real_time(restarts_lose_no_call("http"));
}

#[test]
fn found_servers_are_named_by_the_host_of_the_target() {
    in_real_time(async {
        let service = TestServer::new(TestService::default());
        let http = Http::new().allowed_hosts(["localhost"]);
        let server = Server::builder().add_service(service).wire(http).bind("tcp://127.0.0.1:0").await.unwrap();
        let port = server.local_addr().socket_addr().unwrap().port();
        let builder = || Channel::builder().transport(frpc_http::transport()).transport(frpc_websocket::transport());
        for scheme in ["grpc", "http", "twirp+http", "ws"] {
            let channel = builder().connect(format!("dns+{scheme}:///localhost:{port}")).await.unwrap();
            assert_eq!(ask(&TestClient::new(channel), "hi").await.unwrap(), "hi", "{scheme}");
        }
        let by_address = builder().connect(format!("grpc://127.0.0.1:{port}")).await.unwrap();
        ask(&TestClient::new(by_address), "hi").await.unwrap_err();
    });
}

/// Finds one endpoint, and reports the requests for another lookup.
struct Watched(Endpoint, mpsc::UnboundedSender<()>);

impl Resolve for Watched {
    fn resolve(&self, refresh: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let (endpoint, requests) = (self.0.clone(), self.1.clone());
        stream::unfold(true, move |is_first| {
            let (endpoint, requests, refresh) = (endpoint.clone(), requests.clone(), refresh.clone());
            async move {
                if !is_first {
                    refresh.requested().await;
                    requests.send(()).ok()?;
                }
                Some((Ok(Endpoints::new([endpoint])), false))
            }
        })
        .boxed()
    }
}

#[test]
fn idle_channels_notice_a_lost_connection() {
    in_real_time(async {
        for scheme in ["tcp", "grpc", "jsonrpc+tcp"] {
            let address = lasting_address(Kind::Tcp);
            let server = serve_at(&address).await;
            let endpoint = Endpoint::new(format!("{scheme}://{}", address.socket_addr().unwrap())).unwrap();
            let (requests, mut requested) = mpsc::unbounded_channel();
            let builder = Channel::builder().transport(frpc_http::transport()).transport(frpc_jsonrpc::transport());
            let _channel = builder.connect(Target::resolved_by(Watched(endpoint, requests))).await.unwrap();
            assert!(requested.try_recv().is_err(), "{scheme}: the connection is well");
            server.shutdown(Duration::ZERO).await;
            requested.recv().await.unwrap();
        }
    });
}

#[test]
fn calls_refused_by_an_overloaded_server_are_made_on_another() {
    in_real_time(async {
        let limit = LimitSettings { first: 1, least: 1, most: 1, ..LimitSettings::default() };
        let settings = OverloadSettings { limit, queue_max: 0, ..OverloadSettings::default() };
        let (busy, free) = (TestService::default(), TestService::default());
        let builders = [
            Server::builder().layer(AdaptiveLimit::new(settings).unwrap()).add_service(TestServer::new(busy.clone())),
            Server::builder().add_service(TestServer::new(free.clone())),
        ];
        let mut servers = Vec::new();
        for builder in builders {
            let server = builder.engine(Engine::Tokio).wire(Http::new()).wire(JsonRpc::new());
            servers.push(server.bind("tcp://127.0.0.1:0").await.unwrap());
        }
        let places = servers.iter().map(|server| server.local_addr().socket_addr().unwrap()).collect::<Vec<_>>();
        let running = asking(&TestClient::connect(places[0]).await.unwrap(), "wait");
        busy.gate.arrival().await;
        for scheme in ["tcp", "grpc", "grpc-web+http", "http", "twirp+http", "jsonrpc+tcp"] {
            let target = [0, 1].map(|index| format!("{scheme}://{}", places[index]));
            let builder = Channel::builder().transport(frpc_http::transport()).transport(frpc_jsonrpc::transport());
            let fleet = FleetSettings { policy: PickPolicy::RoundRobin, ..FleetSettings::default() };
            let client = TestClient::new(builder.fleet(fleet).connect(target).await.unwrap());
            for _ in 0..10 {
                assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{scheme}");
            }
            if scheme != "twirp+http" {
                for _ in 0..4 {
                    let counted = client.count(words("a, b")).await.unwrap();
                    assert_eq!(all(counted).await.unwrap(), ["a", "b"], "{scheme}");
                }
            }
            let one = Channel::builder().transport(frpc_http::transport()).transport(frpc_jsonrpc::transport());
            let one = TestClient::new(one.connect(format!("{scheme}://{}", places[0])).await.unwrap());
            let status = ask(&one, "hi").await.unwrap_err();
            let error = status.call_error().unwrap();
            assert!(matches!(error, CallError::Refused { why: RefusalReason::Busy }), "{scheme}: {status:?}");
            assert!(status.metadata().get("frpc-not-executed").is_none(), "{scheme}: a handler could forward it");
        }
        assert_eq!((busy.log.take().len(), free.log.take().len()), (1, 60 + 20));
        busy.gate.open(1);
        running.await.unwrap().unwrap();
    });
}

#[test]
fn servers_with_other_messages_are_not_used() {
    in_real_time(async {
        let address = lasting_address(Kind::Tcp);
        let _server = serve_at(&address).await;
        let place = address.socket_addr().unwrap();
        for schemes in [["tcp", "grpc"], ["http", "tcp"]] {
            let target = schemes.map(|scheme| format!("{scheme}://{place}")).join(",");
            let channel = Channel::builder().transport(frpc_http::transport()).connect(target).await.unwrap();
            for _ in 0..50 {
                assert_eq!(channel.unary::<_, Words>(&SAY, words("hi")).await.unwrap().get_ref().text, "hi");
            }
        }
    });
}

const SERVERS: usize = 3;
const CALLERS: usize = 8;
/// The number of calls between two steps of the test.
const CALLS: u32 = 200;
