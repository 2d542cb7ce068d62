//! The protocols of channels.

use std::{io, time::Duration};

use frisbee_pubsub::ClientRouter;
use frpc::{Channel, ChannelBuilder, ConnectError, ConnectSettings, Connected, Transport};
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
}

impl Wire {
    pub(super) fn draw() -> Self {
        match fastrand::u8(..8) {
            0..3 => Self::Frisbee,
            3 => Self::WebSocket,
            4 | 5 => Self::Grpc,
            6 => Self::Connect,
            _ => Self::Http1,
        }
    }

    /// Returns `true` if a broker can share the connection.
    pub(super) fn has_packets(self) -> bool {
        matches!(self, Self::Frisbee | Self::WebSocket)
    }

    /// Returns `true` if answers can arrive before the last request.
    pub(super) fn is_full_duplex(self) -> bool {
        self != Self::Http1
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
        }
    }
}

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
