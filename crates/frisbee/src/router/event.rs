//! News of a connection.

use crate::{
    CloseReason, PacketName,
    proto::{GoAway, Peer},
};

/// Something that happened to a connection, apart from the packets and streams that arrive.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The connection was established. This is the first event, before any packet.
    Opened,
    /// The peer has shown what it speaks. Comes before the packets that an extended peer sends after that, and immediately if a
    /// connecting side finds its peer plain.
    Recognized(&'a Peer),
    /// Everything that one read brought has been handed to [`Router::intercept`](crate::Router::intercept) and
    /// [`Router::route`](crate::Router::route). A router that collects packets can now act on all of them together. Packets that wait
    /// for a handler come later. The event is then repeated, as it is after handlers that were not ready immediately. It also comes
    /// when the read brought nothing for the router.
    Received,
    /// The outbox takes packets again, after it had no room for some, whoever sent them. Their senders may have taken the room
    /// already: the event comes once for each time that something found no room. It may come before a sender on another thread has
    /// noted that it was refused, so such a sender tries once more after noting it.
    Writable,
    /// The peer wants no new packets and streams on this connection. What is under way continues.
    GoingAway(&'a GoAway),
    /// A packet that was [withdrawn](crate::Connection::withdraw) will not be answered.
    Withdrawn(PacketName),
    /// The connection ended. This is the last event, after the last packet, and comes once for each [`Opened`](Self::Opened).
    Closed(&'a CloseReason),
}
