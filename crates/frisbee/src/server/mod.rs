//! The server: accepts connections and drives each with a router, until shutdown.

mod accept;
mod builder;
#[cfg(unix)]
mod handover;
mod metrics;
mod observer;
mod protocols;
mod retirement;
mod serve;
mod settings;
mod shared;
mod slot;
mod starting;
mod threads;

use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout},
};

use self::shared::{KILL_GRACE, ServerShared};
pub use self::{
    builder::ServerBuilder,
    metrics::ServerMetrics,
    observer::ServerObserver,
    protocols::{Drain, Protocol, ProtocolMatch},
    settings::ServerLimits,
    slot::ConnectionInfo,
};
use crate::{Address, Connection, Engine, net::IoStream};

/// A running server. Dropping it frees its address and cuts every connection.
///
/// [`shutdown`](Self::shutdown) lets running handlers finish first.
///
/// ```
/// use std::time::Duration;
///
/// use frisbee::{Client, Operation, Packet, Server, HandlerTable};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// const ECHO: Operation = Operation::new(20).unwrap();
/// let router = HandlerTable::new().on(ECHO, async |packet: Packet| packet);
/// let server = Server::builder(router).bind("tcp://127.0.0.1:0").await?;
///
/// let client = Client::new(()).connect(server.local_addr()).await?;
/// client.send(Packet::new(1, ECHO, "hello")).await?;
/// server.shutdown(Duration::from_secs(5)).await;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    shared: Arc<ServerShared>,
    /// Never empty.
    local: Vec<Address>,
}

impl Server {
    /// Returns the first address of the server, with the actual port.
    pub fn local_addr(&self) -> &Address {
        &self.local[0]
    }

    /// Returns all addresses of the server, in the order given to [`bind`](ServerBuilder::bind).
    pub fn local_addrs(&self) -> &[Address] {
        &self.local
    }

    /// Returns the engine in use. Never [`Engine::Auto`].
    pub fn engine(&self) -> Engine {
        self.shared.engine
    }

    /// Serves a custom stream on the current tokio runtime, with TLS if configured.
    pub fn attach(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.attach_from(stream, Address::Unnamed);
    }

    /// Serves a custom stream like [`attach`](Self::attach), with this address of the peer, for example from a
    /// proxy or a tunnel.
    pub fn attach_from(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: impl Into<Address>) {
        self.shared.clone().admit(IoStream::Other(Box::new(stream)), self.local_addr().clone(), peer.into());
    }

    /// Returns all open connections.
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.slots.connections()
    }

    /// Returns a snapshot of the server's counters and current load.
    pub fn metrics(&self) -> ServerMetrics {
        ServerMetrics::of(&self.shared)
    }

    /// Returns a view of the server that does not keep it running.
    pub fn observer(&self) -> ServerObserver {
        ServerObserver::new(&self.shared, &self.local)
    }

    /// Stops accepting, waits for running handlers and their replies, then closes. Returns the number of
    /// connections cut.
    ///
    /// Connections still open after `limit` are cut; [`Duration::MAX`] waits without limit. The addresses are free
    /// immediately, so a new server can listen during the shutdown. Load balancers must be told before the call if
    /// they need time to switch.
    ///
    /// Extended peers receive a request to start nothing new. A peer that then [leaves](crate::RouterInfo::leaves)
    /// loses nothing: packets it sent before the request arrived are served, within
    /// [`lame_duck`](ServerLimits::lame_duck). New packets of other peers are [refused](crate::Router::refuse), and
    /// their connections close when idle.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the server and cuts every connection.
    pub async fn shutdown(self, limit: Duration) -> usize {
        let shared = &self.shared;
        let since = Instant::now();
        shared.stop_accepting();
        let lame_duck = shared.limits.lame_duck.min(limit / 2);
        if !lame_duck.is_zero() {
            self.connections().iter().for_each(|connection| shared.retire(connection));
            // Peers still connected afterwards are drained below.
            let _ = timeout(lame_duck, shared.slots.wait_until_empty()).await;
        }
        shared.stop_serving();
        self.connections().iter().for_each(|connection| shared.retire(connection));
        // Ignore a timeout: the count of cut connections below reports it.
        let _ = timeout(limit.saturating_sub(since.elapsed()), shared.slots.wait_until_empty()).await;
        let left = shared.slots.len();
        shared.kill();
        // Only a handler that blocks its thread can outlast this wait.
        let _ = timeout(KILL_GRACE, shared.slots.wait_until_empty()).await;
        left
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.kill();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("local", &self.local_addr()).finish_non_exhaustive()
    }
}
