//! JSON-RPC on a byte stream, such as a TCP connection.

mod input;

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
use frpc::{Drain, Raw};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_util::io::poll_read_buf;
use tracing::debug;

use self::input::{InputDecoder, ReadOutcome};
use crate::{
    calls::PeerCalls,
    outbox::{MessageFraming, MessageOutbox},
    settings::{JsonRpcSettings, READ_AHEAD_LEN_MAX},
};

/// Serves calls on a byte stream until the peer closes it, a limit is exceeded, or the server shuts down.
pub(crate) async fn serve(mut socket: Raw, calls: PeerCalls, settings: Arc<JsonRpcSettings>, drain: Drain) {
    let mut connection = ByteStreamSession {
        input: InputDecoder::new(settings.limits()),
        outbox: MessageOutbox::new(MessageFraming::Values),
        written: 0,
        has_grown: false,
        calls,
        needs_room: None,
        reading: JsonInputState::Open,
        is_closed_behind: false,
        messages: 0,
        timers: SessionTimers::default(),
        settings,
    };
    let requested = FuturesUnordered::from_iter([drain.requested()]);
    let mut requested = std::pin::pin!(requested);
    let ended = poll_fn(|cx| {
        // A plain future would be polled at each wake-up of the connection. This set polls it only when it was woken
        // itself.
        if let Poll::Ready(Some(())) = requested.as_mut().poll_next_unpin(cx) {
            connection.calls.drain(&mut connection.outbox);
            connection.reading.end(JsonInputState::Draining);
        }
        connection.poll(cx, &mut socket)
    })
    .await;
    match ended {
        Ok(()) => linger(socket).await,
        Err(error) => debug!(%error, "JSON-RPC connection ended"),
    }
}

/// Shuts down the write side and discards further input. Closing with unread input would send a reset, and the peer
/// could lose the last answers.
async fn linger(mut socket: Raw) {
    let _ = timeout(LINGER_MAX, async {
        socket.shutdown().await?;
        let mut rest = [0; 1024];
        while socket.read(&mut rest).await? > 0 {}
        Ok::<_, io::Error>(())
    })
    .await;
}

/// The maximum time to read from a connection after its shutdown.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Decodes messages from `chunks`. Returns a description of each, and an entry for each refusal.
#[cfg(fuzzing)]
pub fn messages<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let limits = crate::request::MessageLimits { depth_max: 20, batch_len_max: 5, message_len_max: 1 << 20 };
    let (mut input, mut seen) = (InputDecoder::new(limits), Vec::new());
    for chunk in chunks {
        input.buffer.extend_from_slice(chunk);
        loop {
            let stop = input.read(|message, _| {
                seen.push(format!("{message:?}"));
                true
            });
            match stop {
                ReadOutcome::More | ReadOutcome::NotTaken => break,
                ReadOutcome::Refused { is_last, .. } => {
                    seen.push(format!("refused, {is_last}"));
                    if is_last {
                        return seen;
                    }
                }
            }
        }
    }
    seen
}

struct ByteStreamSession {
    input: InputDecoder,
    outbox: MessageOutbox,
    /// The length of the written part of the outbox.
    written: usize,
    /// `true` if the input buffer is larger than small messages need.
    has_grown: bool,
    calls: PeerCalls,
    /// The number of calls of the next message, while they have no room.
    needs_room: Option<usize>,
    reading: JsonInputState,
    /// `true` if the peer has closed its side after bytes not read yet.
    is_closed_behind: bool,
    /// The number of messages read, valid or not.
    messages: u64,
    timers: SessionTimers,
    settings: Arc<JsonRpcSettings>,
}

/// The state of the input. It only moves to later variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum JsonInputState {
    Open,
    /// The server is shutting down. Requests that arrive before the last answer are refused with an answer.
    Draining,
    /// The peer has closed its side. Buffered messages are still read.
    Ended,
    /// Nothing is read, not even buffered messages.
    Stopped,
}

impl JsonInputState {
    fn end(&mut self, by: Self) {
        *self = (*self).max(by);
    }
}

/// Timers, each armed only while its condition holds.
#[derive(Default)]
struct SessionTimers {
    /// For the end of the current message, with the number of messages before it.
    message: Option<(u64, Pin<Box<Sleep>>)>,
    standstill: Option<Pin<Box<Sleep>>>,
    /// For calls in flight after the end of the input.
    half_closed: Option<Pin<Box<Sleep>>>,
    idle: Option<Pin<Box<Sleep>>>,
    /// For the next check for the end of the peer, while its connection is not read.
    look: Option<Pin<Box<Sleep>>>,
    was_active: bool,
}

impl ByteStreamSession {
    fn poll(&mut self, cx: &mut Context<'_>, socket: &mut Raw) -> Poll<io::Result<()>> {
        for _ in 0..ROUNDS_MAX {
            // Reserve memory before parsing, so that a refused connection parses nothing.
            self.hold();
            let is_blocked = self.read_messages(cx);
            let mut has_answered = false;
            while !self.is_full() && self.calls.poll(cx, &mut self.outbox).is_ready() {
                has_answered = true;
            }
            let was_full = self.is_full();
            let is_written = match self.poll_write(cx, socket) {
                Poll::Ready(written) => written.map(|()| true)?,
                Poll::Pending => false,
            };
            let is_quiet = is_written && self.calls.is_idle();
            // Answers or write progress may have made room for held messages, and nothing else would wake this task.
            let is_held = is_blocked || was_full;
            if is_held && (has_answered || was_full && !self.is_full()) {
                continue;
            }
            if self.reading == JsonInputState::Stopped {
                if is_quiet {
                    return Poll::Ready(Ok(()));
                }
            } else if self.reading < JsonInputState::Ended && self.may_read(is_held) {
                match self.poll_read(cx, socket) {
                    Poll::Ready(read) => {
                        read?;
                        continue;
                    }
                    // Do not wait for the rest of a partial message during shutdown.
                    Poll::Pending if self.reading == JsonInputState::Draining && is_quiet => {
                        return Poll::Ready(Ok(()));
                    }
                    Poll::Pending => {}
                }
            }
            // Release the reservation of the messages just started.
            self.hold();
            if self.may_read(is_held) {
                self.timers.look = None;
            } else {
                self.check_peer_end(cx, socket);
            }
            return self.poll_timers(cx, is_written, is_held);
        }
        // Yield to other tasks. More work is left, so wake this task again.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reserves memory for buffered input, or stops reading if the limit is reached.
    fn hold(&mut self) {
        if let Err(status) = self.calls.hold(self.input.buffer.len()) {
            self.input.buffer = BytesMut::new();
            self.calls.refuse_with_status(&status, &mut self.outbox);
            self.stop();
        }
    }

    /// Returns `true` if no more answers may be produced before queued ones are written.
    fn is_full(&self) -> bool {
        self.outbox.len() - self.written >= self.settings.answers_len_max
    }

    /// Returns `true` if the socket should be read.
    ///
    /// While calls have no room, it is read ahead a little: otherwise the disconnect of a peer would go unnoticed, and
    /// its calls would keep running. With a full outbox nothing is read, because a write error reveals the disconnect.
    fn may_read(&self, is_held: bool) -> bool {
        !is_held || !self.is_full() && self.input.buffer.len() < READ_AHEAD_LEN_MAX
    }

    /// Starts the calls of buffered messages. Returns `true` if some messages have no room.
    fn read_messages(&mut self, cx: &mut Context<'_>) -> bool {
        if self.reading == JsonInputState::Stopped
            || self.input.buffer.is_empty() && self.reading != JsonInputState::Ended
        {
            return false;
        }
        if let Some(framing) = self.input.framing() {
            self.outbox.set_framing(framing);
        }
        loop {
            if self.is_full() || self.needs_room.is_some_and(|needed| !self.calls.has_room(needed)) {
                return true;
            }
            let Self { input, outbox, written, calls, needs_room, messages, settings, .. } = self;
            *needs_room = None;
            let stop = input.read(|message, len| {
                if outbox.len() - *written >= settings.answers_len_max || !calls.has_room(message.len()) {
                    *needs_room = Some(message.len());
                    return false;
                }
                *messages += 1;
                calls.start(message, len, cx, outbox);
                true
            });
            match stop {
                ReadOutcome::More => break,
                ReadOutcome::NotTaken => return true,
                ReadOutcome::Refused { why, is_last } => {
                    self.messages += 1;
                    self.calls.refuse(&why, &mut self.outbox);
                    if is_last {
                        self.stop();
                        return false;
                    }
                }
            }
        }
        if self.reading == JsonInputState::Ended {
            if self.input.is_partial() {
                self.calls.refuse(&"the input ended in the middle of a message".into(), &mut self.outbox);
            }
            self.stop();
        }
        false
    }

    fn stop(&mut self) {
        self.reading.end(JsonInputState::Stopped);
        self.calls.drop_subscriptions();
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, socket: &mut Raw) -> Poll<io::Result<()>> {
        while self.written < self.outbox.len() {
            let Poll::Ready(len) = Pin::new(&mut *socket).poll_write(cx, &self.outbox.bytes[self.written..]) else {
                self.compact_outbox();
                return Poll::Pending;
            };
            let len = len?;
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += len;
            self.timers.standstill = None;
        }
        if self.written > 0 {
            self.written = 0;
            if self.outbox.bytes.capacity() > KEPT_LEN_MAX {
                self.outbox.bytes = Vec::new();
            }
            self.outbox.bytes.clear();
        }
        Pin::new(socket).poll_flush(cx)
    }

    /// Compacts the outbox if at least half of it is written, so that it does not grow for a slow reader. It moves no
    /// more bytes than were written.
    fn compact_outbox(&mut self) {
        if self.written >= self.outbox.len() - self.written {
            self.outbox.bytes.drain(..self.written);
            self.written = 0;
        }
    }

    /// Checks once a second whether the peer has gone, while its connection is not read.
    fn check_peer_end(&mut self, cx: &mut Context<'_>, socket: &Raw) {
        if self.is_closed_behind || self.reading > JsonInputState::Draining {
            return;
        }
        let pause = self.timers.look.get_or_insert_with(|| Box::pin(sleep(LOOK_PAUSE)));
        while pause.as_mut().poll(cx).is_ready() {
            if socket.is_read_closed() {
                self.is_closed_behind = true;
                self.timers.look = None;
                return;
            }
            pause.as_mut().reset(Instant::now() + LOOK_PAUSE);
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, socket: &mut Raw) -> Poll<io::Result<()>> {
        let buffer = &mut self.input.buffer;
        if buffer.is_empty() && self.has_grown {
            // Keep no more memory than small messages need.
            *buffer = BytesMut::new();
            self.has_grown = false;
        }
        if buffer.capacity() - buffer.len() < READ_LEN_MIN {
            // At least double the buffer for a partial message, so that a long message is not copied for each piece.
            self.has_grown |= buffer.len() > READ_LEN;
            buffer.reserve(READ_LEN.max(buffer.len()));
        }
        let len = ready!(poll_read_buf(Pin::new(socket), cx, buffer))?;
        if len == 0 {
            self.reading.end(JsonInputState::Ended);
            self.calls.drop_subscriptions();
        }
        self.timers.was_active = true;
        Poll::Ready(Ok(()))
    }

    /// Arms, clears and polls the timers.
    fn poll_timers(&mut self, cx: &mut Context<'_>, is_written: bool, is_held: bool) -> Poll<io::Result<()>> {
        let late = |why: &str| Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        let Self { timers, settings, .. } = self;
        if is_written {
            timers.standstill = None;
        } else {
            let limit = settings.write_stall_max;
            let sleep = timers.standstill.get_or_insert_with(|| Box::pin(sleep(limit)));
            if sleep.as_mut().poll(cx).is_ready() {
                return late("the peer stopped reading");
            }
        }
        if (self.reading > JsonInputState::Draining || self.is_closed_behind) && !self.calls.is_idle() {
            let limit = settings.half_closed_max;
            let sleep = timers.half_closed.get_or_insert_with(|| Box::pin(sleep(limit)));
            if sleep.as_mut().poll(cx).is_ready() {
                return late("the peer closed its side, and the remaining calls took too long");
            }
        }
        // The first message has a time limit even if only white space has arrived. A held message waits for us, so it
        // has none.
        let waits_for_rest =
            (self.input.is_partial() || self.messages == 0) && !is_held && self.reading <= JsonInputState::Draining;
        if waits_for_rest {
            let limit = settings.message_time_max;
            timers.message.take_if(|(number, _)| *number != self.messages);
            let (_, sleep) = timers.message.get_or_insert_with(|| (self.messages, Box::pin(sleep(limit))));
            if sleep.as_mut().poll(cx).is_ready() {
                timers.message = None;
                let why = format!("the message was not complete within {limit:?}");
                self.calls.refuse(&why.into(), &mut self.outbox);
                self.stop();
                cx.waker().wake_by_ref();
            }
        } else {
            timers.message = None;
        }
        self.poll_idle(cx)
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(limit) = self.settings.idle_max else { return Poll::Pending };
        let SessionTimers { idle, was_active, .. } = &mut self.timers;
        let sleep = idle.get_or_insert_with(|| Box::pin(sleep(limit)));
        while sleep.as_mut().poll(cx).is_ready() {
            let is_quiet = self.calls.is_idle() && !self.calls.has_subscriptions();
            if !std::mem::take(was_active) && is_quiet {
                self.reading.end(JsonInputState::Ended);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            sleep.as_mut().reset(Instant::now() + limit);
        }
        Poll::Pending
    }
}

/// The maximum number of read and write rounds before yielding to other tasks.
const ROUNDS_MAX: usize = 16;

/// The pause between two checks for the end of a connection that is not read.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The size of the read buffer, and the free space below which it is enlarged before a read.
const READ_LEN: usize = 8 << 10;
const READ_LEN_MIN: usize = 1 << 10;

/// The maximum capacity of an empty outbox that a connection keeps.
const KEPT_LEN_MAX: usize = 64 << 10;
