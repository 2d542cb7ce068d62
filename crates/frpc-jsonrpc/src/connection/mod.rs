//! A connection of bytes, such as one of TCP: messages in one of three framings, both ways.

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
use frpc::Drain;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_util::io::poll_read_buf;
use tracing::debug;

use self::input::{Input, Stop};
use crate::{
    calls::Calls,
    outbox::{Framing, Outbox},
    settings::{READ_AHEAD_LEN_MAX, Settings},
};

/// Serves calls on a byte stream until its peer is done with it or does something that ends it.
pub(crate) async fn serve<S>(mut socket: S, calls: Calls, settings: Arc<Settings>, drain: Drain)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = Connection {
        input: Input::new(settings.limits()),
        outbox: Outbox::new(Framing::Values),
        written: 0,
        has_grown: false,
        calls,
        needs_room: None,
        reading: Reading::Open,
        messages: 0,
        timers: Timers::default(),
        settings,
    };
    let requested = FuturesUnordered::from_iter([drain.requested()]);
    let mut requested = std::pin::pin!(requested);
    let ended = poll_fn(|cx| {
        // Polled when it has something to say only, unlike the future within.
        if let Poll::Ready(Some(())) = requested.as_mut().poll_next_unpin(cx) {
            connection.calls.drain(&mut connection.outbox);
            connection.reading.end(Reading::Draining);
        }
        connection.poll(cx, &mut socket)
    })
    .await;
    match ended {
        Ok(()) => linger(socket).await,
        Err(error) => debug!(%error, "a connection of JSON-RPC ended"),
    }
}

/// Says that nothing more comes, and reads past what the peer still sends: otherwise the system would throw the last answers away.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S) {
    let _ = timeout(LINGER_MAX, async {
        socket.shutdown().await?;
        let mut rest = [0; 1024];
        while socket.read(&mut rest).await? > 0 {}
        Ok::<_, io::Error>(())
    })
    .await;
}

/// The time for which a connection is read past its end.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Reads messages from chunks. Returns what each is, and where the input was refused.
#[cfg(fuzzing)]
pub fn messages<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let limits = crate::request::Limits { depth_max: 20, batch_len_max: 5, message_len_max: 1 << 20 };
    let (mut input, mut seen) = (Input::new(limits), Vec::new());
    for chunk in chunks {
        input.buffer.extend_from_slice(chunk);
        loop {
            let stop = input.read(|message, _| {
                seen.push(format!("{message:?}"));
                true
            });
            match stop {
                Stop::More | Stop::NotTaken => break,
                Stop::Refused { is_last, .. } => {
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

struct Connection {
    input: Input,
    outbox: Outbox,
    /// The bytes of the outbox that are written.
    written: usize,
    /// The buffer of the input is larger than small messages need.
    has_grown: bool,
    calls: Calls,
    /// The number of calls of a message that waits for others to end.
    needs_room: Option<usize>,
    reading: Reading,
    /// The number of messages that were taken.
    messages: u64,
    timers: Timers,
    settings: Arc<Settings>,
}

/// The part of the input that is still read. Later ones do not go back to earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reading {
    Open,
    /// The server is shutting down. What arrives before all is answered is answered, too.
    Draining,
    /// The peer has said all that it says. What is here is still read.
    Ended,
    /// Nothing is read, not even what is here.
    Stopped,
}

impl Reading {
    fn end(&mut self, by: Self) {
        *self = (*self).max(by);
    }
}

/// Set only while there is something to wait for.
#[derive(Default)]
struct Timers {
    /// For the end of the message of this number.
    message: Option<(u64, Pin<Box<Sleep>>)>,
    standstill: Option<Pin<Box<Sleep>>>,
    /// For the calls of a peer that says nothing more.
    half_closed: Option<Pin<Box<Sleep>>>,
    idle: Option<Pin<Box<Sleep>>>,
    was_active: bool,
}

impl Connection {
    fn poll<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut S,
    ) -> Poll<io::Result<()>> {
        for _ in 0..ROUNDS_MAX {
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
            let is_held = is_blocked || was_full;
            if is_held && (has_answered || was_full && !self.is_full()) {
                continue;
            }
            if self.reading == Reading::Stopped {
                if is_quiet {
                    return Poll::Ready(Ok(()));
                }
            } else if self.reading < Reading::Ended && self.may_read(is_held) {
                match self.poll_read(cx, socket) {
                    Poll::Ready(read) => {
                        read?;
                        continue;
                    }
                    // The rest of a message that has begun is not waited for.
                    Poll::Pending if self.reading == Reading::Draining && is_quiet => return Poll::Ready(Ok(())),
                    Poll::Pending => {}
                }
            }
            // Gives back the room of messages that were taken.
            self.hold();
            return self.poll_timers(cx, is_written, is_held);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes room for what is here, or refuses to read on.
    fn hold(&mut self) {
        if let Err(status) = self.calls.hold(self.input.buffer.len()) {
            self.input.buffer = BytesMut::new();
            self.calls.refuse_for(&status, &mut self.outbox);
            self.stop();
        }
    }

    /// Returns whether no more answers are made until some that wait were written.
    fn is_full(&self) -> bool {
        self.outbox.len() - self.written >= self.settings.answers_len_max
    }

    /// Returns whether the socket is read. While calls have no room it is read a little further: a peer that is gone must not keep those
    /// that run. One that does not read its answers is not read either, and found by the attempt to write.
    fn may_read(&self, is_held: bool) -> bool {
        !is_held || !self.is_full() && self.input.buffer.len() < READ_AHEAD_LEN_MAX
    }

    /// Starts the calls of the messages that are here. Returns whether there are others, for which there is no room.
    fn read_messages(&mut self, cx: &mut Context<'_>) -> bool {
        if self.reading == Reading::Stopped || self.input.buffer.is_empty() && self.reading != Reading::Ended {
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
                Stop::More => break,
                Stop::NotTaken => return true,
                Stop::Refused { why, is_last } => {
                    self.messages += 1;
                    self.calls.refuse(&why, &mut self.outbox);
                    if is_last {
                        self.stop();
                        return false;
                    }
                }
            }
        }
        if self.reading == Reading::Ended {
            if self.input.is_partial() {
                self.calls.refuse(&"the input ends in the middle of a message".into(), &mut self.outbox);
            }
            self.stop();
        }
        false
    }

    fn stop(&mut self) {
        self.reading.end(Reading::Stopped);
        self.calls.drop_subscriptions();
    }

    fn poll_write<S: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, socket: &mut S) -> Poll<io::Result<()>> {
        while self.written < self.outbox.len() {
            let Poll::Ready(len) = Pin::new(&mut *socket).poll_write(cx, &self.outbox.bytes[self.written..]) else {
                self.forget_written();
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

    /// Gives the room of what is written back to what follows, so that a peer that never reads all of it does not make it grow. Moves
    /// no more bytes than were written.
    fn forget_written(&mut self) {
        if self.written >= self.outbox.len() - self.written {
            self.outbox.bytes.drain(..self.written);
            self.written = 0;
        }
    }

    fn poll_read<S: AsyncRead + Unpin>(&mut self, cx: &mut Context<'_>, socket: &mut S) -> Poll<io::Result<()>> {
        let buffer = &mut self.input.buffer;
        if buffer.is_empty() && self.has_grown {
            // A connection keeps no more than it needs for small messages.
            *buffer = BytesMut::new();
            self.has_grown = false;
        }
        if buffer.capacity() - buffer.len() < READ_LEN_MIN {
            // A part of a message is at least doubled, so that a long one is not copied for each piece.
            self.has_grown |= buffer.len() > READ_LEN;
            buffer.reserve(READ_LEN.max(buffer.len()));
        }
        let len = ready!(poll_read_buf(Pin::new(socket), cx, buffer))?;
        if len == 0 {
            self.reading.end(Reading::Ended);
            self.calls.drop_subscriptions();
        }
        self.timers.was_active = true;
        Poll::Ready(Ok(()))
    }

    /// Waits for whatever must not take too long.
    fn poll_timers(&mut self, cx: &mut Context<'_>, is_written: bool, is_held: bool) -> Poll<io::Result<()>> {
        let late = |why: &str| Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        let Self { timers, settings, .. } = self;
        if is_written {
            timers.standstill = None;
        } else {
            let limit = settings.standstill_max;
            let sleep = timers.standstill.get_or_insert_with(|| Box::pin(sleep(limit)));
            if sleep.as_mut().poll(cx).is_ready() {
                return late("the peer does not read");
            }
        }
        if self.reading > Reading::Draining && !self.calls.is_idle() {
            let limit = settings.half_closed_max;
            let sleep = timers.half_closed.get_or_insert_with(|| Box::pin(sleep(limit)));
            if sleep.as_mut().poll(cx).is_ready() {
                return late("the peer says nothing more, and its calls take too long");
            }
        }
        // Whatever a connection says that is no message, its first one has to come in time. A held one waits for this side.
        let waits_for_rest =
            (self.input.is_partial() || self.messages == 0) && !is_held && self.reading <= Reading::Draining;
        if waits_for_rest {
            let limit = settings.message_time_max;
            timers.message.take_if(|(number, _)| *number != self.messages);
            let (_, sleep) = timers.message.get_or_insert_with(|| (self.messages, Box::pin(sleep(limit))));
            if sleep.as_mut().poll(cx).is_ready() {
                timers.message = None;
                let why = format!("the message did not end within {limit:?}");
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
        let Timers { idle, was_active, .. } = &mut self.timers;
        let sleep = idle.get_or_insert_with(|| Box::pin(sleep(limit)));
        while sleep.as_mut().poll(cx).is_ready() {
            let is_quiet = self.calls.is_idle() && !self.calls.has_subscriptions();
            if !std::mem::take(was_active) && is_quiet {
                self.reading.end(Reading::Ended);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            sleep.as_mut().reset(Instant::now() + limit);
        }
        Poll::Pending
    }
}

/// The rounds of reading and writing after which other connections have their turn.
const ROUNDS_MAX: usize = 16;

/// The room for what is read at once, and the least that a read is worth it.
const READ_LEN: usize = 8 << 10;
const READ_LEN_MIN: usize = 1 << 10;

/// The memory for answers that a connection keeps.
const KEPT_LEN_MAX: usize = 64 << 10;
