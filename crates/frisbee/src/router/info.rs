//! The facts about a router that stay the same for all its connections.

use bytes::Bytes;

/// The facts about a router that hold for all its connections, as returned by [`Router::describe`](crate::Router::describe).
///
/// A router in front of another one changes the fields that it decides:
///
/// ```
/// use frisbee::{RouterInfo, SendOrder};
///
/// let of_fallback = RouterInfo::default();
/// let info = RouterInfo { send_order: SendOrder::Relaxed, ..of_fallback }.with_part("example", "1.0");
/// assert_eq!(info.parts.len(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterInfo {
    /// The bytes that this side sends an extended peer about each of its applications, under the application's name. They reach the
    /// application of the same name there as [`Hello::part`](crate::proto::Hello::part).
    pub parts: Vec<(&'static str, Bytes)>,
    /// True if this side closes a connection itself once it waits for nothing more, after the peer asked it to leave
    /// ([`Event::GoingAway`](crate::Event::GoingAway)). An extended peer is told so, and may wait for that
    /// ([`ServerBuilder::lame_duck`](crate::ServerBuilder::lame_duck)).
    pub leaves: bool,
    /// The order in which packets of this side reach the peer.
    pub send_order: SendOrder,
}

impl RouterInfo {
    /// Sets the part of an application, which replaces one of the same name.
    pub fn with_part(mut self, name: &'static str, part: impl Into<Bytes>) -> Self {
        self.parts.retain(|(other, _)| *other != name);
        self.parts.push((name, part.into()));
        self
    }
}

/// A rule about packets that overtake larger ones on their way to the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendOrder {
    /// Everything that one task sends arrives in order.
    #[default]
    Kept,
    /// Packets and data of streams may overtake larger ones with another id. Large contents then do not delay small ones: an
    /// extended peer gets them in pieces, with others in between. Send a packet that asks for a takeover when nothing large is under
    /// way: it could overtake that, whose rest would be raw bytes.
    Relaxed,
    /// The router sends nothing, so a router in front of it decides. Without one, the order is kept.
    Unused,
}
