//! Transports for calls.

use std::{
    future::{Ready, ready},
    io,
    sync::Mutex,
};

use frisbee::{ConnectRetry, Protocol};
use frpc::{Channel, Config, Drain, Endpoint, IntoEndpoint, ProtocolMatch, Raw, Router, Services, Wire};
use frpc_http::{Client, ClientSettings, Http, HttpVersion};
use frpc_nats::{NatsCluster, NatsServer};
use support::{
    NatsBroker,
    calls::{TestClient, TestServer, TestService, quiet, quiet_channel},
    settle,
};
use tokio::io::{DuplexStream, duplex};

/// Defines tests once per transport, such as `answers::frisbee::a_panic_is_answered`. Each test takes the transport as
/// its argument.
macro_rules! over_every_transport {
    ($($test:ident)*) => {
        crate::transport::over_own_transports! { $($test)* }
        over_every_transport! { grpc Grpc: $($test)* }
        over_every_transport! { connect Connect: $($test)* }
        over_every_transport! { nats Nats: $($test)* }
    };
    ($name:ident $transport:ident: $($test:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    super::$test(crate::transport::Transport::$transport);
                }
            )*
        }
    };
}

/// Defines tests once per transport other than HTTP. For features without an equivalent in HTTP, and for bytes in the
/// format of fRPC.
macro_rules! over_own_transports {
    ($($test:ident)*) => {
        crate::transport::over_every_transport! { in_process InProcess: $($test)* }
        crate::transport::over_every_transport! { frisbee Frisbee: $($test)* }
        crate::transport::over_every_transport! { extended Extended: $($test)* }
        crate::transport::over_every_transport! { websocket WebSocket: $($test)* }
    };
}

/// Defines tests once per transport with support for everything in the head of a call.
macro_rules! over_full_transports {
    ($($test:ident)*) => {
        crate::transport::over_every_transport! { full_in_process InProcess: $($test)* }
        crate::transport::over_every_transport! { full_extended Extended: $($test)* }
        crate::transport::over_every_transport! { full_websocket WebSocket: $($test)* }
        crate::transport::over_every_transport! { full_grpc Grpc: $($test)* }
        crate::transport::over_every_transport! { full_connect Connect: $($test)* }
        crate::transport::over_every_transport! { full_nats Nats: $($test)* }
    };
}

pub(crate) use {over_every_transport, over_full_transports, over_own_transports};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    InProcess,
    /// frisbee between plain peers.
    Frisbee,
    /// frisbee between extended peers.
    Extended,
    /// frisbee between extended peers over WebSocket.
    WebSocket,
    Grpc,
    /// Connect over HTTP/2.
    Connect,
    /// Through a NATS server in the process.
    Nats,
}

/// Services served over a transport, with a channel to them.
pub(crate) struct Served {
    pub(crate) channel: Channel,
    /// `None` in process and through NATS.
    pub(crate) server: Option<frisbee::Server>,
    /// The server through NATS.
    _nats: Option<ServedThroughNats>,
}

pub(crate) struct ServedThroughNats {
    _server: NatsServer,
    _broker: NatsBroker,
}

impl Transport {
    /// Serves services without timers.
    pub(crate) async fn serve(self, services: impl Router + IntoEndpoint) -> Served {
        match self {
            Self::InProcess => Served { channel: Channel::in_process(services), server: None, _nats: None },
            Self::Frisbee | Self::Extended => {
                let config = Config { extended: self == Self::Extended, ..quiet() };
                let server = frisbee::Server::builder(services).config(config).without_listener();
                let (ours, theirs) = duplex(64 * 1024);
                server.attach(theirs);
                Served { channel: quiet_channel().attach(ours).await.unwrap(), server: Some(server), _nats: None }
            }
            Self::WebSocket => serve_websocket(services).await,
            Self::Grpc => serve_http(services, "grpc://test").await,
            Self::Connect => serve_http(services, "http://test").await,
            Self::Nats => serve_nats(services).await,
        }
    }

    /// Serves a test service.
    pub(crate) async fn serve_and_connect(self) -> (TestService, Served, TestClient) {
        let service = TestService::default();
        let served = self.serve(Services::new().add_service(TestServer::new(service.clone()))).await;
        let client = TestClient::new(served.channel.clone());
        (service, served, client)
    }
}

/// Serves services over in-memory HTTP/2.
async fn serve_http(services: impl IntoEndpoint, url: &str) -> Served {
    let protocol = OverHttp { http: Http::new(), endpoint: Endpoint::new(services).unwrap() };
    let server = frisbee::Server::builder(()).config(quiet()).protocol(protocol).without_listener();
    let taken = taken_once(&server);
    // Allow the long texts of some statuses, and add no metadata to those of the calls.
    let client = Client::new().settings(ClientSettings {
        headers_len_max: 1024 * 1024,
        user_agent: None,
        http_version: HttpVersion::Http2,
        ..ClientSettings::default()
    });
    let client = client.connector(taken);
    let channel = Channel::builder()
        .transport(client)
        .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
        .connect(url)
        .await
        .unwrap();
    Served { channel, server: Some(server), _nats: None }
}

/// Serves services over in-memory WebSocket.
async fn serve_websocket(services: impl Router) -> Served {
    let protocol = OverHttp { http: Http::new(), endpoint: Endpoint::new(Services::new()).unwrap() };
    let config = Config { extended: true, ..quiet() };
    let server = frisbee::Server::builder(services).config(config).protocol(protocol).without_listener();
    let client = frpc_websocket::Client::new().connector(taken_once(&server));
    let channel = quiet_channel()
        .transport(client)
        .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
        .connect("ws://test")
        .await
        .unwrap();
    Served { channel, server: Some(server), _nats: None }
}

/// Serves services through a NATS server in the process.
async fn serve_nats(services: impl IntoEndpoint) -> Served {
    let broker = NatsBroker::start().await;
    let cluster = NatsCluster::new(broker.addr().to_string());
    let server = NatsServer::builder("test").serve(&cluster, services).await.unwrap();
    let channel = Channel::builder().transport(frpc_nats::transport());
    let channel = channel.connect(format!("nats://{}/test", broker.addr())).await.unwrap();
    Served { channel, server: None, _nats: Some(ServedThroughNats { _server: server, _broker: broker }) }
}

/// Returns a connector for a single in-memory connection to a server.
fn taken_once(server: &frisbee::Server) -> impl Fn() -> Ready<io::Result<DuplexStream>> + Send + Sync + 'static {
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    let ours = Mutex::new(Some(ours));
    move || ready(ours.lock().unwrap().take().ok_or_else(|| io::ErrorKind::ConnectionRefused.into()))
}

/// A wire of frpc on a frisbee server without services.
struct OverHttp {
    http: Http,
    endpoint: Endpoint,
}

impl Protocol for OverHttp {
    fn recognize(&self, first: &[u8], alpn: Option<&[u8]>) -> ProtocolMatch {
        self.http.recognize(first, alpn)
    }

    async fn serve(&self, socket: Raw, drain: Drain) {
        self.http.serve(socket, self.endpoint.clone(), drain).await;
    }
}

impl Served {
    /// Asserts that failures affected only calls and not the connection, and that no call left anything behind.
    pub(crate) async fn assert_unharmed(&self) {
        settle().await;
        let Some(server) = &self.server else { return };
        assert_eq!(server.metrics().accepted, 1);
        assert!(server.connections().iter().all(|connection| connection.close_reason().is_none()));
        assert!(server.connections().iter().all(|connection| connection.metrics().streams == 0));
    }
}
