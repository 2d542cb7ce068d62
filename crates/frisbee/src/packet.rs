//! Packets and their operation numbers.

use std::fmt;

use bytes::Bytes;

use crate::Content;

/// The purpose of a packet, as a number. Numbers below [`Operation::FIRST`] are reserved for the protocol.
///
/// ```
/// use frisbee::Operation;
///
/// const GREET: Operation = Operation::new(20).unwrap();
/// assert_eq!(GREET.number(), 20);
/// assert!(Operation::new(9).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation(u16);

impl Operation {
    /// The lowest number available to applications.
    pub const FIRST: u16 = 10;

    /// The operation of packets for [extended](crate::proto::PeerProtocol::Extended) peers only. Cannot be sent to
    /// other peers.
    pub const EXTENDED: Self = Self(4);

    /// Returns the operation with this number, or `None` for a reserved number.
    pub const fn new(number: u16) -> Option<Self> {
        if number < Self::FIRST { None } else { Some(Self(number)) }
    }

    /// Returns the operation of a received packet. In addition to [`new`](Self::new), accepts
    /// [`Operation::EXTENDED`].
    pub(crate) const fn from_wire(number: u16) -> Option<Self> {
        if number == Self::EXTENDED.0 { Some(Self::EXTENDED) } else { Self::new(number) }
    }

    /// Returns the number on the wire.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operation({})", self.0)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a packet for its sender: id and operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketName {
    /// The id of the packet.
    pub id: u16,
    /// The operation of the packet.
    pub operation: Operation,
}

/// One message: an operation, an id for the application's own use, and content.
///
/// The content of a received packet is a slice of the read buffer. A small content kept for long also keeps up to
/// 16 KiB of that buffer alive; [`Packet::detached`] copies it into its own memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// An id for the application's own use, typically to match a reply to its request.
    pub id: u16,
    /// The purpose of the packet.
    pub operation: Operation,
    /// The message, opaque to frisbee.
    pub content: Content,
}

impl Packet {
    /// Creates a packet with this id, operation and content. A `Vec<Bytes>` becomes a content of several pieces.
    pub fn new(id: u16, operation: Operation, content: impl Into<Content>) -> Self {
        Self { id, operation, content: content.into() }
    }

    /// Returns the id and operation, the name of the packet between both sides.
    pub fn name(&self) -> PacketName {
        PacketName { id: self.id, operation: self.operation }
    }

    /// Returns the packet with its content copied out of the receive buffer.
    pub fn detached(self) -> Self {
        Self { content: Bytes::copy_from_slice(&self.content).into(), ..self }
    }
}
