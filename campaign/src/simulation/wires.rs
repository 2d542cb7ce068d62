//! The protocols of channels.

use std::{io, sync::Arc, time::Duration};

use frisbee_pubsub::ClientRouter;
use frpc::{ByteStream, Channel, ChannelBuilder, ConnectError, ConnectSettings, Connected, MethodKind, Transport};
use frpc_http::{ClientSettings, HttpVersion};
use frpc_sim::SimNetwork;
use futures_util::future::BoxFuture;

use super::{
    batches::{BATCH_SCHEME, BatchTransport},
    defect::{Defect, DefectiveStream},
    ledger::Ledger,
    tls::WorldTls,
};

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
    /// The same in batches.
    JsonBatch,
    /// Batches on connections of their own.
    JsonTcpBatch,
}

impl Wire {
    pub(super) fn draw() -> Self {
        match fastrand::u8(..16) {
            0..4 => Self::Frisbee,
            4 => Self::WebSocket,
            5 | 6 => Self::Grpc,
            7 => Self::Connect,
            8 => Self::Http1,
            9 | 10 => Self::GrpcWeb,
            11 => Self::JsonRpc,
            12 => Self::JsonWebSocket,
            13 => Self::JsonPost,
            14 => Self::JsonBatch,
            _ => Self::JsonTcpBatch,
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
            Self::JsonPost | Self::JsonBatch | Self::JsonTcpBatch => MethodKind::Unary,
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
        matches!(self, Self::Http1 | Self::GrpcWeb | Self::JsonPost | Self::JsonBatch | Self::JsonTcpBatch)
    }

    /// Returns the address of a node.
    fn url(self, name: &str, is_secure: bool) -> String {
        let (scheme, path) = match self {
            Self::Frisbee => ("node", ""),
            Self::WebSocket => (if is_secure { "wss" } else { "ws" }, "/"),
            Self::Grpc => (if is_secure { "grpcs" } else { "grpc" }, ""),
            Self::Connect | Self::Http1 => (if is_secure { "https" } else { "http" }, ""),
            Self::GrpcWeb => (if is_secure { "grpc-web+https" } else { "grpc-web+http" }, ""),
            Self::JsonRpc => ("jsonrpc+tcp", ""),
            Self::JsonWebSocket => (if is_secure { "jsonrpc+wss" } else { "jsonrpc+ws" }, JSON_RPC_PATH),
            Self::JsonPost => (if is_secure { "jsonrpc+https" } else { "jsonrpc+http" }, JSON_RPC_PATH),
            Self::JsonTcpBatch => (BATCH_SCHEME, ""),
            Self::JsonBatch => (if is_secure { "https" } else { "http" }, JSON_RPC_PATH),
        };
        format!("{scheme}://{name}{path}")
    }

    pub(super) async fn connect(
        self,
        builder: ChannelBuilder,
        inbox: ClientRouter,
        name: &str,
        dialer: NodeDialer,
        ledger: Arc<Ledger>,
    ) -> Result<Channel, ConnectError> {
        let settings = ClientSettings {
            http_version: match self {
                Self::Connect => HttpVersion::Http2,
                // TLS would choose HTTP/2.
                Self::Http1 | Self::GrpcWeb => HttpVersion::Http1,
                _ => HttpVersion::Auto,
            },
            // A half-open connection shows by this only.
            keepalive_interval: Some(Duration::from_secs(10)),
            keepalive_timeout: Duration::from_secs(5),
            stream_window: if fastrand::bool() { 64 << 10 } else { 2 << 20 },
            ..ClientSettings::default()
        };
        let url = self.url(name, dialer.tls.is_some());
        let builder = match &dialer.tls {
            Some(tls) => builder.tls(tls.client.clone()),
            None => builder,
        };
        let (node, opener) = (name.to_owned(), dialer.clone());
        // Other wires have TLS of their own.
        let opener = if self == Self::JsonRpc { opener } else { NodeDialer { tls: None, ..opener } };
        let connector = move || {
            let (dialer, node) = (opener.clone(), node.clone());
            async move { dialer.dial(&node).await }
        };
        let http = frpc_http::Client::new().settings(settings);
        // Other transports never use the router.
        let builder = builder.router(inbox);
        let builder = match self {
            Self::Frisbee => builder.transport(dialer),
            Self::WebSocket => builder.transport(frpc_websocket::Client::new().connector(connector)),
            Self::Grpc | Self::Connect | Self::Http1 | Self::GrpcWeb => builder.transport(http.connector(connector)),
            Self::JsonRpc | Self::JsonWebSocket | Self::JsonPost => {
                builder.transport(frpc_jsonrpc::Client::new().connector(connector))
            }
            Self::JsonBatch | Self::JsonTcpBatch => {
                builder.transport(BatchTransport { client: http.connector(connector), dialer, ledger })
            }
        };
        builder.connect(url).await
    }
}

/// The path of JSON-RPC over HTTP and WebSocket.
pub(super) const JSON_RPC_PATH: &str = "/json";

/// Dials nodes.
#[derive(Clone)]
pub(super) struct NodeDialer {
    network: SimNetwork,
    tls: Option<WorldTls>,
    defect: Option<Defect>,
}

impl NodeDialer {
    pub(super) fn new(network: &SimNetwork, tls: Option<WorldTls>, defect: Option<Defect>) -> Self {
        Self { network: network.clone(), tls, defect }
    }

    pub(super) async fn dial(&self, name: &str) -> io::Result<Box<dyn ByteStream>> {
        let stream = DefectiveStream::new(self.network.dial(name).await?, self.defect);
        match &self.tls {
            Some(tls) => Ok(Box::new(tls.connect(name, stream).await?)),
            None => Ok(Box::new(stream)),
        }
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
            Ok(if dialer.tls.is_some() { Connected::FrisbeeOverTls(stream) } else { Connected::Frisbee(stream) })
        })
    }
}
