//! Other protocols on the port of a server, told apart by the first bytes.

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

use crate::net::{Raw, Wire};

/// Another protocol on the port of a [`Server`](crate::Server), such as HTTP for health checks beside packets.
///
/// Before anything is read as a packet, the server asks its protocols about the first bytes of a connection, in the order in
/// which they were [added](crate::ServerBuilder::protocol). A connection that none of them recognizes is frisbee's if it begins with
/// a zero byte, as packets do unless their peer writes headers of 8 bytes and begins with an id of 256 or more: such peers need a port
/// without other protocols. Any other connection is closed, and the log is told at debug level what it began with.
///
/// ```
/// use frisbee::{Drain, Protocol, Raw, Recognized, Server};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// /// Tells load balancers that the server is there.
/// struct Health;
///
/// impl Protocol for Health {
///     fn recognize(&self, first: &[u8], _alpn: Option<&[u8]>) -> Recognized {
///         Recognized::by_prefix(first, b"GET ")
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
    /// Decides by the first bytes of a connection whether it speaks this protocol. Asked again with more bytes as long as the
    /// answer is [`Recognized::More`]. `alpn` is what a TLS handshake agreed on, if anything: then `first` may be empty.
    fn recognize(&self, first: &[u8], alpn: Option<&[u8]>) -> Recognized;

    /// Returns the names by which TLS handshakes of the server offer this protocol, behind those of its configuration.
    fn alpn(&self) -> &[&'static [u8]] {
        &[]
    }

    /// Serves a connection that was recognized, from its first byte on. It counts among the connections of the server until
    /// this returns, or until packets end on what it [left to frisbee](Drain::leave_to_frisbee). The future is dropped when the
    /// server is. On an [engine](crate::Engine) with io_uring the socket is on the ring of the thread that calls this, unless it has
    /// TLS, and works on no other thread.
    fn serve(&self, socket: Raw, drain: Drain) -> impl Future<Output = ()> + Send;
}

/// The answer of a [`Protocol`] about the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognized {
    /// The connection speaks something else.
    No,
    /// More bytes are needed to tell. No more than 64 are given.
    More,
    /// The connection speaks this protocol.
    Yes,
}

impl Recognized {
    /// Recognizes a protocol whose connections all begin with these bytes.
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

/// Tells a [`Protocol`] that the server is [shutting down](crate::Server::shutdown), so that it ends its connections once what
/// is under way is done. Takes back connections on which packets follow.
#[derive(Clone)]
pub struct Drain {
    draining: CancellationToken,
    left: Arc<Mutex<Option<Wire>>>,
}

impl Drain {
    pub(super) fn new(draining: CancellationToken) -> Self {
        Self { draining, left: Arc::default() }
    }

    /// Has the server speak frisbee on a stream that the protocol made of its socket, such as the messages of a WebSocket, as
    /// soon as [`serve`](Protocol::serve) returns. To the server it is the same connection: what the peer proved in its
    /// handshake and all limits go with it. If this is called again before that, the stream of the last call is served.
    pub fn leave_to_frisbee(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        *self.left() = Some(Wire::Other(Box::new(stream)));
    }

    /// Returns the stream on which packets follow, if there is one.
    pub(super) fn take_left(&self) -> Option<Wire> {
        self.left().take()
    }

    fn left(&self) -> MutexGuard<'_, Option<Wire>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the server is shutting down.
    pub fn is_requested(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Waits until the server is shutting down.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn requested(&self) {
        self.draining.cancelled().await;
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("is_requested", &self.is_requested()).finish_non_exhaustive()
    }
}

/// The protocols of a server besides its own, in the order in which they are asked.
#[derive(Clone, Default)]
pub(super) struct Protocols(Arc<Vec<Arc<dyn AnyProtocol>>>);

/// [`Protocol`] without its type.
pub(super) trait AnyProtocol: Send + Sync {
    fn recognize(&self, first: &[u8], alpn: Option<&[u8]>) -> Recognized;
    fn alpn(&self) -> &[&'static [u8]];
    fn serve(&self, socket: Raw, drain: Drain) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl<P: Protocol> AnyProtocol for P {
    fn recognize(&self, first: &[u8], alpn: Option<&[u8]>) -> Recognized {
        Protocol::recognize(self, first, alpn)
    }

    fn alpn(&self) -> &[&'static [u8]] {
        Protocol::alpn(self)
    }

    fn serve(&self, socket: Raw, drain: Drain) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Protocol::serve(self, socket, drain))
    }
}

impl Protocols {
    pub(super) fn add(&mut self, protocol: impl Protocol) {
        Arc::make_mut(&mut self.0).push(Arc::new(protocol));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of all protocols, as TLS handshakes offer them.
    pub(super) fn alpn(&self) -> Vec<&[u8]> {
        self.0.iter().flat_map(|protocol| protocol.alpn()).copied().collect()
    }

    /// Returns the protocol of a connection, or `None` for frisbee's own, and what was read to find out.
    pub(super) async fn recognize(
        &self,
        wire: &mut Wire,
        alpn: Option<&[u8]>,
        limit: Duration,
    ) -> io::Result<(Option<&dyn AnyProtocol>, BytesMut)> {
        let mut first = BytesMut::new();
        let recognizing = async {
            loop {
                let mut needs_more = false;
                for protocol in &*self.0 {
                    match protocol.recognize(&first, alpn) {
                        Recognized::Yes => return io::Result::Ok(Some(&**protocol)),
                        Recognized::More => needs_more = true,
                        Recognized::No => {}
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

impl fmt::Debug for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Protocols").field(&self.0.len()).finish()
    }
}

/// The most that is read to tell protocols apart.
const FIRST_LEN_MAX: usize = 64;
