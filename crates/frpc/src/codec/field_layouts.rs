//! The layouts of fields, by their types.

use bytes::Bytes;

use super::{
    layout::{FieldLayout, Held, Layout, MemoryBudget, Shape, checked_len},
    polyglot::{Kind, Message},
};

impl FieldLayout {
    /// Returns the layout of a message that occurs once, boxed or not.
    pub const fn message<M: Message>(number: u32) -> Self {
        // An unboxed one is a part of its message and counts twice.
        Self::of(number, Held::Once, size_of::<M>(), Shape::Message(find_layout::<M>))
    }

    /// Returns the layout of a list of messages.
    pub const fn message_list<M: Message>(number: u32) -> Self {
        Self::of(number, Held::List, size_of::<M>(), Shape::Message(find_layout::<M>))
    }

    /// Returns the layout of a list of texts, bytes or varints.
    pub const fn list(number: u32, of: Kind) -> Self {
        let shape = match of {
            Kind::String | Kind::Bytes => Shape::Texts,
            _ => Shape::Varints,
        };
        Self::of(number, Held::List, len_of(of), shape)
    }

    /// Returns the layout of a list of numbers that all have the same length: `fixed32`, `sfixed64`, `double` and so on.
    pub const fn fixed_list(number: u32, of: Kind) -> Self {
        Self::of(number, Held::List, len_of(of), Shape::Fixed(len_of(of)))
    }

    /// Returns the layout of a map to texts, bytes or numbers.
    pub const fn map(number: u32, key: Kind, value: Kind) -> Self {
        Self::of(number, Held::Map, entry_len(len_of(key), len_of(value)), Shape::Map)
    }

    /// Returns the layout of a map to messages.
    pub const fn message_map<M: Message>(number: u32, key: Kind) -> Self {
        Self::of(number, Held::Map, entry_len(len_of(key), size_of::<M>()), Shape::MessageMap(find_layout::<M>))
    }

    const fn of(number: u32, held: Held, value_len: usize, shape: Shape) -> Self {
        Self { number, value_len, held, shape }
    }
}

/// Returns how many bytes a message in protocol buffers takes in memory, or 0 if its type says that they are no more than
/// `uncounted_max`.
///
/// # Errors
///
/// The number of bytes that it may take, if it would take more.
pub(super) fn checked_memory<M: Message>(
    content: &[u8],
    budget: MemoryBudget,
    uncounted_max: usize,
) -> Result<usize, usize> {
    let limit = budget.for_len(content.len());
    checked_len(find_layout::<M>(), content, limit, uncounted_max).ok_or(limit)
}

fn find_layout<M: Message>() -> Option<&'static Layout> {
    M::FORMATS.and_then(|formats| formats.layout).map(|layout| layout())
}

/// Returns the length in memory of an entry, with what aligns it.
const fn entry_len(key_len: usize, value_len: usize) -> usize {
    (key_len + value_len).next_multiple_of(8)
}

/// Returns the length in memory of a value of this kind.
const fn len_of(kind: Kind) -> usize {
    match kind {
        Kind::Bool | Kind::U8 => 1,
        Kind::U16 | Kind::U32 | Kind::I32 | Kind::F32 => 4,
        Kind::U64 | Kind::I64 | Kind::F64 => 8,
        Kind::String => size_of::<String>(),
        // Longer than the `Vec` that a field may be as well.
        Kind::Bytes => size_of::<Bytes>(),
        Kind::Nil | Kind::Slice | Kind::Map | Kind::Any | Kind::Error => panic!("this is no kind of a value"),
    }
}
