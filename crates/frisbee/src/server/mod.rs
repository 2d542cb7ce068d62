//! Accepting connections and giving each to a router, until told to stop.

mod accept;
mod builder;
mod protocols;
mod retirement;
mod serve;
mod shared;
mod slot;
mod starting;
mod threads;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout},
};

use self::shared::{KILL_GRACE, ServerShared};
pub use self::{
    builder::ServerBuilder,
    protocols::{Drain, Protocol, Recognized},
};
use crate::{Address, Connection, Engine, net::Wire, proto::Counters};

/// A server that is running. Dropping it frees its address and cuts every connection; [`shutdown`](Self::shutdown) ends
/// it gently.
///
/// ```
/// use std::time::Duration;
///
/// use frisbee::{Client, Operation, Packet, Server, Table};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// const ECHO: Operation = Operation::new(20).unwrap();
/// let router = Table::new().on(ECHO, async |packet: Packet| packet);
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
    /// At least one.
    local: Vec<Address>,
}

impl Server {
    /// Returns the address it listens on, with the port that was really bound: the first of several.
    pub fn local_addr(&self) -> &Address {
        &self.local[0]
    }

    /// Returns all addresses it listens on, in the order given to [`bind`](ServerBuilder::bind).
    pub fn local_addrs(&self) -> &[Address] {
        &self.local
    }

    /// Returns the engine that serves it: the one that [`Engine::Auto`] chose, if that was asked for.
    pub fn engine(&self) -> Engine {
        self.shared.engine
    }

    /// Serves a stream of the user's own, on the current tokio runtime. TLS comes on top if it is configured.
    pub fn attach(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.attach_from(stream, Address::Unnamed);
    }

    /// Serves a stream of the user's own as [`attach`](Self::attach) does, and takes this for the address of the peer:
    /// what an accept, a proxy or a tunnel told.
    pub fn attach_from(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: impl Into<Address>) {
        self.shared.clone().admit(Wire::Other(Box::new(stream)), self.local_addr().clone(), peer.into());
    }

    /// Returns the connections that are open.
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.slots.connections()
    }

    /// Returns what the server did so far and is doing now.
    pub fn metrics(&self) -> ServerMetrics {
        let shared = &self.shared;
        let (connections, past, open) = shared.slots.snapshot();
        let mut metrics = ServerMetrics {
            connections,
            accepted: shared.accepted.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
            handshakes_failed: shared.handshakes_failed.load(Ordering::Relaxed),
            counters: past,
            outbox_len: 0,
            handlers: 0,
        };
        for connection in open {
            let one = connection.metrics();
            metrics.counters += one.counters;
            metrics.outbox_len += one.outbox_len;
            metrics.handlers += one.handlers;
        }
        metrics
    }

    /// Stops accepting, lets the handlers under way finish and their replies arrive, then closes. Any left after
    /// `limit` is cut; [`Duration::MAX`] waits as long as it takes. Returns how many connections that were.
    ///
    /// The addresses are free at once, so that the next server can listen while this one ends. Those who need time to
    /// learn that they should connect elsewhere, such as load balancers, have to get it before the shutdown.
    ///
    /// Extended peers are asked to begin nothing new here. Those that then [leave by themselves](crate::Router::leaves) lose
    /// nothing: what they had sent by the time they heard of it is served, for as long as
    /// [`lame_duck`](ServerBuilder::lame_duck) allows. From all others, whatever arrives from now on is
    /// [refused](crate::Router::refuse), and their connections close as soon as nothing is under way.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so is the server, and every connection is cut.
    pub async fn shutdown(self, limit: Duration) -> usize {
        let shared = &self.shared;
        let since = Instant::now();
        shared.stop_accepting();
        let lame_duck = shared.retirement.lame_duck.min(limit / 2);
        if !lame_duck.is_zero() {
            self.connections().iter().for_each(|connection| shared.retire(connection));
            // Those who are left are told below that the time is up.
            let _ = timeout(lame_duck, shared.slots.wait_until_empty()).await;
        }
        shared.stop_serving();
        self.connections().iter().for_each(|connection| shared.retire(connection));
        // The count below shows if it was enough.
        let _ = timeout(limit.saturating_sub(since.elapsed()), shared.slots.wait_until_empty()).await;
        let left = shared.slots.len();
        shared.kill();
        // Only a handler that blocks its thread can still be there after this.
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

/// A snapshot of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerMetrics {
    /// Connections open now, handshakes included.
    pub connections: usize,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections closed at once because there were too many.
    pub refused: u64,
    /// TLS handshakes that failed or took too long.
    pub handshakes_failed: u64,
    /// Packets and bytes that went through all connections, past and present.
    pub counters: Counters,
    /// Bytes that wait to be written.
    pub outbox_len: usize,
    /// Handlers under way that were not ready at once.
    pub handlers: usize,
}
