//! Packets, and the operation numbers that say what each one asks for.

use std::fmt;

use bytes::Bytes;

use crate::Content;

/// The number that says what a packet asks for. Numbers below [`Operation::FIRST`] belong to the protocol and cannot be
/// made.
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
    /// The lowest number that applications may use.
    pub const FIRST: u16 = 10;

    /// The operation of packets whose contents only extended peers understand. It is taken for sending once the peer is known
    /// to be [extended](crate::proto::Peer::Extended).
    pub const EXTENDED: Self = Self(4);

    /// Returns the operation with this number, or `None` if the number is reserved.
    pub const fn new(number: u16) -> Option<Self> {
        if number < Self::FIRST { None } else { Some(Self(number)) }
    }

    /// Returns the operation of a packet with this number, which may be [`Operation::EXTENDED`].
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

/// The name of a packet among those that its sender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketName {
    /// The id of the packet.
    pub id: u16,
    /// The operation of the packet.
    pub operation: Operation,
}

/// One message: an operation, an id that the application may use as it likes, and content.
///
/// The content of a received packet is a slice of the read buffer. Keeping a small one for long keeps up to 16 KiB
/// alive behind it; [`Packet::detached`] moves it into memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Free for the application, typically to match a reply to its request.
    pub id: u16,
    /// The number that says what the packet asks for.
    pub operation: Operation,
    /// The message itself, opaque to frisbee.
    pub content: Content,
}

impl Packet {
    /// Makes a packet with this id, operation and content. A content in several pieces is made from a `Vec<Bytes>`.
    pub fn new(id: u16, operation: Operation, content: impl Into<Content>) -> Self {
        Self { id, operation, content: content.into() }
    }

    /// Returns what the packet is called in what both sides say of it.
    pub fn name(&self) -> PacketName {
        PacketName { id: self.id, operation: self.operation }
    }

    /// Copies the content out of the buffer it was received in, and returns the same packet.
    pub fn detached(self) -> Self {
        Self { content: Bytes::copy_from_slice(&self.content).into(), ..self }
    }
}
