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

    /// Returns the operation with this number, or `None` if the number is reserved.
    pub const fn new(number: u16) -> Option<Self> {
        if number < Self::FIRST { None } else { Some(Self(number)) }
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

    /// Copies the content out of the buffer it was received in, and returns the same packet.
    pub fn detached(self) -> Self {
        Self { content: Bytes::copy_from_slice(&self.content).into(), ..self }
    }
}
