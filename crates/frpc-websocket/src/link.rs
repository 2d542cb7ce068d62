//! The state machine of a connection: frames on a byte stream, with automatic replies to control frames.

use std::{
    io,
    mem::{self, MaybeUninit},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use frpc::ByteStream;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};
use tokio_util::io::poll_read_buf;

use crate::{
    close::{CloseFrame, WebSocketError},
    decoder::{Decoder, MessageFragment, MessageKind, Role, WebSocketEvent},
    encoder::Encoder,
    frame::Opcode,
    keepalive::KeepaliveTimer,
};

/// A connection. Pongs and close frames are written together with queued messages.
///
/// ```text
///   Open ──close()──▶ Closing ──peer's close frame──▶ Ending ──▶ Over
///     ├── peer's close frame, or a refusal ─────────────▲         ▲
///     └── connection lost ────────────────────────────────────────┘
/// ```
pub(crate) struct WebSocketConnection {
    io: Box<dyn ByteStream>,
    role: Role,
    pub(crate) decoder: Decoder,
    encoder: Encoder,
    pub(crate) input: BytesMut,
    output: BytesMut,
    /// The length of unwritten output at which reading stops.
    pub(crate) output_len_max: usize,
    /// `true` if the stream has no unflushed bytes.
    is_flushed: bool,
    phase: ClosePhase,
    /// Deadline of the closing handshake. `None` until it starts.
    late: Option<Pin<Box<Sleep>>>,
    pub(crate) keepalive: Option<KeepaliveTimer>,
    pub(crate) peer_close: Option<CloseFrame>,
}

enum ClosePhase {
    Open,
    /// This side has sent its close frame, and the peer has not.
    Closing,
    /// This side's last frame is being written. Then the connection ends with this outcome.
    Ending(Result<(), WebSocketError>),
    /// Input is discarded, up to this number of bytes. Closing the stream with unread input could reset it, and the
    /// peer would lose our last frame.
    Discarding(Result<(), WebSocketError>, usize),
    Over,
}

impl WebSocketConnection {
    pub(crate) fn new(io: Box<dyn ByteStream>, role: Role, message_len_max: u64) -> Self {
        Self {
            io,
            role,
            decoder: Decoder::new(role, message_len_max),
            encoder: Encoder::new(role),
            input: BytesMut::new(),
            output: BytesMut::new(),
            output_len_max: OUTPUT_LEN_MAX,
            is_flushed: true,
            phase: ClosePhase::Open,
            late: None,
            keepalive: None,
            peer_close: None,
        }
    }

    /// Queues a message, unless this side has closed.
    pub(crate) fn queue<'a>(&mut self, kind: MessageKind, parts: impl Iterator<Item = &'a [u8]> + Clone) {
        if matches!(self.phase, ClosePhase::Open) {
            self.encoder.message(kind, parts, &mut self.output);
        }
    }

    /// Returns the number of bytes queued for writing.
    pub(crate) fn queued(&self) -> usize {
        self.output.len()
    }

    /// Returns `true` if reading must wait until queued output is written.
    fn is_full(&self) -> bool {
        self.output.len() >= self.output_len_max
    }

    /// Returns `true` if messages can still be queued.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, ClosePhase::Open)
    }

    /// Starts the closing handshake, unless it has started.
    pub(crate) fn close(&mut self, close: &CloseFrame) {
        if self.is_open() {
            self.encoder.close(close, &mut self.output);
            self.phase = ClosePhase::Closing;
        }
    }

    /// Ends the connection and sends the reason to the peer.
    pub(crate) fn refuse(&mut self, close: CloseFrame) {
        if self.is_open() {
            self.encoder.close(&close, &mut self.output);
        }
        self.phase = ClosePhase::Ending(Err(WebSocketError::Refused(close)));
    }

    /// Returns the next message fragment, or `None` after a clean close.
    ///
    /// Decodes all received frames before any I/O, so that the replies to frames received together are written
    /// together.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<MessageFragment, WebSocketError>>> {
        loop {
            match &self.phase {
                ClosePhase::Over => return Poll::Ready(None),
                ClosePhase::Ending(_) | ClosePhase::Discarding(..) => {
                    return self.poll_end(cx).map(|ended| ended.err().map(Err));
                }
                ClosePhase::Open | ClosePhase::Closing => {}
            }
            match self.decoder.next(&mut self.input) {
                Ok(Some(WebSocketEvent::Data(fragment))) => return Poll::Ready(Some(Ok(fragment))),
                Ok(Some(WebSocketEvent::Ping(content))) => {
                    if self.is_open() {
                        self.encoder.control(Opcode::Pong, &content, &mut self.output);
                    }
                }
                Ok(Some(WebSocketEvent::Pong)) => {}
                Ok(Some(WebSocketEvent::Close(close))) => {
                    // In `Closing`, the close frame was sent before.
                    if self.is_open() {
                        self.encoder.close(&CloseFrame { code: close.code, reason: String::new() }, &mut self.output);
                    }
                    self.peer_close = Some(close);
                    self.phase = ClosePhase::Ending(Ok(()));
                }
                Err(close) => self.refuse(close),
                Ok(None) => {
                    if let Err(error) = ready!(self.poll_read(cx)) {
                        self.phase = ClosePhase::Over;
                        return Poll::Ready(Some(Err(WebSocketError::Io(error))));
                    }
                }
            }
        }
    }

    /// Writes queued frames, then reads once.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Checked first: a full output, or a peer that never stops sending, must not extend the closing handshake.
        if matches!(self.phase, ClosePhase::Closing) && self.poll_late(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the peer did not answer the close frame in time",
            )));
        }
        // Stop reading from a peer that sends pings without reading the pongs: they would fill the output.
        if self.poll_write_out(cx)?.is_pending() && self.is_full() {
            // A ping could not be written now. A peer that takes no byte before the keepalive timeout is dead.
            while let Some(keepalive) = &mut self.keepalive {
                ready!(keepalive.poll_due(cx))?;
            }
            return Poll::Pending;
        }
        match self.poll_fill(cx) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the peer ended the connection without a close frame",
            ))),
            Poll::Ready(read) => {
                if let Some(keepalive) = &mut self.keepalive {
                    keepalive.record_input();
                }
                Poll::Ready(read.map(|_| ()))
            }
            Poll::Pending if matches!(self.phase, ClosePhase::Closing) => Poll::Pending,
            Poll::Pending => {
                while let Some(keepalive) = &mut self.keepalive {
                    ready!(keepalive.poll_due(cx))?;
                    self.encoder.control(Opcode::Ping, &[], &mut self.output);
                    // If the ping cannot be written now, the waker is registered for it.
                    let _ = self.poll_write_out(cx)?;
                }
                Poll::Pending
            }
        }
    }

    /// Reads into `input` and returns the number of bytes.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.decoder.frame_left() >= READ_LEN as u64 {
            self.input.reserve(READ_LEN);
            return poll_read_buf(Pin::new(&mut self.io), cx, &mut self.input);
        }
        // Read into the stack and copy: an idle connection then holds no input buffer.
        let mut chunk = [const { MaybeUninit::uninit() }; READ_LEN];
        let mut chunk = ReadBuf::uninit(&mut chunk);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut chunk))?;
        self.input.extend_from_slice(chunk.filled());
        Poll::Ready(Ok(chunk.filled().len()))
    }

    /// Completes the closing handshake after the last frame was queued.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WebSocketError>> {
        loop {
            if self.poll_late(cx).is_ready() {
                return Poll::Ready(self.end());
            }
            match &mut self.phase {
                ClosePhase::Ending(_) => {
                    if ready!(self.poll_write_out(cx)).is_err()
                        || ready!(Pin::new(&mut self.io).poll_shutdown(cx)).is_err()
                    {
                        return Poll::Ready(self.end());
                    }
                    let outcome = self.end();
                    // After a clean close, the server ends the stream first (RFC 6455, section 7.1.1).
                    if outcome.is_ok() && self.role == Role::Server {
                        return Poll::Ready(outcome);
                    }
                    self.phase = ClosePhase::Discarding(outcome, DISCARD_LEN_MAX);
                }
                ClosePhase::Discarding(_, left) => {
                    self.input.clear();
                    self.input.reserve(READ_LEN);
                    match ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut self.input)) {
                        Ok(len) if len > 0 && len <= *left => *left -= len,
                        _ => return Poll::Ready(self.end()),
                    }
                }
                ClosePhase::Open | ClosePhase::Closing | ClosePhase::Over => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Ends the connection and returns its outcome.
    fn end(&mut self) -> Result<(), WebSocketError> {
        match mem::replace(&mut self.phase, ClosePhase::Over) {
            ClosePhase::Ending(outcome) | ClosePhase::Discarding(outcome, _) => outcome,
            ClosePhase::Open | ClosePhase::Closing | ClosePhase::Over => Ok(()),
        }
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.late.get_or_insert_with(|| Box::pin(sleep(CLOSE_TIME_MAX))).as_mut().poll(cx)
    }

    /// Writes and flushes all queued frames.
    pub(crate) fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            self.is_flushed = false;
            let was_full = self.is_full();
            let len = ready!(Pin::new(&mut self.io).poll_write(cx, &self.output))?;
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output.advance(len);
            // Nothing is read while the output is full, so progress of a slow peer counts as input.
            if let (true, Some(keepalive)) = (was_full, &mut self.keepalive) {
                keepalive.record_input();
            }
            if self.output.is_empty() && self.output.capacity() > OUTPUT_LEN_MAX {
                self.output = BytesMut::new();
            }
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all queued frames and shuts down the stream.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Unwritten bytes at which reading and writing pause.
pub(crate) const OUTPUT_LEN_MAX: usize = 64 * 1024;

/// The maximum length of a read.
const READ_LEN: usize = 16 * 1024;

/// The maximum time for the closing handshake.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

/// The maximum length of discarded input after the last frame.
const DISCARD_LEN_MAX: usize = 1024 * 1024;
