//! Compatibility of two proto files: can one side read the other side's messages in protobuf's own encoding?
//!
//! Two sides with different [fingerprints](crate::fingerprint) of a message cannot use the encoding of frpc. Most
//! changes of a proto file are safe in protobuf's encoding, however. [`find_mismatch`] finds the first unsafe change, by these
//! rules:
//!
//! - Fields are identified by number. A field unknown to one side is compatible: that side skips it or leaves it unset.
//!   Names of fields and messages do not matter.
//! - Two types are compatible if they share an encoding. The groups are: `int32`, `int64`, `uint32`, `uint64`, `bool`
//!   and enums; `sint32` and `sint64`; `fixed32` and `sfixed32`; `fixed64` and `sfixed64`; `string` and `bytes`. Bytes
//!   with invalid UTF-8 do not decode as a `string`. The declarations cannot rule that out, so only that call fails.
//!   Every other type is compatible only with itself.
//! - Messages are compatible if their fields are. A map counts as a list of messages with the fields `key` (1) and
//!   `value` (2).
//! - The reader may have a list where the writer has a single field. The reverse would lose items, so it is
//!   incompatible.
//! - Fields the writer can set at the same time must not be members of one oneof on the reader's side, because the
//!   reader would keep only the last of them. A single field may move into a new oneof, and members may leave theirs.
//! - `optional` and `required` do not matter: the reader treats an absent field as unset.
//! - A group is compatible only with a group. Their fields are compared like those of messages.
//!
//! Some compatible changes lose values without an error. [`narrowing`] finds the first such field:
//!
//! - An integer outside the range of the reader's type: `int64` read as `int32` (2^40 becomes 0), `uint32` as `int32`
//!   or the reverse, or any type except `bool` read as `bool`. Enums have the range of `int32`.
//! - A list of messages read as a map. Only one entry per key remains.
//!
//! A peer's descriptors may contain anything. A comparison always terminates, and its time and memory are proportional
//! to the descriptors' size and to [`FIELDS_MAX`].

mod comparison;
mod declarations;
mod mismatch;
#[cfg(test)]
mod tests;
mod types;

use self::comparison::{MessageComparison, MessagePair};
pub use self::{
    declarations::Declarations,
    mismatch::{FIELDS_MAX, MessageField, MessageMismatch, MismatchReason, PeerRole},
    types::has_same_values,
};
use crate::diagnostic::shown;

/// Role of a message in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageRole {
    /// Messages written by the caller and read by the server.
    Request,
    /// Messages written by the server and read by the caller.
    Response,
}

/// A message with the declarations of its side.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredMessage<'a> {
    /// All declarations of the side.
    pub declarations: &'a Declarations<'a>,
    /// Full name of the message.
    pub name: &'a str,
}

/// Returns the first incompatibility between the two declarations of a message, or `None`. `peer` and `part` determine
/// which side writes the message.
///
/// ```
/// use frpc_schema::compat::{Declarations, DeclaredMessage, MessageRole, PeerRole, find_mismatch};
///
/// fn check(ours: &prost_types::FileDescriptorSet, theirs: &prost_types::FileDescriptorSet) -> Result<(), String> {
///     let (ours, theirs) = (Declarations::of(ours), Declarations::of(theirs));
///     let here = DeclaredMessage { declarations: &ours, name: "shop.Order" };
///     let there = DeclaredMessage { declarations: &theirs, name: "shop.Order" };
///     match find_mismatch(here, there, PeerRole::Server, MessageRole::Request) {
///         // For example "field `price` (3) of shop.Item is string here and double on the server".
///         Some(find_mismatch) => Err(find_mismatch.to_string()),
///         None => Ok(()),
///     }
/// }
/// ```
pub fn find_mismatch(
    here: DeclaredMessage<'_>,
    there: DeclaredMessage<'_>,
    peer: PeerRole,
    part: MessageRole,
) -> Option<MessageMismatch> {
    find(here, there, peer, part, false)
}

/// Returns the first field that loses values, or `None`. `peer` and `part` determine which side writes the message.
///
/// A field loses values if it is [incompatible](find_mismatch) or if it [narrows](MismatchReason::Narrows).
pub fn narrowing(
    here: DeclaredMessage<'_>,
    there: DeclaredMessage<'_>,
    peer: PeerRole,
    part: MessageRole,
) -> Option<MessageMismatch> {
    find(here, there, peer, part, true)
}

fn find(
    here: DeclaredMessage<'_>,
    there: DeclaredMessage<'_>,
    peer: PeerRole,
    part: MessageRole,
    keeps_values: bool,
) -> Option<MessageMismatch> {
    let undeclared = |side: DeclaredMessage<'_>, is_here| MessageMismatch {
        path: shown(side.name),
        reason: MismatchReason::Undeclared { message: shown(side.name), is_here },
        peer,
    };
    let Some(own) = here.declarations.find(here.name) else { return Some(undeclared(here, true)) };
    let Some(other) = there.declarations.find(there.name) else { return Some(undeclared(there, false)) };
    let is_writer =
        matches!((peer, part), (PeerRole::Server, MessageRole::Request) | (PeerRole::Caller, MessageRole::Response));
    let mut comparison = MessageComparison {
        here: here.declarations,
        there: there.declarations,
        is_writer,
        keeps_values,
        pairs: Vec::new(),
    };
    comparison.pairs.push(MessagePair { here: own, there: other, name: here.name, within: None });
    let (at, field, reason) = comparison.run()?;
    Some(MessageMismatch { path: comparison.path(at, field), reason, peer })
}
