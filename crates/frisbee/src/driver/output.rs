//! Writing.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Buf as _;
use tokio::{io::AsyncWrite, time::Instant};

use super::{Driver, End};
use crate::{CloseReason, proto::Transmit};

impl Driver<'_> {
    /// Writes what there is to write, as far as the socket takes it. Whether it took anything.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        if self.write_failure.is_some() {
            self.shared.core().proto.discard_output();
            return false;
        }
        let mut is_busy = false;
        if !self.batch.has_remaining() {
            self.shared.core().proto.poll_transmit(now.into_std(), &mut self.batch);
        }
        while self.batch.has_remaining() {
            match self.poll_write(cx) {
                Poll::Ready(Ok(len)) => {
                    is_busy = true;
                    self.needs_flush = self.wire.needs_flush();
                    self.shared.handle_written(now.into_std(), len, &mut self.batch);
                }
                Poll::Ready(Err(error)) => {
                    self.batch = Transmit::default();
                    let error = Arc::new(error);
                    if self.shared.core().proto.is_open() {
                        self.write_failure = Some(error);
                        self.begin_to_give_up(now);
                    } else {
                        let read_failure = self.end.as_ref().filter(|end| matches!(end, End::Failed(_)));
                        let reason = read_failure.map_or(CloseReason::Io(error), |_| self.failure());
                        self.shared.fail(reason);
                    }
                    return true;
                }
                Poll::Pending => return is_busy,
            }
        }
        if self.needs_flush && Pin::new(&mut self.wire).poll_flush(cx).is_ready() {
            self.needs_flush = false;
        }
        is_busy
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let wire = Pin::new(&mut self.wire);
        // A plain write costs the kernel less than a vectored one.
        let written = if self.batch.chunk().len() < self.batch.remaining() && wire.is_write_vectored() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.batch.chunks_vectored(&mut slices);
            wire.poll_write_vectored(cx, &slices[..count])
        } else {
            wire.poll_write(cx, self.batch.chunk())
        };
        match written {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => written,
        }
    }
}

const SLICES_MAX: usize = 64;
