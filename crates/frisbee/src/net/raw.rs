//! The byte stream of a connection after frisbee has left it.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::{net::TcpStream, runtime::Handle};
use tokio_util::io::poll_read_buf;

use super::{flow::FlowState, frames::FrameCounts, secure::PeerIdentity, wire::IoStream};
use crate::{
    Address,
    proto::{Counters, HeaderFormat, LeftoverFrames},
};

/// The byte stream below a connection, including bytes already read and not consumed.
///
/// Reading returns the unconsumed bytes first. Returned by [`Connection::takeover`](crate::Connection::takeover).
pub struct Raw {
    wire: IoStream,
    unread: Bytes,
    format: HeaderFormat,
    /// `true` if the peer adds checksums to its frames.
    has_checksums: bool,
    /// `true` while heartbeats at the start of the input are dropped.
    skipping: bool,
    local: Address,
    peer: Address,
    /// The identity proved by the peer in a TLS handshake, for connections passed to another protocol.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS nobody proves anything"))]
    identity: PeerIdentity,
    /// The counters of a connection passed to another protocol.
    traffic: Option<Arc<StreamTraffic>>,
}

/// The bytes of a connection of another protocol, and its reads and writes.
#[derive(Default)]
pub(crate) struct StreamTraffic {
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    batches_in: AtomicU64,
    batches_out: AtomicU64,
    /// Reads the frames, if the protocol has reported them.
    frames: OnceLock<Box<dyn Fn() -> FrameCounts + Send + Sync>>,
    /// Reads the streams and the credit in the same way.
    flow: OnceLock<Box<dyn Fn() -> FlowState + Send + Sync>>,
}

impl StreamTraffic {
    pub(crate) fn counters(&self) -> Counters {
        let [bytes_in, bytes_out, batches_in, batches_out] =
            [&self.bytes_in, &self.bytes_out, &self.batches_in, &self.batches_out].map(|count| count.load(Relaxed));
        Counters { bytes_in, bytes_out, batches_in, batches_out, ..Counters::default() }
    }

    pub(crate) fn frames(&self) -> FrameCounts {
        self.frames.get().map(|read| read()).unwrap_or_default()
    }

    pub(crate) fn flow(&self) -> Option<FlowState> {
        self.flow.get().map(|read| read())
    }
}

/// Counts a read or a write. The socket is borrowed mutably, so no increment is lost.
fn count(bytes: &AtomicU64, batches: &AtomicU64, len: usize) {
    bytes.store(bytes.load(Relaxed) + len as u64, Relaxed);
    batches.store(batches.load(Relaxed) + u64::from(len > 0), Relaxed);
}

impl Raw {
    pub(crate) fn new(wire: IoStream, unread: Bytes, format: HeaderFormat, local: Address, peer: Address) -> Self {
        Self { wire, unread, format, has_checksums: false, skipping: false, local, peer, identity: None, traffic: None }
    }

    /// Sets whether heartbeats in the input are followed by checksums.
    pub(crate) fn with_checksums(self, has_checksums: bool) -> Self {
        Self { has_checksums, ..self }
    }

    /// Sets the identity proved by the peer.
    pub(crate) fn with_identity(self, identity: PeerIdentity) -> Self {
        Self { identity, ..self }
    }

    /// Sets the counters of its bytes. Those read before count as received.
    pub(crate) fn with_traffic(self, traffic: Arc<StreamTraffic>) -> Self {
        count(&traffic.bytes_in, &traffic.batches_in, self.unread.len());
        Self { traffic: Some(traffic), ..self }
    }

    /// Adds the frames of this connection to the [metrics of its server](crate::ServerMetrics::frames).
    ///
    /// For the connections of a [`Protocol`](crate::Protocol). `read` is called for each snapshot, and once at the end.
    pub fn report_frames(&self, read: impl Fn() -> FrameCounts + Send + Sync + 'static) {
        if let Some(traffic) = &self.traffic {
            let _ = traffic.frames.set(Box::new(read));
        }
    }

    /// Adds the streams and the credit of this connection to the [metrics of its server](crate::ServerMetrics::flow).
    ///
    /// For the connections of a [`Protocol`](crate::Protocol). `read` is called for each snapshot.
    pub fn report_flow(&self, read: impl Fn() -> FlowState + Send + Sync + 'static) {
        if let Some(traffic) = &self.traffic {
            let _ = traffic.flow.set(Box::new(read));
        }
    }

    fn count_written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Poll::Ready(Ok(len)), Some(traffic)) = (&written, &self.traffic) {
            count(&traffic.bytes_out, &traffic.batches_out, *len);
        }
        written
    }

    /// Returns the identity proved by the peer.
    #[cfg(feature = "tls")]
    pub(crate) fn identity(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        self.identity.as_ref().map(|proof| &*proof.0)
    }

    /// Moves the socket to the current runtime. The runtime of the connection, `former`, may end earlier.
    pub(crate) fn onto_current_runtime(self, former: &Handle) -> io::Result<Self> {
        match Handle::try_current() {
            Ok(current) if current.id() != former.id() => Ok(Self { wire: self.wire.onto_current_runtime()?, ..self }),
            _ => Ok(self),
        }
    }

    /// Drops the PINGs and PONGs sent by the peer before it left packet mode, up to the first other bytes.
    ///
    /// The raw protocol must not start like a heartbeat. A nonzero first byte is safe.
    pub fn skip_heartbeats(&mut self) {
        self.skipping = true;
    }

    /// Returns the bytes already read and not consumed.
    pub fn unread(&self) -> &Bytes {
        &self.unread
    }

    /// Puts back bytes returned by the last read. The next read returns them first.
    pub fn put_back(&mut self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        self.unread =
            if self.unread.is_empty() { bytes } else { [bytes, std::mem::take(&mut self.unread)].concat().into() };
    }

    /// Returns this side's address.
    pub fn local_addr(&self) -> &Address {
        &self.local
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> &Address {
        &self.peer
    }

    /// Returns `true` if the peer has closed its side, or the connection is lost, after bytes not read yet.
    ///
    /// For protocols that stop reading while they are busy. Always `false` with TLS, in memory and on io_uring.
    pub fn is_read_closed(&self) -> bool {
        self.wire.is_read_closed()
    }

    /// Returns a plain TCP socket and the bytes already read from it, or `Err(self)` for other streams.
    ///
    /// Does not skip heartbeats. Under an io_uring engine, a connection passed to a [`Protocol`](crate::Protocol)
    /// has no TCP socket to return.
    #[allow(clippy::result_large_err, reason = "the error is the connection, unharmed")]
    pub fn into_tcp(self) -> Result<(TcpStream, Bytes), Self> {
        match self.wire {
            IoStream::Tcp(socket) => Ok((socket, self.unread)),
            wire => Err(Self { wire, ..self }),
        }
    }

    /// Reads until the end of the heartbeats is known.
    fn poll_skip(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.skipping {
            match LeftoverFrames::measure(self.format, self.has_checksums, &self.unread) {
                LeftoverFrames::Before { len } => {
                    self.unread.advance(len);
                    self.skipping = false;
                }
                LeftoverFrames::Undecided { len } => {
                    self.unread.advance(len);
                    let mut more = BytesMut::with_capacity(SKIP_READ_LEN);
                    more.extend_from_slice(&self.unread);
                    if ready!(poll_read_buf(Pin::new(&mut self.wire), cx, &mut more))? == 0 {
                        self.skipping = false;
                    }
                    self.unread = more.freeze();
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Raw {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_skip(cx))?;
        if self.unread.is_empty() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.wire).poll_read(cx, buf))?;
            if let Some(traffic) = &self.traffic {
                count(&traffic.bytes_in, &traffic.batches_in, buf.filled().len() - before);
            }
            return Poll::Ready(Ok(()));
        }
        let len = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Raw {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write(cx, buf);
        self.count_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write_vectored(cx, slices);
        self.count_written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").field("peer", &self.peer).field("unread", &self.unread.len()).finish_non_exhaustive()
    }
}

/// Room for several heartbeats and the start of the data after them.
const SKIP_READ_LEN: usize = 4 * 1024;
