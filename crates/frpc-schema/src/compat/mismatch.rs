//! Incompatibilities of messages.

use std::fmt;

/// Maximum number of fields compared in one call of [`find_mismatch`](super::find_mismatch). Messages with more fields, including those of all
/// messages they contain on both sides, count as incompatible.
pub const FIELDS_MAX: usize = 1 << 18;

/// Role of the other side in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerRole {
    /// The other side is the caller, this side the server.
    Caller,
    /// The other side is the server, this side the caller.
    Server,
}

/// An incompatibility between the two declarations of a message. `Display` prints a sentence without a full stop, for
/// readers on this side.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageMismatch {
    /// Path to the field or message, with the names of this side: `Order.items.price`.
    pub path: String,
    /// The violated rule.
    pub reason: MismatchReason,
    /// Role of the other side.
    pub peer: PeerRole,
}

/// Rule violated by two declarations of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MismatchReason {
    /// The types of a field are incompatible.
    Types {
        /// The field, as declared on this side.
        field: MessageField,
        /// Its type on this side, in the syntax of proto files.
        here: String,
        /// Its type on the other side.
        there: String,
    },
    /// The writer can set several fields at the same time, but the reader keeps only the last one.
    Together {
        /// The first of these fields.
        first: MessageField,
        /// Another of them.
        second: MessageField,
        /// True if this side is the writer.
        is_here: bool,
    },
    /// The field is compatible, but the reader loses some of its values. Returned only by [`narrowing`](super::narrowing).
    Narrows {
        /// The field, as declared on this side.
        field: MessageField,
        /// Its type on this side, in the syntax of proto files.
        here: String,
        /// Its type on the other side.
        there: String,
    },
    /// One side does not declare the message.
    Undeclared {
        /// Full name of the message.
        message: String,
        /// True if the declaration is missing on this side.
        is_here: bool,
    },
    /// The comparison exceeds [`FIELDS_MAX`].
    TooLarge {
        /// Full name of the message reached last.
        message: String,
    },
}

/// A field with its message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageField {
    /// Full name of the message.
    pub message: String,
    /// Name of the field.
    pub name: String,
    /// Number of the field.
    pub number: i32,
}

impl fmt::Display for MessageMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = match self.peer {
            PeerRole::Caller => "at the caller",
            PeerRole::Server => "on the server",
        };
        match &self.reason {
            MismatchReason::Types { field, here, there: type_there } => {
                write!(f, "field {field} of {} is {here} here and {type_there} {there}", field.message)
            }
            MismatchReason::Narrows { field, here, there: type_there } => {
                let of = &field.message;
                write!(f, "field {field} of {of} is {here} here and {type_there} {there}, and values would get lost")
            }
            MismatchReason::Together { first, second, is_here } => {
                let (one, other) = if *is_here { ("here", there) } else { (there, "here") };
                write!(f, "fields {first} and {second} of {} can be set together {one}, but not {other}", first.message)
            }
            MismatchReason::Undeclared { message, is_here } => {
                write!(f, "{message} is not declared {}", if *is_here { "here" } else { there })
            }
            MismatchReason::TooLarge { message } => {
                write!(f, "{message} cannot be compared: more than {FIELDS_MAX} fields were reached before it")
            }
        }
    }
}

impl fmt::Display for MessageField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.name, self.number)
    }
}
