//! The bytes of one message: the polyglot encoding as the Go implementation lays it out.
//!
//! A message is its fields in three groups (scalars, lists, messages and maps), each in the order of declaration, with
//! no tags. Generated code walks the fields and says what each is; [`Writer`] and [`Reader`] know the bytes. What the
//! layout cannot express goes into a [trailer] that Go readers ignore.
//!
//! # Limits
//!
//! Decoding takes a bounded amount of everything, whatever the bytes claim and whatever the schema is:
//!
//! - **Memory**: [`Reader::MEMORY_FACTOR`] (16) bytes for each byte of input, and [`Reader::MEMORY_LEN_MIN`] (1 MiB) on top.
//!   Elements of lists and maps, texts, bytes that are copied and boxed messages are charged before they are allocated.
//!   Beyond that, decoding ends with [`DecodeErrorKind::TooMuchMemory`] and the path of the field. Ordinary messages are
//!   far from the limit. Long lists of absent messages are not: each is one byte of input and a whole struct in memory.
//!   A [`MemoryBudget`](super::MemoryBudget) that is lower ends decoding with [`DecodeErrorKind::OverBudget`].
//! - **Depth**: [`Reader::DEPTH_MAX`] (100) messages in each other, or as many as fit into [`Reader::STACK_LEN_MAX`]
//!   (512 KiB) of stack; beyond that, decoding ends with [`DecodeErrorKind::TooDeep`]. What was decoded can be encoded,
//!   cloned, compared and dropped on a thread with 2 MiB of stack.
//! - **Time** is linear in the input. Numbers of enums are found in sorted tables.
//!
//! Nothing here knows packets, sockets or tasks.

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
    decode::{Content, decode, decode_with, is_error},
    encode::{encode, encode_error, encode_pieces, encode_to, encode_with},
    enumeration::{Enumeration, Positions},
    error::{At, DecodeError, DecodeErrorKind, Failure, Result},
    kind::Kind,
    message::Message,
    pieces::Pieces,
    presence::Presence,
    reader::Reader,
    scalar::Entries,
    sink::{Counter, Sink, Writable},
    small::Small,
    storage::{Blob, Storage},
    writer::Writer,
};
pub(crate) use self::{
    decode::{decode_error, decode_part},
    encode::{encode_small, encode_small_to, short_error},
};
pub(super) use self::{
    reader::stack_address,
    storage::{ALLOCATION_LEN, hash_table_len, tree_len},
};
