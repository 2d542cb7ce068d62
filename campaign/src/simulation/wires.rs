//! The protocols of channels.

use std::{io, time::Duration};

use frisbee_pubsub::ClientRouter;
use frpc::{Channel, ChannelBuilder, ConnectError, ConnectSettings, Connected, MethodKind, Transport};
use frpc_http::{ClientSettings, HttpVersion};
use frpc_sim::SimNetwork;
use futures_util::future::BoxFuture;

use super::defect::{Defect, DefectiveStream};

/// The protocol of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Frisbee,
    /// Frisbee over WebSocket.
    WebSocket,
    Grpc,
    /// Connect over HTTP/2.
    Connect,
    /// Connect over HTTP/1.1.
    Http1,
    GrpcWeb,
    /// JSON-RPC on a connection of its own.
    JsonRpc,
    /// JSON-RPC over WebSocket.
    JsonWebSocket,
    /// JSON-RPC by POST.
    JsonPost,
}

impl Wire {
    pub(super) fn draw() -> Self {
        match fastrand::u8(..14) {
            0..4 => Self::Frisbee,
            4 => Self::WebSocket,
            5 | 6 => Self::Grpc,
            7 => Self::Connect,
            8 => Self::Http1,
            9 | 10 => Self::GrpcWeb,
            11 => Self::JsonRpc,
            12 => Self::JsonWebSocket,
            _ => Self::JsonPost,
        }
    }

    /// Returns `true` if a broker can share the connection.
    pub(super) fn has_packets(self) -> bool {
        matches!(self, Self::Frisbee | Self::WebSocket)
    }

    /// Returns the supported kind of calls with most streams.
    ///
    /// Handlers with both streams answer each request before they read the next, which HTTP/1.1 cannot carry.
    fn kind_max(self) -> MethodKind {
        match self {
            Self::Frisbee | Self::WebSocket | Self::Grpc | Self::Connect => MethodKind::Bidirectional,
            Self::Http1 | Self::GrpcWeb => MethodKind::ClientStreaming,
            Self::JsonRpc | Self::JsonWebSocket => MethodKind::ServerStreaming,
            Self::JsonPost => MethodKind::Unary,
        }
    }

    /// Returns `kind`, or [`kind_max`](Self::kind_max) if this wire does not support it.
    pub(super) fn kind(self, kind: MethodKind) -> MethodKind {
        let max = self.kind_max();
        let is_over = kind.has_request_stream() && !max.has_request_stream()
            || kind.has_response_stream() && max == MethodKind::Unary
            || kind == MethodKind::Bidirectional;
        if is_over { max } else { kind }
    }

    /// Returns `true` if a channel opens another connection for each call at the same time.
    pub(super) fn has_many_connections(self) -> bool {
        matches!(self, Self::Http1 | Self::GrpcWeb | Self::JsonPost)
    }

    pub(super) async fn connect(
        self,
        builder: ChannelBuilder,
        inbox: ClientRouter,
        name: &str,
        dialer: NodeDialer,
    ) -> Result<Channel, ConnectError> {
        let settings = ClientSettings {
            http_version: if self == Self::Connect { HttpVersion::Http2 } else { HttpVersion::Auto },
            // A half-open connection shows by this only.
            keepalive_interval: Some(Duration::from_secs(10)),
            keepalive_timeout: Duration::from_secs(5),
            stream_window: if fastrand::bool() { 64 << 10 } else { 2 << 20 },
            ..ClientSettings::default()
        };
        let http = frpc_http::Client::new().settings(settings);
        match self {
            Self::Frisbee => builder.router(inbox).transport(dialer).connect(format!("node://{name}")).await,
            Self::WebSocket => {
                let client = frpc_websocket::Client::new().connector(dialer.connector_to(name));
                builder.router(inbox).transport(client).connect(format!("ws://{name}/")).await
            }
            Self::Grpc => {
                builder.transport(http.connector(dialer.connector_to(name))).connect(format!("grpc://{name}")).await
            }
            Self::Connect | Self::Http1 => {
                builder.transport(http.connector(dialer.connector_to(name))).connect(format!("http://{name}")).await
            }
            Self::GrpcWeb => {
                let url = format!("grpc-web+http://{name}");
                builder.transport(http.connector(dialer.connector_to(name))).connect(url).await
            }
            Self::JsonRpc | Self::JsonWebSocket | Self::JsonPost => {
                let scheme = match self {
                    Self::JsonRpc => "jsonrpc+tcp",
                    Self::JsonWebSocket => "jsonrpc+ws",
                    _ => "jsonrpc+http",
                };
                let client = frpc_jsonrpc::Client::new().connector(dialer.connector_to(name));
                builder.transport(client).connect(format!("{scheme}://{name}{JSON_RPC_PATH}")).await
            }
        }
    }
}

/// The path of JSON-RPC over HTTP and WebSocket.
pub(super) const JSON_RPC_PATH: &str = "/json";

/// Dials nodes.
#[derive(Clone)]
pub(super) struct NodeDialer {
    network: SimNetwork,
    defect: Option<Defect>,
}

impl NodeDialer {
    pub(super) fn new(network: &SimNetwork, defect: Option<Defect>) -> Self {
        Self { network: network.clone(), defect }
    }

    /// Returns a connector to a node.
    fn connector_to(
        self,
        name: &str,
    ) -> impl Fn() -> BoxFuture<'static, io::Result<DefectiveStream>> + Send + Sync + 'static {
        let name = name.to_owned();
        move || {
            let (dialer, name) = (self.clone(), name.clone());
            Box::pin(async move { dialer.dial(&name).await })
        }
    }

    async fn dial(&self, name: &str) -> io::Result<DefectiveStream> {
        self.network.dial(name).await.map(|stream| DefectiveStream::new(stream, self.defect))
    }
}

impl Transport for NodeDialer {
    fn schemes(&self) -> &[&str] {
        &["node"]
    }

    fn connect(&self, url: String, settings: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let dialer = self.clone();
        Box::pin(async move {
            let name = url.trim_start_matches("node://");
            let stream = frpc::client::connect(&url, &settings, || dialer.dial(name)).await?;
            Ok(Connected::Frisbee(Box::new(stream)))
        })
    }
}
