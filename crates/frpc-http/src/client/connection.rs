//! A connection to a server, over HTTP/1.1 or HTTP/2.

#[cfg(feature = "http2")]
use std::task::Waker;
use std::{
    fmt, io, mem,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
#[cfg(feature = "http2")]
use frpc::frisbee::{FlowState, FrameCounts};
use frpc::{client::FrameMeter, frisbee::ConnectionMetrics};
use http::{Request, uri::Authority};
use hyper::client::conn::http1;
#[cfg(not(feature = "http2"))]
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, Sleep, sleep, timeout},
};

#[cfg(feature = "http2")]
use super::http2::{Http2Request, Http2Sender, PlainResponse, ShortCall, ShortResponse};
use super::{
    failures,
    incoming::PendingResponse,
    outgoing::OutgoingBody,
    settings::{BoxIo, ClientSettings},
};
#[cfg(feature = "http2")]
use crate::http2::{add_flow, add_frames};
use crate::message::greeting;

/// A connection for requests.
pub(super) struct HttpConnection {
    sender: RequestSender,
    traffic: Arc<TrafficMonitor>,
    /// The number of calls on the connection.
    calls: AtomicUsize,
    /// The end of the latest call.
    used: Mutex<Instant>,
    /// The number of bytes received before the first call.
    read_at_start: u64,
    /// `true` after a call was given up while the server had sent nothing for [`SILENCE_MIN`] after a request.
    is_silent: AtomicBool,
}

enum RequestSender {
    /// `None` while a call uses the connection.
    Http1(Mutex<Option<http1::SendRequest<OutgoingBody>>>),
    #[cfg(feature = "http2")]
    Http2(Http2Sender),
    #[cfg(not(feature = "http2"))]
    Http2 { sender: http2::SendRequest<OutgoingBody>, streams_max: Arc<AtomicUsize> },
}

/// Counters and events of the bytes on a connection.
pub(super) struct TrafficMonitor {
    written: AtomicU64,
    read: AtomicU64,
    /// The time of the latest received bytes, in microseconds since `begun`.
    read_at: AtomicU64,
    /// The time of the first request after those bytes, in the same unit.
    asked_at: AtomicU64,
    begun: Instant,
    /// The header size limit announced by the server, if any.
    head_len_max: OnceLock<usize>,
    /// Notified at the first bytes from the server and at the end of the connection.
    changed: Notify,
    end: OnceLock<String>,
    /// The protocol of the server, if its first bytes do not belong to the expected HTTP version.
    foreign: OnceLock<&'static str>,
}

impl HttpConnection {
    /// Starts HTTP/2 on a byte stream, and waits a short time for the first bytes of the server.
    #[cfg(feature = "http2")]
    pub(super) async fn http2(
        io: BoxIo,
        settings: &ClientSettings,
        is_secure: bool,
        authority: &Authority,
        message_len_max: usize,
        frames: &FrameMeter,
    ) -> io::Result<Self> {
        let traffic = Arc::new(TrafficMonitor::new());
        let io = MonitoredStream {
            io,
            traffic: traffic.clone(),
            greeting: Some(BytesMut::new()),
            is_http2: true,
            silence: SilenceTimer::new(None),
        };
        let (sender, connection) = {
            let plain = PlainResponse::new(settings.format, message_len_max);
            Http2Sender::new(io, settings, is_secure, authority.clone(), plain)
        };
        let (ended, counters) = (traffic.clone(), sender.frames().clone());
        let report = frames.report(move || {
            let mut counts = FrameCounts::default();
            add_frames(&mut counts, &counters);
            counts
        });
        tokio::spawn(async move {
            ended.end(connection.await);
            drop(report);
        });
        traffic.wait_for_first_bytes().await?;
        Ok(Self::new(RequestSender::Http2(sender), traffic))
    }

    /// Starts HTTP/2 on a byte stream, and waits a short time for the first bytes of the server.
    #[cfg(not(feature = "http2"))]
    pub(super) async fn http2(
        io: BoxIo,
        settings: &ClientSettings,
        _: bool,
        _: &Authority,
        _: usize,
        _: &FrameMeter,
    ) -> io::Result<Self> {
        use std::{future::poll_fn, pin::pin};

        use hyper_util::rt::{TokioExecutor, TokioTimer};

        let traffic = Arc::new(TrafficMonitor::new());
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(settings.stream_window)
            .initial_connection_window_size(settings.connection_window)
            .max_header_list_size(settings.headers_len_max)
            .keep_alive_interval(settings.keepalive_interval)
            .keep_alive_timeout(settings.keepalive_timeout)
            .keep_alive_while_idle(settings.keepalive_while_idle);
        let io = TokioIo::new(MonitoredStream {
            io,
            traffic: traffic.clone(),
            greeting: Some(BytesMut::new()),
            is_http2: true,
            silence: SilenceTimer::new(None),
        });
        let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        let streams_max = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
        let (told, ended) = (streams_max.clone(), traffic.clone());
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            let end = poll_fn(|cx| {
                let polled = connection.as_mut().poll(cx);
                // The server may have changed its stream limit.
                told.store(connection.current_max_send_streams(), Ordering::Relaxed);
                polled
            });
            ended.end(end_text(end.await));
        });
        traffic.wait_for_first_bytes().await?;
        Ok(Self::new(RequestSender::Http2 { sender, streams_max }, traffic))
    }

    /// Starts HTTP/1.1 on a byte stream. The server sends nothing before the first request.
    pub(super) async fn http1(io: BoxIo, settings: &ClientSettings) -> io::Result<Self> {
        let traffic = Arc::new(TrafficMonitor::new());
        let silence = SilenceTimer::new(settings.http1_silence_max);
        let io = MonitoredStream { io, traffic: traffic.clone(), greeting: None, is_http2: false, silence };
        let io = TokioIo::new(io);
        let mut builder = http1::Builder::new();
        builder.max_header_size(usize::try_from(settings.headers_len_max).unwrap_or(usize::MAX));
        let (mut sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        let ended = traffic.clone();
        tokio::spawn(async move { ended.end(end_text(connection.await)) });
        sender.ready().await.map_err(|error| match traffic.foreign.get() {
            Some(foreign) => io::Error::new(io::ErrorKind::InvalidData, *foreign),
            None => io::Error::other(error),
        })?;
        Ok(Self::new(RequestSender::Http1(Mutex::new(Some(sender))), traffic))
    }

    fn new(sender: RequestSender, traffic: Arc<TrafficMonitor>) -> Self {
        let read_at_start = traffic.read.load(Ordering::Relaxed);
        let (calls, used) = (AtomicUsize::new(0), Mutex::new(Instant::now()));
        Self { sender, traffic, calls, used, read_at_start, is_silent: AtomicBool::new(false) }
    }

    /// Returns `true` if the connection must not be used for new calls: it is closed, or its server stopped responding.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        if self.is_silent.load(Ordering::Relaxed) {
            return true;
        }
        match &self.sender {
            RequestSender::Http1(sender) => match &*sender.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(sender) => sender.is_closed(),
                None => self.traffic.end.get().is_some(),
            },
            #[cfg(feature = "http2")]
            RequestSender::Http2(sender) => sender.is_closed(),
            #[cfg(not(feature = "http2"))]
            RequestSender::Http2 { sender, .. } => sender.is_closed() || self.traffic.end.get().is_some(),
        }
    }

    /// Waits until a connection of HTTP/2 takes no more calls. Servers close idle connections of HTTP/1.1 at any time,
    /// so this waits for ever there.
    #[cfg(feature = "http2")]
    pub(super) async fn closed(&self) {
        match &self.sender {
            RequestSender::Http1(_) => std::future::pending().await,
            RequestSender::Http2(sender) => sender.closed().await,
        }
    }

    /// Returns the maximum number of concurrent calls.
    #[inline]
    fn calls_max(&self) -> usize {
        match &self.sender {
            RequestSender::Http1(_) => 1,
            #[cfg(feature = "http2")]
            RequestSender::Http2(sender) => sender.streams_max(),
            #[cfg(not(feature = "http2"))]
            RequestSender::Http2 { streams_max, .. } => streams_max.load(Ordering::Relaxed),
        }
    }

    /// Returns how long the connection has been idle.
    pub(super) fn idle(&self) -> Duration {
        if self.calls.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Reserves a place for a call, if one is free. The pool is locked.
    #[inline]
    pub(super) fn reserve(&self) -> bool {
        let has_place = self.calls.load(Ordering::SeqCst) < self.calls_max();
        if has_place {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
        has_place
    }

    /// Records the end of a call.
    #[inline]
    pub(super) fn end_call(&self) {
        if self.calls.fetch_sub(1, Ordering::SeqCst) == 1 {
            *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
    }

    /// Returns `true` if the server has sent anything since the connection was ready.
    pub(super) fn has_received(&self) -> bool {
        self.traffic.read.load(Ordering::Relaxed) > self.read_at_start
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.sender, RequestSender::Http2 { .. })
    }

    /// Returns the number of bytes written.
    pub(super) fn written(&self) -> u64 {
        self.traffic.written.load(Ordering::Relaxed)
    }

    /// Adds its bytes, and its calls as streams.
    pub(super) fn add_traffic(&self, sum: &mut ConnectionMetrics) {
        sum.counters.bytes_in += self.traffic.read.load(Ordering::Relaxed);
        sum.counters.bytes_out += self.written();
        sum.streams += self.calls.load(Ordering::Relaxed);
    }

    /// Adds its frames of HTTP/2.
    #[cfg(feature = "http2")]
    pub(super) fn add_frames(&self, sum: &mut FrameCounts) {
        if let RequestSender::Http2(sender) = &self.sender {
            add_frames(sum, sender.frames());
        }
    }

    /// Adds its streams and credit of HTTP/2.
    #[cfg(feature = "http2")]
    pub(super) fn add_flow(&self, sum: &mut FlowState) {
        if let RequestSender::Http2(sender) = &self.sender {
            add_flow(sum, sender.frames());
        }
    }

    /// Returns a description of the server protocol, if it is known to differ from the expected one.
    pub(super) fn foreign_protocol(&self) -> Option<&'static str> {
        self.traffic.foreign.get().copied()
    }

    /// Returns the header size limit announced by the server, if any.
    pub(super) fn head_len_max(&self) -> Option<usize> {
        self.traffic.head_len_max.get().copied()
    }

    /// Records that a call was given up or is over.
    ///
    /// If nothing has arrived for a long time after a request, the server may be gone. New calls then use another
    /// connection; calls in flight continue.
    pub(super) fn detect_silence(&self) {
        let TrafficMonitor { asked_at, read_at, .. } = &*self.traffic;
        let asked_at = asked_at.load(Ordering::Relaxed);
        let silence = || Duration::from_micros(self.traffic.now().saturating_sub(asked_at));
        if read_at.load(Ordering::Relaxed) < asked_at && silence() >= SILENCE_MIN {
            self.is_silent.store(true, Ordering::Relaxed);
        }
    }

    /// Sends a request. Returns `None` if an HTTP/1.1 connection is in use, which is impossible for the holder of its
    /// place.
    pub(super) fn send(&self, request: Request<OutgoingBody>) -> Option<(PendingResponse, BorrowedSender)> {
        // Recorded before the request is written, so that its response always has a later time.
        self.traffic.handle_request();
        match &self.sender {
            RequestSender::Http1(place) => {
                let mut sender = place.lock().unwrap_or_else(PoisonError::into_inner).take()?;
                let responding = PendingResponse::Hyper(Box::pin(sender.try_send_request(request)));
                Some((responding, BorrowedSender(Some(sender))))
            }
            #[cfg(feature = "http2")]
            RequestSender::Http2(sender) => {
                Some((PendingResponse::Http2(sender.send(request.into())), BorrowedSender(None)))
            }
            #[cfg(not(feature = "http2"))]
            RequestSender::Http2 { sender, .. } => {
                let responding = PendingResponse::Hyper(Box::pin(sender.clone().try_send_request(request)));
                Some((responding, BorrowedSender(None)))
            }
        }
    }

    /// Sends a request on a connection of HTTP/2. Returns `None` on others.
    #[cfg(feature = "http2")]
    pub(super) fn send_http2(&self, request: Http2Request) -> Option<PendingResponse> {
        self.traffic.handle_request();
        match &self.sender {
            RequestSender::Http1(_) => None,
            RequestSender::Http2(sender) => Some(PendingResponse::Http2(sender.send(request))),
        }
    }

    /// Sends a short message on a connection of HTTP/2. The response wakes the caller. Returns `None` on others.
    #[cfg(feature = "http2")]
    #[inline]
    pub(super) fn send_short(&self, call: ShortCall, caller: &Waker) -> Option<ShortResponse> {
        self.traffic.handle_request();
        match &self.sender {
            RequestSender::Http1(_) => None,
            RequestSender::Http2(sender) => Some(sender.send_short(call, caller)),
        }
    }

    /// Takes back the sender of a finished call. Returns the sender if the caller must wait until it is ready for
    /// another call.
    pub(super) fn take_back(&self, returned: &mut BorrowedSender) -> Option<http1::SendRequest<OutgoingBody>> {
        let sender = returned.0.take()?;
        if !sender.is_ready() && !sender.is_closed() {
            return Some(sender);
        }
        self.restore_sender(sender);
        None
    }

    pub(super) fn restore_sender(&self, sender: http1::SendRequest<OutgoingBody>) {
        if let RequestSender::Http1(place) = &self.sender {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        }
    }
}

/// The sender of an HTTP/1.1 connection, owned by a call until its end.
pub(super) struct BorrowedSender(Option<http1::SendRequest<OutgoingBody>>);

impl TrafficMonitor {
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

    /// Records that a request is about to be sent.
    #[inline]
    fn handle_request(&self) {
        if self.asked_at.load(Ordering::Relaxed) <= self.read_at.load(Ordering::Relaxed) {
            self.asked_at.store(self.now(), Ordering::Relaxed);
        }
    }

    fn end(&self, end: String) {
        let _ = self.end.set(end);
        self.changed.notify_one();
    }

    /// Waits for the first bytes of the server. A server that stays silent for a while counts as slow, not as broken.
    async fn wait_for_first_bytes(&self) -> io::Result<()> {
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

/// Returns the reason of the end of a connection of hyper.
fn end_text(outcome: hyper::Result<()>) -> String {
    match outcome {
        Ok(()) => "closed by the peer".to_owned(),
        Err(error) => failures::error_chain(&error),
    }
}

/// The maximum wait for the first bytes of an HTTP/2 server. A silent server is not an error.
const SILENCE_BELIEVED: Duration = Duration::from_millis(500);

/// The minimum silence of a server after a request before a given-up call marks the connection as dead.
const SILENCE_MIN: Duration = Duration::from_secs(10);

/// A byte stream that counts its traffic.
struct MonitoredStream {
    io: BoxIo,
    traffic: Arc<TrafficMonitor>,
    /// The first bytes of an HTTP/2 server, until its settings are complete.
    greeting: Option<BytesMut>,
    is_http2: bool,
    silence: SilenceTimer,
}

/// The limit on the silence of an HTTP/1.1 server, which cannot be pinged.
struct SilenceTimer {
    /// `None` for HTTP/2 and without a limit.
    limit: Option<Duration>,
    /// The timer of a pending read.
    late: Option<Pin<Box<Sleep>>>,
    /// `true` if bytes were written since the start of the timer.
    has_written: bool,
}

impl SilenceTimer {
    fn new(limit: Option<Duration>) -> Self {
        Self { limit, late: None, has_written: false }
    }

    /// Fails after the time limit of a pending read. Written bytes prolong it, because the server takes them.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(limit) = self.limit else { return Poll::Pending };
        loop {
            ready!(self.late.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx));
            self.late = None;
            if !mem::take(&mut self.has_written) {
                let text = format!("no bytes in either direction for {limit:?} (http1_silence_max)");
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
    }
}

impl MonitoredStream {
    /// Reads the settings of the server.
    fn read_settings(&mut self, read: &[u8]) {
        let Some(seen) = &mut self.greeting else { return };
        seen.extend_from_slice(read);
        if let Some(greeting) = greeting::parse(seen) {
            if let Some(head_len_max) = greeting.head_len_max {
                let _ = self.traffic.head_len_max.set(head_len_max);
            }
            self.greeting = None;
        }
    }

    fn count_written(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = written {
            self.silence.has_written = true;
            self.traffic.written.fetch_add(written as u64, Ordering::Relaxed);
        }
        written
    }
}

/// Returns a description of the server protocol if the first bytes do not belong to this HTTP version.
fn detect_foreign_protocol(first: &[u8], is_http2: bool) -> Option<&'static str> {
    match first {
        [b'H', b'T', b'T', b'P', ..] if is_http2 => Some("the server speaks HTTP/1.1 instead of HTTP/2"),
        // The header of a SETTINGS or GOAWAY frame on stream 0.
        [0, _, _, 4 | 7, 0, 0, 0, 0, 0, ..] if !is_http2 => Some("the server speaks HTTP/2 instead of HTTP/1.1"),
        [0x15, 3, ..] if is_http2 => Some("the server expects TLS instead of plain HTTP/2"),
        [0x15, 3, ..] => Some("the server expects TLS instead of plain HTTP/1.1"),
        _ => None,
    }
}

impl AsyncRead for MonitoredStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        self.read_settings(&buf.filled()[before..]);
        if read > 0 {
            self.traffic.read_at.store(self.traffic.now(), Ordering::Relaxed);
            if self.traffic.read.fetch_add(read as u64, Ordering::Relaxed) == 0 {
                if let Some(foreign) = detect_foreign_protocol(&buf.filled()[before..], self.is_http2) {
                    let _ = self.traffic.foreign.set(foreign);
                }
                self.traffic.changed.notify_one();
            }
        }
        if polled.is_ready() {
            self.silence.late = None;
            return polled;
        }
        self.silence.poll_late(cx).map(Err)
    }
}

impl AsyncWrite for MonitoredStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.count_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.count_written(written)
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

impl fmt::Debug for HttpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
