//! Writing: from batches of the outbox to the socket.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Buf as _;
use tokio::{io::AsyncWrite, time::Instant};

use super::{
    Driver,
    handlers::InPlaceRoute,
    states::{InputState, OutputState},
};
use crate::{CloseReason, Router, connection::WriteStep, proto::Transmit, router::Event};

impl<R: Router, P: InPlaceRoute> Driver<'_, R, P> {
    /// Writes queued output until the socket accepts no more.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>, now: Instant) {
        // If nothing happened in this round, the outbox is unchanged: queueing a packet wakes this task.
        if !self.turn.is_busy && !self.output.batch.has_remaining() && matches!(self.output.state, OutputState::Flushed)
        {
            return;
        }
        if let OutputState::Failed(_) = self.output.state {
            return self.shared.core().proto.discard_output();
        }
        let mut written = 0;
        loop {
            match self.shared.next_batch(now.into_std(), written, &mut self.output.batch) {
                WriteStep::Batch => {}
                WriteStep::Writable => {
                    if let Some(panicked) = self.handlers.notify_router(Event::Writable) {
                        self.shared.apply(panicked);
                    }
                    written = 0;
                    continue;
                }
                WriteStep::Nothing => break,
            }
            written = match self.poll_write(cx) {
                Poll::Ready(Ok(len)) => len,
                Poll::Ready(Err(error)) => return self.fail_output(now, error),
                Poll::Pending => return,
            };
            self.turn.is_busy = true;
            if let OutputState::Flushed = self.output.state
                && self.wire.needs_flush()
            {
                self.output.state = OutputState::Unflushed;
            }
        }
        if let OutputState::Unflushed = self.output.state
            && Pin::new(&mut self.wire).poll_flush(cx).is_ready()
        {
            self.output.state = OutputState::Flushed;
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let wire = Pin::new(&mut self.wire);
        // A plain write costs the kernel less than a vectored one.
        let written = if self.output.batch.chunk().len() < self.output.batch.remaining() && wire.is_write_vectored() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.output.batch.chunks_vectored(&mut slices);
            wire.poll_write_vectored(cx, &slices[..count])
        } else {
            wire.poll_write(cx, self.output.batch.chunk())
        };
        match written {
            // Otherwise the write loop would never end.
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => written,
        }
    }

    /// Handles a write error. Nothing more can be written to the socket.
    fn fail_output(&mut self, now: Instant, error: io::Error) {
        self.turn.is_busy = true;
        self.output.batch = Transmit::default();
        let error = Arc::new(error);
        if self.shared.core().proto.is_open() {
            self.output.state = OutputState::Failed(error);
            self.start_give_up_timer(now);
        } else {
            // The failure of a read came first.
            let first = if let InputState::Failed(first) = &self.input.state { first.clone() } else { error };
            self.shared.fail(CloseReason::Io(first));
        }
    }
}

const SLICES_MAX: usize = 64;
