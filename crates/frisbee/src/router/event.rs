//! Events of a connection.

use crate::{
    CloseReason, PacketName,
    proto::{GoAway, PeerProtocol},
};

/// An event of a connection, other than arriving packets and streams.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The connection was established. Always the first event, before any packet.
    Opened,
    /// The protocol of the peer is known.
    ///
    /// An extended peer is recognized before the packets it sends after its HELLO. If the connecting side finds a plain
    /// peer, the event comes immediately.
    Recognized(&'a PeerProtocol),
    /// All packets of one read were handed to [`Router::intercept`](crate::Router::intercept) and
    /// [`Router::route`](crate::Router::route).
    ///
    /// A router that collects packets can now process them together. Packets queued for a handler follow later. The
    /// event is repeated after them, and after handlers that were not ready immediately. It also comes if the read
    /// brought nothing for the router.
    Received,
    /// The outbox accepts packets again after refusing some, regardless of their sender.
    ///
    /// The event comes once, however many packets were refused before. Other senders may have used the space already.
    /// The event can come before a sender on another thread has recorded its refusal, so such a sender should record
    /// the refusal and then try once more.
    Writable,
    /// The peer wants no new packets or streams on this connection. Work in progress continues.
    GoingAway(&'a GoAway),
    /// A [withdrawn](crate::Connection::withdraw) packet will not be answered.
    Withdrawn(PacketName),
    /// The connection ended. The last event, after the last packet, exactly once for each [`Opened`](Self::Opened).
    Closed(&'a CloseReason),
}
