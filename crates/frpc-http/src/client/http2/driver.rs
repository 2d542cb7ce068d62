//! The task of a connection.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io, mem,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use frpc_http2::{Connection, ErrorCode, Event, FrameCounters, OpenError, Settings, StreamId};
use http::uri::Authority;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    sync::Notify,
    time::{Instant, timeout},
};

use super::{
    call::{
        Command, Http2Call, Http2Failure, Http2Response, OpenedRequest, SharedConnection, ShortCall, ShortResponse,
    },
    calls::OpenCalls,
    plain::PlainResponse,
    request::{Http2Request, RequestHeads},
};
use crate::{
    alarm::Alarm,
    client::settings::ClientSettings,
    http2::{PARTIAL_KEPT, READS_MAX, ROUNDS_MAX, ReceivedChunk, default_settings, poll_write_output, with_scratch},
    settings::TIME_MAX,
};

/// Sends requests on a connection. The connection ends after it is dropped and its calls are over.
pub(in crate::client) struct Http2Sender(Arc<SharedConnection>);

impl Http2Sender {
    /// Creates a connection and its task. The task completes with the reason of its end.
    pub(in crate::client) fn new<S: AsyncRead + AsyncWrite + Unpin>(
        socket: S,
        settings: &ClientSettings,
        is_secure: bool,
        authority: Authority,
        plain: PlainResponse,
    ) -> (Self, impl Future<Output = String> + use<S>) {
        let core = Connection::client(core_settings(settings), Instant::now().into_std());
        Self::with_core(core, socket, settings, RequestHeads::new(is_secure, authority), plain)
    }

    pub(super) fn with_core<S: AsyncRead + AsyncWrite + Unpin>(
        core: Connection,
        socket: S,
        settings: &ClientSettings,
        heads: RequestHeads,
        plain: PlainResponse,
    ) -> (Self, impl Future<Output = String> + use<S>) {
        let shared = Arc::new(SharedConnection {
            wakes: Arc::default(),
            streams_max: AtomicUsize::new(core.streams_max()),
            frames: core.frames().clone(),
            is_closed: AtomicBool::new(false),
            closed: Notify::new(),
        });
        // The protocol core returns credit in halves of a window, so less need not wake the task.
        let window = settings.stream_window.min(settings.connection_window) / 4;
        let released_late_max = usize::try_from(window).unwrap_or(usize::MAX);
        let calls = OpenCalls::new(shared.wakes.clone(), plain);
        let driver = ClientConnection::new(core, socket, shared.clone(), heads, calls, released_late_max);
        (Self(shared), driver.run())
    }

    /// Returns `true` if the connection takes no further calls.
    pub(in crate::client) fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Relaxed)
    }

    /// Waits until the connection takes no further calls.
    pub(in crate::client) async fn closed(&self) {
        let mut closed = pin!(self.0.closed.notified());
        closed.as_mut().enable();
        if !self.is_closed() {
            closed.await;
        }
    }

    /// Returns the server's limit for concurrent calls.
    pub(in crate::client) fn streams_max(&self) -> usize {
        self.0.streams_max.load(Ordering::Relaxed)
    }

    /// Returns the counters of frames.
    pub(in crate::client) fn frames(&self) -> &Arc<FrameCounters> {
        &self.0.frames
    }

    /// Sends a request.
    pub(in crate::client) fn send(&self, request: Http2Request) -> Http2Response {
        let call = Http2Call::new(request);
        self.submit(&call);
        Http2Response::new(call, self.0.clone())
    }

    /// Sends a short message. The response wakes the caller.
    #[inline]
    pub(in crate::client) fn send_short(&self, call: ShortCall, caller: &Waker) -> ShortResponse {
        let call = call.with_reader(caller);
        self.submit(&call);
        ShortResponse::new(call, self.0.clone())
    }

    #[inline]
    fn submit(&self, call: &Arc<Http2Call>) {
        if let Err(Command::Open(call)) = self.0.wakes.submit(Command::Open(call.clone())) {
            // The caller is this task. It may not poll the call again without a wake-up.
            call.fail(Http2Failure::Closed).into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Http2Sender {
    fn drop(&mut self) {
        self.0.wakes.push(Command::Close);
    }
}

struct ClientConnection<S> {
    core: Connection,
    socket: S,
    shared: Arc<SharedConnection>,
    heads: RequestHeads,
    calls: OpenCalls,
    /// Requests above the limit of the server for concurrent calls.
    waiting: VecDeque<Arc<Http2Call>>,
    /// Data of this length, read by callers, does not wake the connection while its window is open.
    released_late_max: usize,
    /// The start of an incomplete frame.
    partial: Vec<u8>,
    /// `true` if the core stopped taking input because the server does not read its output.
    has_paused: bool,
    alarm: Alarm<'static>,
    /// The last stream handled by the server, once it shuts down.
    last: Option<(StreamId, ErrorCode)>,
    /// The number of callers woken by the latest input.
    woken_callers: usize,
    /// `true` if this turn was put off once, for the requests of other callers.
    has_yielded: bool,
    /// `true` if another round may find more to do.
    is_busy: bool,
    /// `true` once the socket had nothing more in this turn. It wakes the task then.
    is_drained: bool,
    /// `true` once the server did not answer a PING in time.
    is_silent: bool,
    /// Lists reused for the entries of `wakes`.
    woken: Vec<usize>,
    released: Vec<(StreamId, usize)>,
    commands: Vec<Command>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientConnection<S> {
    fn new(
        core: Connection,
        socket: S,
        shared: Arc<SharedConnection>,
        heads: RequestHeads,
        calls: OpenCalls,
        released_late_max: usize,
    ) -> Self {
        Self {
            released_late_max,
            core,
            socket,
            heads,
            calls,
            shared,
            waiting: VecDeque::new(),
            partial: Vec::new(),
            has_paused: false,
            alarm: Alarm::timer(),
            last: None,
            woken_callers: 0,
            has_yielded: false,
            is_busy: false,
            is_drained: false,
            is_silent: false,
            woken: Vec::new(),
            released: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// Drives the connection. Returns the reason of its end.
    async fn run(mut self) -> String {
        let ended = poll_fn(|cx| self.poll(cx)).await;
        let text = match (ended, self.core.error()) {
            (_, Some(error)) => error.to_string(),
            (Err(error), None) if error.kind() != io::ErrorKind::UnexpectedEof => error.to_string(),
            _ => "closed by the peer".to_owned(),
        };
        self.end(&if self.is_silent { Http2Failure::Silent } else { Http2Failure::Lost(text.as_str().into()) });
        // The server may be gone already, or read nothing.
        let _ = timeout(SHUTDOWN_MAX, self.socket.shutdown()).await;
        text
    }

    /// Takes one turn: a few rounds of handling commands, reading and writing, until a round finds nothing to do.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = Instant::now();
        self.is_drained = false;
        for round in 0..ROUNDS_MAX {
            let has_opened = self.handle_wakes();
            // Responses to requests of this turn arrive after its start.
            let now = if round == 0 || self.is_drained { now } else { Instant::now() };
            let read = self.poll_input(cx, now);
            self.handle_events(now);
            self.shared.streams_max.store(self.core.streams_max(), Ordering::Relaxed);
            match self.calls.wake() {
                0 => {}
                woken => self.woken_callers = woken,
            }
            if has_opened && read.is_pending() && self.puts_off_writing() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Pending parts of the write wake the task.
            let _ = poll_write_output(cx, &mut self.core, &mut self.socket)?;
            self.has_yielded = false;
            if let Poll::Ready(Err(error)) = read {
                return Poll::Ready(Err(error));
            }
            // Nothing of value is left to be written, so a stalled server must not keep the socket open.
            if self.core.is_done() {
                return Poll::Ready(Ok(()));
            }
            // The steps of this round are complete. Another one is due for more input, and for requests with room now.
            self.is_busy = self.core.wants_input() && !self.is_drained;
            self.handle_events(now);
            // Not before reading: on a busy machine this task may itself be late. It reads the bytes of the meantime
            // before it treats the server as silent.
            // And again before a sleep: a new call may start the pings.
            if round == 0 || !self.is_busy {
                self.poll_alarm(cx);
            }
            let released_late_max = if self.core.is_window_low() { 0 } else { self.released_late_max };
            if !self.is_busy && self.shared.wakes.sleep(cx.waker(), released_late_max) {
                self.release_memory();
                return Poll::Pending;
            }
        }
        // Enough for one turn: let the other tasks of this thread run first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns `true` once per turn, unless there is a single caller: runnable callers will add their requests to the
    /// same write.
    fn puts_off_writing(&mut self) -> bool {
        let is_lone = self.core.active_streams() <= 1 && self.woken_callers <= 1;
        if is_lone || self.has_yielded {
            return false;
        }
        self.has_yielded = true;
        true
    }

    /// Handles commands, woken requests and consumed data. Returns `true` if there were new calls.
    fn handle_wakes(&mut self) -> bool {
        self.shared.wakes.take(&mut self.woken, &mut self.released, &mut self.commands);
        for (stream, len) in self.released.drain(..) {
            self.core.release(stream, len);
        }
        let mut woken = mem::take(&mut self.woken);
        for slot in woken.drain(..) {
            self.calls.poll_slot(&mut self.core, slot);
        }
        self.woken = woken;
        let mut commands = mem::take(&mut self.commands);
        let mut has_opened = self.has_yielded;
        for command in commands.drain(..) {
            match command {
                Command::Open(call) => {
                    has_opened = true;
                    self.calls.watch(&call);
                    // Waiting calls have precedence.
                    if let Some(call) = if self.waiting.is_empty() { self.open(call) } else { Some(call) } {
                        self.waiting.push_back(call);
                    }
                }
                Command::Cancel(call) => self.cancel(&call),
                Command::Close => self.core.shut_down(),
            }
        }
        self.commands = commands;
        // Cancelled calls have left room.
        self.open_waiting();
        has_opened
    }

    fn cancel(&mut self, call: &Http2Call) {
        if let Some(stream) = call.stream() {
            self.core.reset(stream, ErrorCode::CANCEL);
            self.calls.remove(stream);
        }
    }

    /// Opens streams for waiting requests, up to the limit of the server.
    fn open_waiting(&mut self) {
        while let Some(call) = self.waiting.pop_front() {
            if let Some(call) = self.open(call) {
                self.waiting.push_front(call);
                return;
            }
        }
    }

    /// Opens a stream for a request. Returns the call if the limit of the server is reached.
    #[inline]
    fn open(&mut self, call: Arc<Http2Call>) -> Option<Arc<Http2Call>> {
        match call.open(&mut self.core, &mut self.heads) {
            Ok(None) => {}
            Ok(Some(OpenedRequest { stream, body })) => self.calls.start(&mut self.core, stream, call, body),
            Err(OpenError::NoCapacity) => return Some(call),
            Err(OpenError::HeadTooLarge) => self.calls.fail_call(&call, Http2Failure::HeadTooLarge),
            Err(_) => {
                // Used up, or shutting down. Other calls find another connection.
                self.shared.close();
                self.calls.fail_call(&call, Http2Failure::Closed);
            }
        }
        None
    }

    /// Reads and handles the arrived bytes, up to a limit for one round.
    fn poll_input(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<io::Result<()>> {
        if self.is_drained {
            return Poll::Pending;
        }
        with_scratch(|buffer, chunk| self.poll_read(cx, now, buffer, chunk))
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        buffer: &mut [u8],
        chunk: &mut ReceivedChunk,
    ) -> Poll<io::Result<()>> {
        for _ in 0..READS_MAX {
            if !self.core.wants_input() {
                return Poll::Pending;
            }
            let kept = self.partial.len();
            if mem::take(&mut self.has_paused) {
                // Whole frames are left of the input before the pause.
                buffer[..kept].copy_from_slice(&self.partial);
                self.keep_rest(&buffer[..kept], now, chunk);
                continue;
            }
            let mut room = ReadBuf::new(&mut buffer[kept..]);
            let Poll::Ready(read) = Pin::new(&mut self.socket).poll_read(cx, &mut room) else {
                self.is_drained = true;
                return Poll::Pending;
            };
            read?;
            let len = room.filled().len();
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            if kept > 0 {
                if self.core.awaits_more(&self.partial, len, now.into_std()) {
                    self.partial.extend_from_slice(&buffer[kept..kept + len]);
                    continue;
                }
                buffer[..kept].copy_from_slice(&self.partial);
            }
            self.keep_rest(&buffer[..kept + len], now, chunk);
        }
        Poll::Pending
    }

    /// Handles received bytes, and keeps the rest for later.
    fn keep_rest(&mut self, input: &[u8], now: Instant, chunk: &mut ReceivedChunk) {
        let shared = chunk.share(input);
        let mut input = shared.as_deref().unwrap_or(input);
        loop {
            if let Some(message) = self.core.receive_message(input, now.into_std()) {
                input = &input[message.consumed..];
                let data = chunk.part(shared.as_ref(), message.data);
                self.calls.push_message(message, data, now);
                continue;
            }
            match self.core.receive(input, now.into_std()) {
                Ok(received) => {
                    input = &input[received.consumed..];
                    match received.event {
                        Some(Event::Data { stream, data, end }) => {
                            self.calls.push_data(&mut self.core, stream, data, end, chunk);
                        }
                        Some(event) => self.handle_event(event, now),
                        None => break,
                    }
                }
                // Calls end after the last attempt to write: their requests in the output may still reach the server.
                Err(_) => {
                    input = &[];
                    break;
                }
            }
        }
        self.partial.clear();
        self.partial.extend_from_slice(input);
        self.has_paused = !self.core.wants_input();
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.core.poll_event() {
            self.is_busy = true;
            self.handle_event(event, now);
        }
    }

    fn handle_event(&mut self, event: Event<'_>, now: Instant) {
        let core = &mut self.core;
        match event {
            Event::Head { stream, head, end } => self.calls.push_head(core, stream, head, end),
            Event::Trailers { stream, trailers } => self.calls.push_trailers(core, stream, trailers, now),
            Event::Reset { stream, error } => {
                let failure = match self.last {
                    Some((last, code)) if error.is_unprocessed && stream > last => Http2Failure::GoingAway { code },
                    _ => Http2Failure::Reset { code: error.code, is_remote: error.is_remote },
                };
                self.calls.fail(stream, failure);
            }
            Event::Writable(stream) => self.calls.resume(core, stream),
            Event::Capacity => self.open_waiting(),
            Event::GoAway { last, code } => {
                self.last = Some((last, code));
                self.shared.close();
                // Waiting requests move to another connection.
                self.open_waiting();
            }
            _ => {}
        }
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) {
        loop {
            let due = self.core.poll_timeout().map(Instant::from_std);
            self.alarm.set(due.into_iter().chain(self.calls.deadline()).min());
            if self.alarm.poll(cx).is_pending() {
                return;
            }
            self.is_busy = true;
            // Later than the start of this turn, when the timer was perhaps not yet due. All other timeouts are off.
            let now = Instant::now();
            self.calls.expire(now, self.waiting.iter());
            if self.core.handle_timeout(now.into_std()).is_err() {
                self.is_silent = true;
                return;
            }
        }
    }

    /// Frees unneeded memory of a quiet connection.
    fn release_memory(&mut self) {
        if self.calls.is_empty() {
            self.calls.release_memory();
            self.partial.shrink_to(PARTIAL_KEPT);
            self.commands.shrink_to(COMMANDS_KEPT);
            self.waiting.shrink_to(COMMANDS_KEPT);
        }
    }
}

impl<S> ClientConnection<S> {
    /// Ends all calls.
    fn end(&mut self, failure: &Http2Failure) {
        self.shared.close();
        let unsent = self.shared.wakes.end().into_iter().filter_map(|command| match command {
            Command::Open(call) => Some(call),
            _ => None,
        });
        for call in self.waiting.drain(..).chain(unsent) {
            self.calls.fail_call(&call, Http2Failure::Closed);
        }
        self.calls.fail_all(failure);
        self.calls.wake();
    }
}

/// Also ends the calls if the runtime drops the task.
impl<S> Drop for ClientConnection<S> {
    fn drop(&mut self) {
        self.end(&Http2Failure::Lost("the runtime of the connection has ended".into()));
    }
}

/// Returns the limits of the protocol core for these settings.
pub(super) fn core_settings(settings: &ClientSettings) -> Settings {
    let defaults = default_settings();
    let headers_len_max = usize::try_from(settings.headers_len_max).unwrap_or(usize::MAX);
    Settings {
        stream_window: settings.stream_window,
        connection_window: settings.connection_window,
        header_list_max: settings.headers_len_max,
        // Headers above the limit must fail only their own call.
        header_block_max: HEADER_BLOCK_MAX.max(headers_len_max),
        keepalive_interval: settings.keepalive_interval,
        keepalive_timeout: settings.keepalive_timeout,
        keepalive_while_idle: settings.keepalive_while_idle,
        // A slow server is not an error. PING and the deadlines of calls find a dead one.
        handshake_timeout: TIME_MAX,
        stall_timeout: None,
        // Each call ends at most once, so a server cannot cause more of them.
        resets_max: u32::MAX,
        recent_resets_max: RECENT_RESETS_MAX,
        ..defaults
    }
}

/// The maximum length of a received header block.
const HEADER_BLOCK_MAX: usize = 256 << 10;

/// The maximum number of remembered cancelled calls. Their late frames are ignored.
const RECENT_RESETS_MAX: usize = 1024;

/// The capacity for commands kept by an idle connection.
const COMMANDS_KEPT: usize = 64;

/// The maximum time for the end of a socket, such as the last record of TLS.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);
