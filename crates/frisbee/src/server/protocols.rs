//! Other protocols on the port of a server, detected by the first bytes.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    driver::{HandlerPermit, HandlerPermits},
    net::{IoStream, Raw},
};

/// Another protocol on the port of a [`Server`](crate::Server), for example HTTP for health checks.
///
/// Before it reads packets, the server shows the first bytes of a connection to its protocols, in the order of
/// their [registration](crate::ServerBuilder::protocol). An unrecognized connection speaks frisbee if its first
/// byte is zero. All packets start with a zero byte, with one exception: headers of 8 bytes with an id of 256 or
/// more. Peers with such headers need a port without other protocols. Any other connection is closed, and its
/// first bytes are logged at debug level.
///
/// ```
/// use frisbee::{Drain, Protocol, Raw, ProtocolMatch, Server};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// /// Answers the health checks of load balancers.
/// struct Health;
///
/// impl Protocol for Health {
///     fn recognize(&self, first: &[u8], _alpn: Option<&[u8]>) -> ProtocolMatch {
///         ProtocolMatch::by_prefix(first, b"GET ")
///     }
///
///     async fn serve(&self, mut socket: Raw, _drain: Drain) {
///         let mut request = [0; 1024];
///         if socket.read(&mut request).await.is_ok() {
///             let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
///         }
///     }
/// }
///
/// let server = Server::builder(()).protocol(Health);
/// # let _ = server;
/// ```
pub trait Protocol: Send + Sync + 'static {
    /// Decides from the first bytes of a connection whether it speaks this protocol.
    ///
    /// Called again with more bytes after [`ProtocolMatch::More`]. `alpn` is the protocol negotiated in the TLS
    /// handshake, if any; `first` may then be empty.
    fn recognize(&self, first: &[u8], alpn: Option<&[u8]>) -> ProtocolMatch;

    /// Returns the ALPN names of this protocol, offered after those of the server's TLS configuration.
    fn alpn(&self) -> &[&'static [u8]] {
        &[]
    }

    /// Returns the name shown in [lists of connections](crate::ConnectionInfo::protocol).
    fn name(&self) -> &'static str {
        "other"
    }

    /// Serves a recognized connection, starting with its first byte.
    ///
    /// The connection counts toward the server's limit until this returns, or until the end of packets on a stream
    /// [passed back](Drain::leave_to_frisbee). Dropping the server drops the future. With an io_uring
    /// [engine](crate::Engine), a socket without TLS is on the ring of the calling thread and works on no other
    /// thread.
    fn serve(&self, socket: Raw, drain: Drain) -> impl Future<Output = ()> + Send;
}

/// The decision of a [`Protocol`] about the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolMatch {
    /// The connection speaks another protocol.
    No,
    /// The decision needs more bytes. At most 64 are available.
    More,
    /// The connection speaks this protocol.
    Yes,
}

impl ProtocolMatch {
    /// Recognizes a protocol by a fixed prefix of all its connections.
    pub fn by_prefix(first: &[u8], prefix: &[u8]) -> Self {
        if first.starts_with(prefix) {
            Self::Yes
        } else if prefix.starts_with(first) {
            Self::More
        } else {
            Self::No
        }
    }
}

/// The signal of a server to leave a connection, for a [`Protocol`]: the server shuts down, or the connection has reached
/// [`connection_age_max`](crate::ServerLimits::connection_age_max). Also takes back connections to be served as frisbee.
///
/// After the signal, a protocol should finish its work in flight and close its connections.
#[derive(Clone)]
pub struct Drain {
    draining: CancellationToken,
    left: Arc<Mutex<Option<IoStream>>>,
    permits: Arc<HandlerPermits>,
}

impl Drain {
    pub(super) fn new(draining: CancellationToken, permits: Arc<HandlerPermits>) -> Self {
        Self { draining, left: Arc::default(), permits }
    }

    /// Makes the server speak frisbee on `stream` after [`serve`](Protocol::serve) returns.
    ///
    /// `stream` is typically built on the protocol's socket, such as the messages of a WebSocket. For the server,
    /// it is the same connection: the peer's identity from the handshake and all limits apply. A second call
    /// replaces the stream.
    pub fn leave_to_frisbee(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        *self.left() = Some(IoStream::Other(Box::new(stream)));
    }

    /// Returns the stream to serve as frisbee, if any.
    pub(super) fn take_left(&self) -> Option<IoStream> {
        self.left().take()
    }

    fn left(&self) -> MutexGuard<'_, Option<IoStream>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the server allows one more handler: [`ServerLimits::handlers_max`](crate::ServerLimits::handlers_max)
    /// and [`Dispatch::Limited`](crate::Dispatch::Limited), which count the handlers of all protocols.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up its place in the queue.
    pub async fn handler_permit(&self) -> HandlerPermit {
        HandlerPermit::take(&self.permits).await
    }

    /// Returns a permit if the server allows one more handler now, and nothing waits for one.
    pub fn try_handler_permit(&self) -> Option<HandlerPermit> {
        HandlerPermit::try_take(&self.permits)
    }

    /// Returns `true` once the connection should be left.
    pub fn is_requested(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Waits until the connection should be left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn requested(&self) {
        self.draining.cancelled().await;
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("is_requested", &self.is_requested()).finish_non_exhaustive()
    }
}

/// The additional protocols of a server, in the order of their decisions.
#[derive(Clone, Default)]
pub(super) struct ProtocolList(Arc<Vec<Arc<dyn AnyProtocol>>>);

/// The object-safe form of [`Protocol`].
pub(super) trait AnyProtocol: Send + Sync {
    fn recognize(&self, first: &[u8], alpn: Option<&[u8]>) -> ProtocolMatch;
    fn alpn(&self) -> &[&'static [u8]];
    fn name(&self) -> &'static str;
    fn serve(&self, socket: Raw, drain: Drain) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl<P: Protocol> AnyProtocol for P {
    fn recognize(&self, first: &[u8], alpn: Option<&[u8]>) -> ProtocolMatch {
        Protocol::recognize(self, first, alpn)
    }

    fn alpn(&self) -> &[&'static [u8]] {
        Protocol::alpn(self)
    }

    fn name(&self) -> &'static str {
        Protocol::name(self)
    }

    fn serve(&self, socket: Raw, drain: Drain) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Protocol::serve(self, socket, drain))
    }
}

impl ProtocolList {
    pub(super) fn add(&mut self, protocol: impl Protocol) {
        Arc::make_mut(&mut self.0).push(Arc::new(protocol));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ALPN names of all protocols.
    pub(super) fn alpn(&self) -> Vec<&[u8]> {
        self.0.iter().flat_map(|protocol| protocol.alpn()).copied().collect()
    }

    /// Returns the protocol that recognized a connection, if any, and the bytes read for the decision.
    pub(super) async fn recognize(
        &self,
        wire: &mut IoStream,
        alpn: Option<&[u8]>,
        limit: Duration,
    ) -> io::Result<(Option<&Arc<dyn AnyProtocol>>, BytesMut)> {
        let mut first = BytesMut::new();
        let recognizing = async {
            loop {
                let mut needs_more = false;
                for protocol in &*self.0 {
                    match protocol.recognize(&first, alpn) {
                        ProtocolMatch::Yes => return io::Result::Ok(Some(protocol)),
                        ProtocolMatch::More => needs_more = true,
                        ProtocolMatch::No => {}
                    }
                }
                if !needs_more || first.len() >= FIRST_LEN_MAX {
                    return Ok(None);
                }
                first.reserve(FIRST_LEN_MAX - first.len());
                if wire.read_buf(&mut first).await? == 0 {
                    return Ok(None);
                }
            }
        };
        let recognized = timeout(limit, recognizing).await;
        let recognized = recognized.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        Ok((recognized, first))
    }
}

impl fmt::Debug for ProtocolList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Protocols").field(&self.0.len()).finish()
    }
}

/// The most bytes read for the decision.
const FIRST_LEN_MAX: usize = 64;
