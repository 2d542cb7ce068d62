//! The end of a connection: how the socket is parted with.

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
use crate::{CloseReason, Connection, Packet, ProtocolError, Raw, Router, net::Wire, shared::Shared};

impl<'a, R: Router, P: InPlaceRoute> Driver<'a, R, P> {
    /// Bounds what follows a failure of the socket: handlers of what had arrived get their time, and no more than that.
    pub(super) fn begin_to_give_up(&mut self, now: Instant) {
        if self.give_up.is_none() {
            self.give_up = now.checked_add(self.connection.config().write_stall_max);
        }
    }

    /// Says how the failure of the socket ends the connection.
    pub(super) fn failure(&self) -> CloseReason {
        match (&self.end, &self.write_failure) {
            (Some(End::Failed(error)), _) => CloseReason::Io(error.clone()),
            (Some(End::Closed(reason)), _) => reason.clone(),
            (_, None) => CloseReason::Peer,
            (_, Some(error)) => CloseReason::Io(error.clone()),
        }
    }

    /// Parts with the socket in the way the reason asks for. Returns the reason for which the connection has
    /// really ended, and the handlers that are left.
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
            // However it ends: the connection is over.
            _ => kill.run_until_cancelled(self.part(&reason)).await.is_some(),
        };
        if !has_parted && self.wire.needs_flush() {
            // Nothing waits for such an end, but TLS may announce it if the socket takes that at once.
            let _ = self.wire.shutdown().now_or_never();
        }
        (reason, self.handlers)
    }

    /// Has everything that was written arrive, and the end of it.
    async fn part(&mut self, reason: &CloseReason) {
        let config = self.connection.config();
        if let CloseReason::Protocol(ProtocolError::Foreign(foreign)) = reason {
            // Nothing else was ever written to such a peer that could be cut in two.
            let _ = timeout(config.write_stall_max, self.wire.write_all(refusal(*foreign))).await;
        }
        // TLS may still hold some of it. A failure says that the peer does not want it.
        let _ = timeout(config.write_stall_max, self.wire.flush()).await;
        if !matches!(reason, CloseReason::Peer | CloseReason::Truncated) {
            let _ = timeout(config.linger_max, linger(&mut self.wire)).await;
        } else if self.wire.needs_flush() {
            // Closing the socket says nothing to TLS: without its own end, the peer takes the stream for cut off.
            let _ = timeout(config.write_stall_max, self.wire.shutdown()).await;
        }
    }

    async fn hand_over(self) -> (Result<(), CloseReason>, Handlers<'a, R, P>) {
        let Self { connection, shared, wire, inbox, mut backlog, arrived, handlers, .. } = self;
        // In the order in which they came: what waits for a handler is older than what was only decoded.
        let packets = backlog.take().into_iter().map(|waiting| waiting.packet).chain(arrived);
        (hand_over(connection, shared, wire, inbox, packets).await, handlers)
    }
}

/// Gives the socket to the task that takes over, with all bytes that nothing has dealt with. `packets` were decoded, and are bytes
/// again.
async fn hand_over(
    connection: &Connection,
    shared: &Shared,
    mut wire: Wire,
    inbox: Inbox,
    packets: impl Iterator<Item = Packet> + Send,
) -> Result<(), CloseReason> {
    let limit = shared.core().proto.config().write_stall_max;
    let flushed = timeout(limit, async {
        // A failure shows up again as soon as the new owner uses the stream.
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
    // The rest of a content that was being discarded belongs to a packet: what is raw begins behind it.
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
    let (local, peer) = shared.addresses();
    // A taker that went away has given up the connection.
    let raw = Raw::new(wire, unread.freeze(), format, local.clone(), peer.clone()).with_checksums(has_checksums);
    let _ = taker.send(raw);
    Ok(())
}

/// Reads and drops this number of bytes, or up to the end.
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
