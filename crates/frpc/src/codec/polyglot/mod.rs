//! The polyglot encoding of single messages, compatible with the Go implementation.
//!
//! A message consists of its fields in three groups: scalars, lists, then messages and maps. Within a group the fields
//! are in the order of declaration. There are no tags. Generated code calls a function of [`Writer`] or [`Reader`] for
//! each field. Information without a place in this layout goes into a [trailer]. Go peers ignore it.
//!
//! # Limits
//!
//! Decoding has bounds for any input and any schema:
//!
//! - **Memory**: [`Reader::MEMORY_FACTOR`] (16) bytes per byte of input, plus [`Reader::MEMORY_LEN_MIN`] (1 MiB). List
//!   elements, map entries, strings, copied bytes and boxed messages are counted before their allocation. Above the
//!   limit, decoding fails with [`DecodeErrorKind::TooMuchMemory`] and the path of the field. Ordinary messages stay
//!   far below the limit. Long lists of absent messages do not: each takes one byte of input and a whole struct in
//!   memory. A lower [`MemoryBudget`](super::MemoryBudget) fails with [`DecodeErrorKind::OverBudget`].
//! - **Depth**: [`Reader::DEPTH_MAX`] (100) nested messages, or fewer if they need more than [`Reader::STACK_LEN_MAX`]
//!   (512 KiB) of stack. Deeper messages fail with [`DecodeErrorKind::TooDeep`]. Any decoded message can be encoded,
//!   cloned, compared and dropped on a thread with 2 MiB of stack.
//! - **Time**: linear in the input, with a binary search for enum numbers.
//!
//! This module knows no packets, sockets or tasks.

mod choice;
mod decode;
mod encode;
mod enumeration;
mod error;
mod kind;
mod message;
mod pieces;
mod presence;
mod reader;
mod scalar;
mod sink;
mod slots;
mod small;
mod storage;
pub mod trailer;
mod well_known;
mod writer;

pub use self::{
    choice::Choice,
    decode::{DecodedContent, decode, decode_with, is_error},
    encode::{encode, encode_error, encode_pieces, encode_to, encode_with},
    enumeration::{Enumeration, Positions},
    error::{At, DecodeError, DecodeErrorKind, Failure, Result},
    kind::Kind,
    message::Message,
    pieces::EncodedMessage,
    presence::Presence,
    reader::Reader,
    scalar::MapEntries,
    sink::{CountingSink, Sink, Writable},
    small::SmallMessage,
    storage::{Blob, MessageStorage},
    writer::Writer,
};
pub(crate) use self::{
    decode::{decode_error, decode_part, decode_within},
    encode::{encode_small, encode_small_to, short_error},
};
pub(super) use self::{
    reader::stack_address,
    storage::{ALLOCATION_LEN, hash_table_len, tree_len},
};
