//! Other protocols at paths of an HTTP server.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use frpc::{Drain, Endpoint, Head, Metadata, WirePeer};
use frpc_websocket::WebSocket;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use tokio::time::Instant;

/// Another HTTP protocol at a path of [`Http`](crate::Http), with access to the services of the server.
///
/// ```
/// use frpc_http::{Http, Mount, MountContext};
/// use futures_util::future::{BoxFuture, FutureExt};
///
/// /// Says how many methods there are.
/// struct Count;
///
/// impl Mount for Count {
///     fn respond<'a>(
///         &'a self,
///         visit: MountContext,
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
    /// Answers a request of any method. The body is complete and decompressed, within the limits of the server.
    fn respond<'a>(&'a self, visit: MountContext, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>>;

    /// Returns the supported WebSocket subprotocols.
    ///
    /// If there are none, upgrades at this path are refused. If there are some, peers that ask for no subprotocol are
    /// accepted as well.
    fn subprotocols(&self) -> &[&'static str] {
        &[]
    }

    /// Serves a WebSocket until it ends. The server counts it as a connection until this future completes.
    fn websocket<'a>(&'a self, visit: MountContext, socket: WebSocket) -> BoxFuture<'a, ()> {
        let _ = (visit, socket);
        Box::pin(std::future::ready(()))
    }
}

/// The context of a request to a [`Mount`].
#[derive(Debug)]
#[non_exhaustive]
pub struct MountContext {
    /// The services of the server.
    pub endpoint: Endpoint,
    /// The other end of the connection, if known.
    pub peer: Option<WirePeer>,
    /// Request headers usable as metadata of calls, within [`metadata_len_max`](frpc::MessageSettings::metadata_len_max).
    pub metadata: Metadata,
    /// The timeout of each call, from the header `connect-timeout-ms`.
    pub time: Option<Duration>,
    /// The signal to leave the connection. `None` if another HTTP server runs these services.
    pub drain: Option<Drain>,
}

impl MountContext {
    /// Returns the head of a call made by this request: its peer, its metadata, and a deadline counted from now.
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

/// The mounts of a server, by path.
#[derive(Clone, Default)]
pub(crate) struct MountTable(Arc<Vec<(String, Arc<dyn Mount>)>>);

impl MountTable {
    pub(crate) fn add(&mut self, path: String, mount: impl Mount) {
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let mounts = Arc::make_mut(&mut self.0);
        mounts.retain(|(other, _)| *other != path);
        mounts.push((path, Arc::new(mount)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the mount at a path.
    pub(crate) fn at(&self, path: &str) -> Option<&Arc<dyn Mount>> {
        self.0.iter().find(|(at, _)| at == path).map(|(_, mount)| mount)
    }
}

impl fmt::Debug for MountTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(path, _)| path)).finish()
    }
}
