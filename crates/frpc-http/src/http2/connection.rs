//! The driver of an HTTP/2 connection of a server.

use std::{
    io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use frpc::{
    Drain, Raw,
    frisbee::{FlowState, FrameCounts},
};
use frpc_http2::{Connection, Event, Head, Settings, StreamId};
use http::{Response, StatusCode, request::Parts};
use tokio::{
    io::{AsyncRead, AsyncWriteExt, ReadBuf},
    time::Instant,
};
use tracing::debug;

use super::{
    request::{self, KnownCalls, MessageHead},
    request_body::{BodyQueue, Http2Body},
    response,
    socket::{
        READS_MAX, ROUNDS_MAX, ReceivedChunk, add_flow, add_frames, default_settings, poll_write_output, with_scratch,
    },
    streams::{OpenStreams, StreamPhase},
    task::RequestTask,
    wakes::WakeList,
};
use crate::{
    alarm::{Alarm, AlarmCause},
    message::envelope,
    serve::{self, GrpcCall, ResponseBody, ServeContext},
    settings::HttpSettings,
    write_timeout::WriteTimeout,
};

/// Serves a connection until it ends.
pub(crate) fn serve<'a>(
    context: &'a Arc<ServeContext>,
    socket: WriteTimeout<Raw>,
    drain: &'a Drain,
) -> impl Future<Output = ()> + Send + 'a {
    let mut connection = ServerConnection::new(context, socket, drain);
    async move {
        let ended = std::future::poll_fn(|cx| connection.poll(cx)).await;
        match ended {
            Ok(()) => debug!("an HTTP/2 connection ended"),
            Err(error) => debug!(%error, "an HTTP/2 connection ended"),
        }
        // The end of the socket may take a while. The handlers need not live until then.
        connection.streams.close();
        // The peer may be gone already.
        let _ = connection.socket.shutdown().await;
    }
}

async fn respond(context: &ServeContext, parts: Parts, body: Http2Body) -> Response<ResponseBody> {
    match serve::refuse_head(context, &parts) {
        Some(refusal) => refusal,
        None => serve::respond(context, parts, body).await,
    }
}

struct ServerConnection<'a> {
    context: &'a Arc<ServeContext>,
    calls: KnownCalls,
    /// `true` if calls may take the fast path.
    is_fast: bool,
    core: Connection,
    socket: WriteTimeout<Raw>,
    streams: OpenStreams<'a>,
    wakes: Arc<WakeList>,
    /// The start of a frame whose rest has not arrived.
    partial: Vec<u8>,
    /// `true` if the core stopped taking input because the peer does not read its output.
    has_paused: bool,
    /// Requests whose head has just arrived. Their bodies may follow in the same input.
    opening: Vec<OpeningRequest>,
    alarm: Alarm<'a>,
    phase: ConnectionPhase,
    /// `true` if this round has done anything, so another round may find more to do.
    is_busy: bool,
    /// The start of the current turn.
    turn: std::time::Instant,
    /// Lists reused for the entries of `wakes`.
    woken: Vec<usize>,
    released: Vec<(StreamId, usize)>,
}

/// A request whose body is incomplete.
struct OpeningRequest {
    stream: StreamId,
    head: Arc<Head>,
    /// The first piece of the body.
    content: Bytes,
}

/// ```text
///   New { until } ──first request──▶ Open ──shutdown──▶ Leaving ──last response──▶ end
///        └──────────until, or shutdown──────────────────▲
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// The connection ends if no request arrives until then.
    New {
        until: Instant,
    },
    Open,
    Leaving,
}

impl<'a> ServerConnection<'a> {
    fn new(context: &'a Arc<ServeContext>, socket: WriteTimeout<Raw>, drain: &'a Drain) -> Self {
        let settings = &context.settings;
        let now = Instant::now();
        let until = now + settings.head_time_max;
        let wakes = Arc::new(WakeList::default());
        let core = Connection::server(core_settings(settings), now.into_std());
        let frames = core.frames().clone();
        socket.get_ref().report_frames(move || {
            let mut counts = FrameCounts::default();
            add_frames(&mut counts, &frames);
            counts
        });
        let frames = core.frames().clone();
        socket.get_ref().report_flow(move || {
            let mut flow = FlowState::default();
            add_flow(&mut flow, &frames);
            flow
        });
        Self {
            context,
            calls: KnownCalls::default(),
            is_fast: GrpcCall::is_possible(context),
            core,
            socket,
            streams: OpenStreams::new(context, wakes.clone()),
            wakes,
            partial: Vec::new(),
            has_paused: false,
            opening: Vec::new(),
            alarm: Alarm::new(drain),
            phase: ConnectionPhase::New { until },
            is_busy: false,
            turn: now.into_std(),
            woken: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Takes one turn: a few rounds of handling wake-ups, reading and writing, until a round finds nothing to do.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = Instant::now();
        self.turn = now.into_std();
        for round in 0..ROUNDS_MAX {
            self.is_busy = false;
            self.poll_woken();
            let read = self.poll_input(cx, now);
            self.handle_events();
            self.context.endpoint.end_turn(self.turn);
            let written = self.poll_output(cx)?;
            if let Poll::Ready(Err(error)) = read {
                return Poll::Ready(Err(error));
            }
            if self.core.is_done() && written.is_ready() {
                return Poll::Ready(Ok(()));
            }
            // Not before reading: on a busy machine this task may itself be late. It must see the bytes that arrived
            // in the meantime before it treats the peer as silent. Not before the last round: each one may start timers.
            if !self.is_busy || round == ROUNDS_MAX - 1 {
                self.poll_alarm(cx);
            }
            // Unread bodies of other streams may have left so little of the window that the peer waits for this data.
            let released_late_max = if self.core.is_window_low() { 0 } else { RELEASED_LATE_MAX };
            if !self.is_busy && self.wakes.sleep(cx.waker(), released_late_max) {
                return Poll::Pending;
            }
        }
        // Enough for one turn: let the other connections of this thread run first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls the streams that were woken, and returns credit for the data that handlers have read.
    fn poll_woken(&mut self) {
        self.wakes.take(&mut self.woken, &mut self.released, &mut Vec::new());
        for slot in mem::take(&mut self.woken) {
            self.is_busy = true;
            self.streams.poll_slot(&mut self.core, slot);
        }
        for (stream, len) in self.released.drain(..) {
            self.is_busy = true;
            self.core.release(stream, len);
        }
    }

    /// Reads and handles everything that has arrived, up to a limit for one round.
    fn poll_input(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<io::Result<()>> {
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
                self.is_busy = true;
                buffer[..kept].copy_from_slice(&self.partial);
                self.keep_rest(&buffer[..kept], now, chunk);
                continue;
            }
            let mut room = ReadBuf::new(&mut buffer[kept..]);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut room))?;
            let len = room.filled().len();
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.is_busy = true;
            if kept > 0 {
                if self.core.awaits_more(&self.partial, len, now.into_std()) {
                    // Not copied for each part: a peer may send a frame byte by byte.
                    self.partial.extend_from_slice(&buffer[kept..kept + len]);
                    continue;
                }
                buffer[..kept].copy_from_slice(&self.partial);
            }
            self.keep_rest(&buffer[..kept + len], now, chunk);
        }
        Poll::Pending
    }

    /// Handles received bytes, and keeps the start of an incomplete frame for later.
    fn keep_rest(&mut self, input: &[u8], now: Instant, chunk: &mut ReceivedChunk) {
        let shared = chunk.share(input);
        let mut input = shared.as_deref().unwrap_or(input);
        loop {
            if let Some(message) = self.core.receive_message(input, now.into_std()) {
                input = &input[message.consumed..];
                let content = chunk.part(shared.as_ref(), message.data);
                self.start(OpeningRequest { stream: message.stream, head: message.head, content }, true);
                continue;
            }
            // After an error, the connection is done once its output is written.
            let received = match self.core.receive(input, now.into_std()) {
                Ok(received) => received,
                Err(error) => {
                    input = &[];
                    self.opening.clear();
                    self.streams.cancel_all(&error);
                    break;
                }
            };
            input = &input[received.consumed..];
            match received.event {
                Some(Event::Data { stream, data, end }) => self.handle_data(stream, data, end, chunk),
                Some(event) => self.handle_event(event),
                None => break,
            }
        }
        // The rest of these bodies arrives later.
        for request in mem::take(&mut self.opening) {
            self.start(request, false);
        }
        self.partial.clear();
        self.partial.extend_from_slice(input);
        self.has_paused = !self.core.wants_input();
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.core.poll_event() {
            self.is_busy = true;
            self.handle_event(event);
        }
    }

    fn handle_event(&mut self, event: Event<'_>) {
        match event {
            Event::Head { stream, head, end } => {
                let request = OpeningRequest { stream, head, content: Bytes::new() };
                match end {
                    true => self.start(request, true),
                    false => self.opening.push(request),
                }
            }
            Event::Trailers { stream, trailers } => {
                self.start_queued(stream);
                self.streams.push_trailers(stream, request::header_map(&trailers));
            }
            Event::Reset { stream, error } => {
                self.opening.retain(|request| request.stream != stream);
                self.streams.cancel(stream, error);
            }
            Event::Writable(stream) => self.streams.resume(&mut self.core, stream),
            _ => {}
        }
    }

    fn handle_data(&mut self, stream: StreamId, data: &[u8], is_end: bool, chunk: &mut ReceivedChunk) {
        // Most often the data belongs to the latest of these requests, and is all of its body.
        if let Some(mut request) = self.opening.pop_if(|request| request.stream == stream) {
            if is_end && request.content.is_empty() {
                request.content = chunk.copy(data);
                return self.start_whole(request);
            }
            self.opening.push(request);
        }
        if let Some(at) = self.opening.iter().position(|request| request.stream == stream) {
            let request = &mut self.opening[at];
            if request.content.is_empty() {
                request.content = chunk.copy(data);
                if is_end {
                    let request = self.opening.swap_remove(at);
                    self.start_whole(request);
                }
                return;
            }
            if is_end && data.is_empty() {
                let request = self.opening.swap_remove(at);
                return self.start_whole(request);
            }
            self.start_queued(stream);
        }
        if !self.streams.push_data(stream, data, is_end) {
            self.core.release(stream, data.len());
        }
    }

    /// Starts the handler of a request if it has just arrived. The rest of the body follows through a queue.
    fn start_queued(&mut self, stream: StreamId) {
        if let Some(at) = self.opening.iter().position(|request| request.stream == stream) {
            let request = self.opening.swap_remove(at);
            self.start(request, false);
        }
    }

    /// Starts the handler of a request whose body is complete, and returns its credit.
    fn start_whole(&mut self, request: OpeningRequest) {
        self.core.release(request.stream, request.content.len());
        self.start(request, true);
    }

    /// Starts the handler of a request. A complete body has returned its credit.
    fn start(&mut self, request: OpeningRequest, is_whole: bool) {
        let OpeningRequest { stream, head, mut content } = request;
        if matches!(self.phase, ConnectionPhase::New { .. }) {
            self.phase = ConnectionPhase::Open;
        }
        let (context, core) = (self.context, &mut self.core);
        let is_fast = self.is_fast && is_whole && !self.streams.is_at_limit();
        let parts = if is_fast && serve::is_short_message(context, &content) {
            match self.calls.read(context, &head) {
                Some(MessageHead::Grpc(call)) => {
                    // In place: a slice would share the buffer, which needs an allocation.
                    content.advance(envelope::HEADER_LEN);
                    return self.streams.call(core, stream, call, content, self.turn);
                }
                Some(MessageHead::NewGrpc(call)) => {
                    content.advance(envelope::HEADER_LEN);
                    return self.streams.call(core, stream, &call, content, self.turn);
                }
                Some(MessageHead::Other(parts)) => Some(*parts),
                None => None,
            }
        } else {
            request::parts(&head)
        };
        let Some(parts) = parts else {
            let refusal = serve::refuse(StatusCode::BAD_REQUEST, "the head of the request is invalid\n");
            let refusal = serve::response_to(head.method() == Some("HEAD"), refusal);
            return response::send_whole(core, stream, refusal);
        };
        let (body, queue) = if is_whole {
            (Http2Body::whole(content), None)
        } else {
            if head.get("expect").is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue")) {
                response::send_continue(core, stream);
            }
            let queue = BodyQueue::new(stream, self.wakes.clone());
            if !content.is_empty() {
                queue.push(&content);
            }
            (Http2Body::queue(queue.clone(), head.content_length()), Some(queue))
        };
        let phase = if serve::needs_task(context, &parts) {
            let context = context.clone();
            let handler = async move { respond(&context, parts, body).await };
            StreamPhase::InTask(Some(RequestTask::spawn(self.streams.queued_answers(), handler)))
        } else {
            StreamPhase::Answering(Box::pin(respond(context, parts, body)))
        };
        self.streams.start(core, stream, phase, queue);
    }

    /// Writes the output. Completes when all of it is written.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let (written, has_written) = poll_write_output(cx, &mut self.core, &mut self.socket)?;
        self.is_busy |= has_written;
        Ok(written)
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) {
        loop {
            let until = match self.phase {
                ConnectionPhase::New { until } => Some(until),
                ConnectionPhase::Open | ConnectionPhase::Leaving => None,
            };
            let due = self.core.poll_timeout().map(Instant::from_std);
            self.alarm.set(due.into_iter().chain(until).min());
            let Poll::Ready(cause) = self.alarm.poll(cx) else { return };
            // Later than the start of this turn, when the timer was perhaps not yet due.
            let now = Instant::now();
            self.is_busy = true;
            if cause == AlarmCause::Drain || until.is_some_and(|until| until <= now) {
                self.phase = ConnectionPhase::Leaving;
                self.core.shut_down();
            }
            // After an error, the connection is done once its output is written.
            if let Err(error) = self.core.handle_timeout(now.into_std()) {
                self.streams.cancel_all(&error);
            }
            self.release_memory();
        }
    }

    /// Frees memory that a connection without streams does not need.
    fn release_memory(&mut self) {
        if self.streams.is_empty() {
            self.streams.release_memory();
            self.core.shrink();
            self.partial.shrink_to_fit();
            self.opening.shrink_to_fit();
        }
    }
}

/// Returns the limits of the protocol core for these settings.
fn core_settings(settings: &HttpSettings) -> Settings {
    let defaults = default_settings();
    // A head slightly above our limit must fail only its own request, with the error of its protocol.
    let header_list_max = settings.head_len_max.saturating_mul(HEAD_LEN_FACTOR);
    Settings {
        streams_max: settings.streams_max,
        connection_window: CONNECTION_WINDOW,
        stream_window: STREAM_WINDOW,
        header_list_max,
        header_block_max: defaults.header_block_max.max(usize::try_from(header_list_max).unwrap_or(usize::MAX)),
        resets_max: u32::try_from(settings.resets_max).unwrap_or(u32::MAX),
        // A caller may still send on each stream whose early answer it has not seen.
        recent_resets_max: defaults.recent_resets_max.max(usize::try_from(settings.streams_max).unwrap_or(usize::MAX)),
        keepalive_interval: settings.keepalive_interval,
        keepalive_timeout: settings.keepalive_timeout,
        handshake_timeout: settings.head_time_max,
        stall_timeout: Some(settings.write_stall_max),
        ..defaults
    }
}

/// The maximum unread data of a connection: room for calls besides an unread upload.
const CONNECTION_WINDOW: u32 = 4 * STREAM_WINDOW;

/// The maximum unread data of a stream.
const STREAM_WINDOW: u32 = 1 << 20;

/// Less data than this, once read by handlers, waits for the next turn. The protocol core tells the peer about halves of
/// a window, so the peer still has credit on each stream.
const RELEASED_LATE_MAX: usize = STREAM_WINDOW as usize / 4;

/// A request with a head of up to this many times the limit reaches its protocol, which refuses it.
const HEAD_LEN_FACTOR: u32 = 8;
