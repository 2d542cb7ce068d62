//! Constructors of field layouts, by field type.

use bytes::Bytes;

use super::{
    layout::{FieldContainer, FieldLayout, MemoryBudget, MemoryShape, checked_len},
    polyglot::{Kind, Message},
};

impl FieldLayout {
    /// Returns the layout of a singular message field, boxed or not.
    pub const fn message<M: Message>(number: u32) -> Self {
        // An unboxed one is a part of its message and counts twice.
        Self::of(number, FieldContainer::Single, size_of::<M>(), MemoryShape::Message(M::layout))
    }

    /// Returns the layout of a list of messages.
    pub const fn message_list<M: Message>(number: u32) -> Self {
        Self::of(number, FieldContainer::List, size_of::<M>(), MemoryShape::Message(M::layout))
    }

    /// Returns the layout of a list of strings, bytes or varints.
    pub const fn list(number: u32, of: Kind) -> Self {
        let shape = match of {
            Kind::String | Kind::Bytes => MemoryShape::Texts,
            _ => MemoryShape::Varints,
        };
        Self::of(number, FieldContainer::List, len_of(of), shape)
    }

    /// Returns the layout of a list of fixed-length numbers: `fixed32`, `sfixed64`, `double` and so on.
    pub const fn fixed_list(number: u32, of: Kind) -> Self {
        Self::of(number, FieldContainer::List, len_of(of), MemoryShape::Fixed(len_of(of)))
    }

    /// Returns the layout of a map with strings, bytes or numbers as values.
    pub const fn map(number: u32, key: Kind, value: Kind) -> Self {
        Self::of(number, FieldContainer::Map, entry_len(len_of(key), len_of(value)), MemoryShape::Map)
    }

    /// Returns the layout of a map with messages as values.
    pub const fn message_map<M: Message>(number: u32, key: Kind) -> Self {
        Self::of(
            number,
            FieldContainer::Map,
            entry_len(len_of(key), size_of::<M>()),
            MemoryShape::MessageMap(M::layout),
        )
    }

    const fn of(number: u32, held: FieldContainer, value_len: usize, shape: MemoryShape) -> Self {
        Self { number, value_len, held, shape }
    }
}

/// Returns the memory of a decoded protobuf message in bytes, or 0 if its type and length imply at most
/// `uncounted_max`.
///
/// # Errors
///
/// The memory limit in bytes, if the message exceeds it.
pub(super) fn checked_memory<M: Message>(
    content: &[u8],
    budget: MemoryBudget,
    uncounted_max: usize,
) -> Result<usize, usize> {
    let limit = budget.for_len(content.len());
    checked_len(M::layout(), content, limit, uncounted_max).ok_or(limit)
}

/// Returns the memory of a map entry, including padding.
const fn entry_len(key_len: usize, value_len: usize) -> usize {
    (key_len + value_len).next_multiple_of(8)
}

/// Returns the memory of a value of this kind.
const fn len_of(kind: Kind) -> usize {
    match kind {
        Kind::Bool | Kind::U8 => 1,
        Kind::U16 | Kind::U32 | Kind::I32 | Kind::F32 => 4,
        Kind::U64 | Kind::I64 | Kind::F64 => 8,
        Kind::String => size_of::<String>(),
        // Larger than `Vec<u8>`, the other type for such fields.
        Kind::Bytes => size_of::<Bytes>(),
        Kind::Nil | Kind::Slice | Kind::Map | Kind::Any | Kind::Error => panic!("this is no kind of a value"),
    }
}
