//! The end of a connection: flushing, closing or handing over its socket.

use std::{io, sync::Arc};

use bytes::{Buf as _, BufMut as _, BytesMut};
use futures_util::FutureExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    inbox::Inbox,
    linger::{linger, refusal},
};
use crate::{CloseReason, Packet, ProtocolError, Raw, connection::ConnectionShared, net::IoStream};

/// The socket of an ended connection, with the input that was not handled.
pub(super) struct Remains<'a> {
    pub(super) shared: &'a ConnectionShared,
    pub(super) wire: IoStream,
    pub(super) inbox: Inbox,
    /// Decoded packets, converted back to bytes for a takeover.
    pub(super) packets: Vec<Packet>,
}

impl Remains<'_> {
    /// Closes or hands over the socket, depending on `reason`. Returns the final close reason.
    pub(super) async fn close(mut self, reason: CloseReason, kill: &CancellationToken) -> CloseReason {
        self.inbox.wake_for_any_byte(&self.wire);
        let has_parted = match &reason {
            CloseReason::TakenOver => return self.hand_over().await.err().unwrap_or(reason),
            CloseReason::Silent { .. } | CloseReason::WriteStalled { .. } | CloseReason::Io(_) => false,
            // The result does not matter: the connection is over.
            _ => kill.run_until_cancelled(self.part(&reason)).await.is_some(),
        };
        if !has_parted && self.wire.needs_flush() {
            // The close does not wait for TLS, but TLS may send its close message if the socket accepts it immediately.
            let _ = self.wire.shutdown().now_or_never();
        }
        reason
    }

    /// Delivers everything written so far and the end of the stream to the peer.
    async fn part(&mut self, reason: &CloseReason) {
        let config = &self.shared.config;
        if let CloseReason::Protocol(ProtocolError::Foreign(foreign)) = reason {
            // Nothing else was written to this peer, so the refusal cannot split another message.
            let _ = timeout(config.write_stall_max, self.wire.write_all(refusal(*foreign))).await;
        }
        // TLS may still buffer output. An error does not matter: the peer no longer reads.
        let _ = timeout(config.write_stall_max, self.wire.flush()).await;
        if !matches!(reason, CloseReason::Peer | CloseReason::Truncated) {
            let _ = timeout(config.linger_max, linger(&mut self.wire)).await;
        } else if self.wire.needs_flush() {
            // TLS needs its own close message. If only the socket closes, the peer reports a truncated stream.
            let _ = timeout(config.write_stall_max, self.wire.shutdown()).await;
        }
    }

    /// Passes the socket to the task that takes over, with all unprocessed bytes.
    async fn hand_over(self) -> Result<(), CloseReason> {
        let Self { shared, mut wire, inbox, packets } = self;
        let limit = shared.config.write_stall_max;
        let flushed = timeout(limit, async {
            // A failure reappears when the new owner uses the stream.
            let _ = wire.flush().await;
            wire.off_ring().await
        });
        let (mut wire, more) = match flushed.await {
            Ok(Ok(flushed)) => flushed,
            Ok(Err(error)) => return Err(CloseReason::Io(Arc::new(error))),
            Err(_) => return Err(CloseReason::WriteStalled { limit }),
        };
        let mut unread = inbox.into_bytes();
        unread.extend_from_slice(&more);
        // A content being discarded belongs to a packet. Raw bytes start after its end.
        let left = shared.core().proto.discard_len();
        let here = left.min(unread.len());
        unread.advance(here);
        let discarding = timeout(shared.config.discard_time_max, discard(&mut wire, left - here));
        if let Err(error) = discarding.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            return Err(CloseReason::Io(Arc::new(error)));
        }
        let mut core = shared.core();
        core.proto.undo_input(packets, &mut unread);
        let Some(taker) = core.taker.take() else { return Ok(()) };
        let (format, has_checksums) = (core.proto.format_or_fallback(), core.proto.has_checksums());
        drop(core);
        let (local, peer) = (shared.local.clone(), shared.peer.clone());
        // If nothing waits for the socket any more, it is closed.
        let _ = taker.send(Raw::new(wire, unread.freeze(), format, local, peer).with_checksums(has_checksums));
        Ok(())
    }
}

/// Reads and drops `left` bytes, or all bytes up to the end of the stream.
async fn discard(wire: &mut IoStream, mut left: usize) -> io::Result<()> {
    let mut discarded = BytesMut::with_capacity(DISCARD_READ_LEN);
    while left > 0 {
        match wire.read_buf(&mut (&mut discarded).limit(left)).await? {
            0 => break,
            len => left -= len,
        }
        discarded.clear();
    }
    Ok(())
}

const DISCARD_READ_LEN: usize = 4 * 1024;
