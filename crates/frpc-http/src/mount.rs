//! Something else than calls of our protocols, at a path of the wire.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use frpc::{Drain, Endpoint, Head, Metadata, Peer};
use frpc_websocket::WebSocket;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use tokio::time::Instant;

/// Another protocol on HTTP, at a path of [`Http`](crate::Http), with the services of the server at hand.
///
/// ```
/// use frpc_http::{Http, Mount, Visit};
/// use futures_util::future::{BoxFuture, FutureExt};
///
/// /// Says how many methods there are.
/// struct Count;
///
/// impl Mount for Count {
///     fn respond<'a>(
///         &'a self,
///         visit: Visit,
///         _request: http::Request<bytes::Bytes>,
///     ) -> BoxFuture<'a, http::Response<bytes::Bytes>> {
///         async move { http::Response::new(visit.endpoint.methods().count().to_string().into()) }.boxed()
///     }
/// }
///
/// let http = Http::new().mount("/count", Count);
/// # let _ = http;
/// ```
pub trait Mount: Send + Sync + 'static {
    /// Answers a request of any method. Its body has been read, and unpacked if it was compressed, within the limits of the wire.
    fn respond<'a>(&'a self, visit: Visit, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>>;

    /// Returns the sub-protocols of WebSocket that it speaks. Without any, it speaks none, and upgrades at its path are refused. With
    /// some, peers that ask for none are let in as well.
    fn subprotocols(&self) -> &[&'static str] {
        &[]
    }

    /// Speaks WebSocket, until the connection is over. It counts among the connections of the server until this returns.
    fn websocket<'a>(&'a self, visit: Visit, socket: WebSocket) -> BoxFuture<'a, ()> {
        let _ = (visit, socket);
        Box::pin(std::future::ready(()))
    }
}

/// The circumstances of a request to a [`Mount`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Visit {
    /// The services of the server.
    pub endpoint: Endpoint,
    /// The other end of the connection, if it is known.
    pub peer: Option<Peer>,
    /// The headers of the request that are metadata of calls, within [`metadata_len_max`](frpc::ServerBuilder::metadata_len_max).
    pub metadata: Metadata,
    /// The time that the caller gives each call: the header `connect-timeout-ms`.
    pub time: Option<Duration>,
    /// Tells when the server shuts down. Absent on a server of HTTP that somebody else runs.
    pub drain: Option<Drain>,
}

impl Visit {
    /// Returns the head of a call that the request makes: its peer, metadata, and deadline from now on.
    pub fn head(&self) -> Head {
        let mut head = Head::default();
        if !self.metadata.is_empty() {
            *head.metadata_mut() = self.metadata.clone();
        }
        if let Some(at) = self.time.and_then(|time| Instant::now().checked_add(time)) {
            head.set_deadline(at.into_std());
        }
        if let Some(peer) = &self.peer {
            head.set_peer(peer);
        }
        head
    }
}

/// The mounts of a wire, by path.
#[derive(Clone, Default)]
pub(crate) struct Mounts(Vec<(String, Arc<dyn Mount>)>);

impl Mounts {
    pub(crate) fn add(&mut self, path: String, mount: impl Mount) {
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        self.0.retain(|(other, _)| *other != path);
        self.0.push((path, Arc::new(mount)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what is at a path.
    pub(crate) fn at(&self, path: &str) -> Option<&Arc<dyn Mount>> {
        self.0.iter().find(|(at, _)| at == path).map(|(_, mount)| mount)
    }
}

impl fmt::Debug for Mounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(path, _)| path)).finish()
    }
}
