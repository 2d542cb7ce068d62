//! Facts about a router that are the same for all its connections.

use bytes::Bytes;

/// Facts about a router, the same for all its connections. Returned by [`Router::describe`](crate::Router::describe).
///
/// A router that wraps another one overrides the fields it decides:
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
    /// Bytes sent to an extended peer, one entry per application with its name. The application of the same name at the
    /// peer reads them with [`Hello::part`](crate::proto::Hello::part).
    pub parts: Vec<(&'static str, Bytes)>,
    /// `true` if this side closes a connection after the peer asked it to leave
    /// ([`Event::GoingAway`](crate::Event::GoingAway)) and nothing is pending. An extended peer is told of this, and
    /// may wait for the close ([`ServerLimits::lame_duck`](crate::ServerLimits::lame_duck)).
    pub leaves: bool,
    /// Order in which packets of this side reach the peer.
    pub send_order: SendOrder,
}

impl RouterInfo {
    /// Sets the part of an application, replacing an existing part of the same name.
    pub fn with_part(mut self, name: &'static str, part: impl Into<Bytes>) -> Self {
        self.parts.retain(|(other, _)| *other != name);
        self.parts.push((name, part.into()));
        self
    }
}

/// The rule for packets overtaking larger ones on their way to the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendOrder {
    /// Everything sent by one task arrives in order.
    #[default]
    Kept,
    /// Packets and stream data may overtake larger ones with a different id.
    ///
    /// Large contents then do not delay small ones: an extended peer receives them in pieces, interleaved with other
    /// packets. Send a packet that requests a takeover only while nothing large is in flight. It could overtake a large
    /// packet, and the rest of that packet would be read as raw bytes.
    Relaxed,
    /// This router sends no packets. A wrapping router chooses the order; the default keeps it.
    Unused,
}
