//! The end of a connection: flushing, closing or handing over its socket.

use std::{io, sync::Arc};

use bytes::{Buf as _, BufMut as _, BytesMut};
use futures_util::FutureExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Driver, End,
    handlers::{Handlers, InPlaceRoute},
    inbox::Inbox,
    linger::{linger, refusal},
};
use crate::{CloseReason, Connection, Packet, ProtocolError, Raw, Router, connection::Shared, net::Wire};

impl<'a, R: Router, P: InPlaceRoute> Driver<'a, R, P> {
    /// Starts the time limit after a socket failure. Handlers of packets received before may use this time, but no
    /// more.
    pub(super) fn begin_to_give_up(&mut self, now: Instant) {
        if self.give_up.is_none() {
            self.give_up = now.checked_add(self.connection.config().write_stall_max);
        }
    }

    /// Returns the close reason for the failure of the socket.
    pub(super) fn failure(&self) -> CloseReason {
        match (&self.end, &self.write_failure) {
            (Some(End::Failed(error)), _) => CloseReason::Io(error.clone()),
            (Some(End::Closed(reason)), _) => reason.clone(),
            (_, None) => CloseReason::Peer,
            (_, Some(error)) => CloseReason::Io(error.clone()),
        }
    }

    /// Closes or hands over the socket, depending on `reason`. Returns the final close reason and the remaining
    /// handlers.
    pub(super) async fn leave(
        mut self,
        reason: CloseReason,
        kill: &CancellationToken,
    ) -> (CloseReason, Handlers<'a, R, P>) {
        let has_parted = match &reason {
            CloseReason::TakenOver => {
                let (handed_over, handlers) = self.hand_over().await;
                return (handed_over.err().unwrap_or(reason), handlers);
            }
            CloseReason::Silent { .. } | CloseReason::WriteStalled { .. } | CloseReason::Io(_) => false,
            // The result does not matter: the connection is over.
            _ => kill.run_until_cancelled(self.part(&reason)).await.is_some(),
        };
        if !has_parted && self.wire.needs_flush() {
            // The close does not wait for TLS, but TLS may send its close message if the socket accepts it immediately.
            let _ = self.wire.shutdown().now_or_never();
        }
        (reason, self.handlers)
    }

    /// Delivers everything written so far and the end of the stream to the peer.
    async fn part(&mut self, reason: &CloseReason) {
        let config = self.connection.config();
        if let CloseReason::Protocol(ProtocolError::Foreign(foreign)) = reason {
            // Nothing else was written to this peer, so the refusal cannot split another message.
            let _ = timeout(config.write_stall_max, self.wire.write_all(refusal(*foreign))).await;
        }
        // TLS may still buffer output. After an error, the peer no longer wants it.
        let _ = timeout(config.write_stall_max, self.wire.flush()).await;
        if !matches!(reason, CloseReason::Peer | CloseReason::Truncated) {
            let _ = timeout(config.linger_max, linger(&mut self.wire)).await;
        } else if self.wire.needs_flush() {
            // TLS needs its own close message. If only the socket closes, the peer reports a truncated stream.
            let _ = timeout(config.write_stall_max, self.wire.shutdown()).await;
        }
    }

    async fn hand_over(self) -> (Result<(), CloseReason>, Handlers<'a, R, P>) {
        let Self { connection, shared, wire, inbox, mut backlog, arrived, handlers, .. } = self;
        // In order of arrival: packets in the backlog are older than packets only decoded.
        let packets = backlog.take().into_iter().map(|waiting| waiting.packet).chain(arrived);
        (hand_over(connection, shared, wire, inbox, packets).await, handlers)
    }
}

/// Passes the socket to the task that takes over, with all unprocessed bytes. `packets` are decoded packets, converted
/// back to bytes.
async fn hand_over(
    connection: &Connection,
    shared: &Shared,
    mut wire: Wire,
    inbox: Inbox,
    packets: impl Iterator<Item = Packet> + Send,
) -> Result<(), CloseReason> {
    let limit = shared.core().proto.config().write_stall_max;
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
    let limit = connection.config().discard_time_max;
    let discarding = timeout(limit, discard(&mut wire, left - here));
    if let Err(error) = discarding.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        return Err(CloseReason::Io(Arc::new(error)));
    }
    let mut core = shared.core();
    core.proto.undo_input(packets, &mut unread);
    let Some(taker) = core.taker.take() else { return Ok(()) };
    let (format, has_checksums) = (core.proto.format_or_fallback(), core.proto.has_checksums());
    drop(core);
    // If the taker was dropped, the connection is dropped too.
    let raw = Raw::new(wire, unread.freeze(), format, shared.local.clone(), shared.peer.clone())
        .with_checksums(has_checksums);
    let _ = taker.send(raw);
    Ok(())
}

/// Reads and drops `left` bytes, or all bytes up to the end of the stream.
async fn discard(wire: &mut Wire, mut left: usize) -> io::Result<()> {
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
