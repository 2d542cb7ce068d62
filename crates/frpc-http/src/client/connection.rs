//! One connection to a server, with HTTP/1.1 or HTTP/2 on it.

use std::{
    fmt,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::BytesMut;
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, timeout},
};

use super::{
    failures,
    outgoing::Outgoing,
    settings::{BoxIo, HttpSettings},
};
use crate::message::greeting;

/// A response, or why there is none. The request comes back if it was certainly not sent.
pub(super) type Responding =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<Outgoing>>>> + Send>>;

/// A connection that requests are made on.
pub(super) struct Connection {
    sender: Sender,
    traffic: Arc<Traffic>,
    /// The number of calls on it.
    pub(super) calls: AtomicUsize,
    /// The time at which there was a call on it last.
    used: Mutex<Instant>,
    /// The number of bytes that had come when it was made.
    read_at_start: u64,
    /// True once a call was given up, and nothing had come for [`SILENCE_MIN`] after a request.
    is_silent: AtomicBool,
}

enum Sender {
    /// The sender is away while a call is on the connection.
    Http1(Mutex<Option<http1::SendRequest<Outgoing>>>),
    Http2 {
        sender: http2::SendRequest<Outgoing>,
        streams_max: Arc<AtomicUsize>,
    },
}

/// The bytes that went over a connection.
pub(super) struct Traffic {
    written: AtomicU64,
    read: AtomicU64,
    /// The time of the last bytes that came, in microseconds since `begun`.
    read_at: AtomicU64,
    /// The time of the first request after those bytes, in the same way.
    asked_at: AtomicU64,
    begun: Instant,
    /// The size of the headers that the server takes, if it says so.
    head_len_max: OnceLock<usize>,
    /// Told of the first bytes from the server, and of the end of the connection.
    changed: Notify,
    end: OnceLock<String>,
    /// The words about a server whose first bytes are not of the version of HTTP that this side speaks.
    foreign: OnceLock<&'static str>,
}

impl Connection {
    /// Begins to speak HTTP/2 on a stream of bytes, and waits a while for the first word of the server.
    pub(super) async fn http2(io: BoxIo, settings: &HttpSettings) -> io::Result<Self> {
        let traffic = Arc::new(Traffic::new());
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(settings.stream_window)
            .initial_connection_window_size(settings.connection_window)
            .max_header_list_size(settings.headers_len_max)
            .keep_alive_interval(settings.keepalive.map(|(interval, _)| interval))
            .keep_alive_while_idle(settings.keepalive_while_idle);
        if let Some((_, timeout)) = settings.keepalive {
            builder.keep_alive_timeout(timeout);
        }
        let io =
            TokioIo::new(Counted { io, traffic: traffic.clone(), greeting: Some(BytesMut::new()), is_http2: true });
        let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        let streams_max = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
        let (told, ended) = (streams_max.clone(), traffic.clone());
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            let end = poll_fn(|cx| {
                let polled = connection.as_mut().poll(cx);
                // It may have been told of another number.
                told.store(connection.current_max_send_streams(), Ordering::Relaxed);
                polled
            });
            ended.end(end.await);
        });
        traffic.heard().await?;
        Ok(Self::new(Sender::Http2 { sender, streams_max }, traffic))
    }

    /// Begins to speak HTTP/1.1, in which the server says nothing before it is asked.
    pub(super) async fn http1(io: BoxIo, settings: &HttpSettings) -> io::Result<Self> {
        let traffic = Arc::new(Traffic::new());
        let io = TokioIo::new(Counted { io, traffic: traffic.clone(), greeting: None, is_http2: false });
        let mut builder = http1::Builder::new();
        builder.max_header_size(usize::try_from(settings.headers_len_max).unwrap_or(usize::MAX));
        let (mut sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        let ended = traffic.clone();
        tokio::spawn(async move { ended.end(connection.await) });
        sender.ready().await.map_err(|error| match traffic.foreign.get() {
            Some(foreign) => io::Error::new(io::ErrorKind::InvalidData, *foreign),
            None => io::Error::other(error),
        })?;
        Ok(Self::new(Sender::Http1(Mutex::new(Some(sender))), traffic))
    }

    fn new(sender: Sender, traffic: Arc<Traffic>) -> Self {
        let read_at_start = traffic.read.load(Ordering::Relaxed);
        let (calls, used) = (AtomicUsize::new(0), Mutex::new(Instant::now()));
        Self { sender, traffic, calls, used, read_at_start, is_silent: AtomicBool::new(false) }
    }

    /// Returns whether no further call is to be made on it: it is closed, or its server has fallen silent.
    pub(super) fn is_closed(&self) -> bool {
        if self.is_silent.load(Ordering::Relaxed) {
            return true;
        }
        match &self.sender {
            Sender::Http1(sender) => match &*sender.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(sender) => sender.is_closed(),
                None => self.traffic.end.get().is_some(),
            },
            Sender::Http2 { sender, .. } => sender.is_closed() || self.traffic.end.get().is_some(),
        }
    }

    /// Returns the number of calls that may be on it at once.
    pub(super) fn calls_max(&self) -> usize {
        match &self.sender {
            Sender::Http1(_) => 1,
            Sender::Http2 { streams_max, .. } => streams_max.load(Ordering::Relaxed),
        }
    }

    /// Returns how long there has been no call on it.
    pub(super) fn idle(&self) -> Duration {
        if self.calls.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Ends a call on it.
    pub(super) fn end_call(&self) {
        if self.calls.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
    }

    /// Returns whether the server said anything since the connection was made.
    pub(super) fn was_of_use(&self) -> bool {
        self.traffic.read.load(Ordering::Relaxed) > self.read_at_start
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2 { .. })
    }

    /// Returns the number of bytes that were written.
    pub(super) fn written(&self) -> u64 {
        self.traffic.written.load(Ordering::Relaxed)
    }

    /// Returns what the server speaks, if that is known to be something else than this side.
    pub(super) fn foreign(&self) -> Option<&'static str> {
        self.traffic.foreign.get().copied()
    }

    /// Returns the size of the headers that the server takes, if it says so.
    pub(super) fn head_len_max(&self) -> Option<usize> {
        self.traffic.head_len_max.get().copied()
    }

    /// Notes that a call was given up, or is over. The server may be gone without a word if nothing has come for long after a request:
    /// calls that are under way go on, and others are made on another connection.
    pub(super) fn call_is_over(&self) {
        let Traffic { asked_at, read_at, .. } = &*self.traffic;
        let asked_at = asked_at.load(Ordering::Relaxed);
        let silence = Duration::from_micros(self.traffic.now().saturating_sub(asked_at));
        if read_at.load(Ordering::Relaxed) < asked_at && silence >= SILENCE_MIN {
            self.is_silent.store(true, Ordering::Relaxed);
        }
    }

    /// Sends a request. `None` if the connection is in use, which it is not for one that holds its place.
    pub(super) fn send(&self, request: Request<Outgoing>) -> Option<(Responding, Returned)> {
        self.traffic.handle_request();
        match &self.sender {
            Sender::Http1(place) => {
                let mut sender = place.lock().unwrap_or_else(PoisonError::into_inner).take()?;
                let responding = Box::pin(sender.try_send_request(request));
                Some((responding, Returned(Some(sender))))
            }
            Sender::Http2 { sender, .. } => Some((Box::pin(sender.clone().try_send_request(request)), Returned(None))),
        }
    }

    /// Takes back what a call had of the connection. Returns what to wait for before there can be another call, if anything.
    pub(super) fn take_back(&self, returned: &mut Returned) -> Option<http1::SendRequest<Outgoing>> {
        let sender = returned.0.take()?;
        if !sender.is_ready() && !sender.is_closed() {
            return Some(sender);
        }
        self.put(sender);
        None
    }

    pub(super) fn put(&self, sender: http1::SendRequest<Outgoing>) {
        if let Sender::Http1(place) = &self.sender {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        }
    }
}

/// The sender of a connection of HTTP/1.1, which a call has until it is over.
pub(super) struct Returned(Option<http1::SendRequest<Outgoing>>);

impl Traffic {
    fn new() -> Self {
        Self {
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            read_at: AtomicU64::new(0),
            asked_at: AtomicU64::new(0),
            begun: Instant::now(),
            head_len_max: OnceLock::new(),
            foreign: OnceLock::new(),
            changed: Notify::new(),
            end: OnceLock::new(),
        }
    }

    /// Returns the microseconds since the connection began.
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Notes that a request is sent.
    fn handle_request(&self) {
        if self.asked_at.load(Ordering::Relaxed) <= self.read_at.load(Ordering::Relaxed) {
            self.asked_at.store(self.now(), Ordering::Relaxed);
        }
    }

    fn end(&self, outcome: hyper::Result<()>) {
        let end = match outcome {
            Ok(()) => "closed by the peer".to_owned(),
            Err(error) => failures::chain(&error),
        };
        let _ = self.end.set(end);
        self.changed.notify_one();
    }

    /// Waits for the first bytes of the server. One that says nothing for a while is believed to be slow.
    async fn heard(&self) -> io::Result<()> {
        let heard = async {
            while self.read.load(Ordering::Relaxed) == 0 && self.end.get().is_none() {
                self.changed.notified().await;
            }
        };
        let _ = timeout(SILENCE_BELIEVED, heard).await;
        if let Some(foreign) = self.foreign.get() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, *foreign));
        }
        match self.end.get() {
            None => Ok(()),
            Some(end) => {
                let text = format!("the peer does not speak HTTP/2, or expects TLS: {end}");
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
            }
        }
    }
}

const SILENCE_BELIEVED: Duration = Duration::from_millis(500);

/// The shortest time without a byte after a request at which a call that is given up says something about the connection.
const SILENCE_MIN: Duration = Duration::from_secs(10);

/// Counts what goes over a stream of bytes.
struct Counted {
    io: BoxIo,
    traffic: Arc<Traffic>,
    /// The first bytes of a server of HTTP/2, up to the end of its settings.
    greeting: Option<BytesMut>,
    is_http2: bool,
}

impl Counted {
    /// Reads the settings of the server.
    fn greet(&mut self, read: &[u8]) {
        let Some(seen) = &mut self.greeting else { return };
        seen.extend_from_slice(read);
        if let Some(greeting) = greeting::parse(seen) {
            if let Some(head_len_max) = greeting.head_len_max {
                let _ = self.traffic.head_len_max.set(head_len_max);
            }
            self.greeting = None;
        }
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = written {
            self.traffic.written.fetch_add(written as u64, Ordering::Relaxed);
        }
        written
    }
}

/// Returns what a server speaks whose first bytes are not of this version of HTTP.
fn foreign(first: &[u8], is_http2: bool) -> Option<&'static str> {
    match first {
        [b'H', b'T', b'T', b'P', ..] if is_http2 => Some("the server speaks HTTP/1.1, and no HTTP/2 here"),
        // The head of SETTINGS or of GOAWAY, for the whole connection.
        [0, _, _, 4 | 7, 0, 0, 0, 0, 0, ..] if !is_http2 => Some("the server speaks HTTP/2, and no HTTP/1.1 here"),
        [0x15, 3, ..] if is_http2 => Some("the server expects TLS, and no HTTP/2 here"),
        [0x15, 3, ..] => Some("the server expects TLS, and no HTTP/1.1 here"),
        _ => None,
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        self.greet(&buf.filled()[before..]);
        if read > 0 {
            self.traffic.read_at.store(self.traffic.now(), Ordering::Relaxed);
            if self.traffic.read.fetch_add(read as u64, Ordering::Relaxed) == 0 {
                if let Some(foreign) = foreign(&buf.filled()[before..], self.is_http2) {
                    let _ = self.traffic.foreign.set(foreign);
                }
                self.traffic.changed.notify_one();
            }
        }
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
