//! The memory of dynamic messages, counted while or before they are decoded.
//!
//! A dynamic message keeps its fields in a tree: four bytes of protobuf can become a kilobyte.

use std::cell::Cell;

use frpc::codec::{DecodeError, DecodeErrorKind, Format, MemoryBudget};
use prost_reflect::{Kind, MessageDescriptor, Value};

/// Checks that a message in protobuf or JSON fits into a memory budget as a dynamic message, before it is decoded.
///
/// [`SchemaLayouts::decode`](crate::SchemaLayouts::decode) counts the memory of polyglot messages itself. Malformed
/// messages may pass.
///
/// # Errors
///
/// [`DecodeErrorKind::OverBudget`].
pub fn check_memory(
    shape: &MessageDescriptor,
    format: Format,
    content: &[u8],
    budget: MemoryBudget,
) -> Result<(), DecodeError> {
    let memory = DynamicMemory::new(budget, content.len());
    match format {
        Format::Proto => memory.add_proto(shape, content),
        Format::Json => memory.add_json(content),
        _ => Ok(()),
    }
}

/// The memory left for a dynamic message.
#[derive(Debug)]
pub(crate) struct DynamicMemory {
    left: Cell<usize>,
    limit: usize,
}

/// The length of a value in a list or in a tree.
const VALUE_LEN: usize = size_of::<Value>();

/// The length of the first node in the tree of fields, with eleven values and their numbers.
const NODE_LEN: usize = 11 * (VALUE_LEN + 8) + 16;

/// The length of an entry of a map, with its share of empty entries.
const ENTRY_LEN: usize = 3 * VALUE_LEN;

/// The maximum depth of messages in protobuf, as in prost.
const DEPTH_MAX: usize = 100;

impl DynamicMemory {
    pub(crate) fn new(budget: MemoryBudget, content_len: usize) -> Self {
        let limit = budget.for_len(content_len);
        Self { left: Cell::new(limit), limit }
    }

    /// Counts values of lists and fields.
    pub(crate) fn add_values(&self, count: usize) -> Result<(), DecodeError> {
        self.add(count.saturating_mul(VALUE_LEN))
    }

    /// Counts the entries of a map.
    pub(crate) fn add_entries(&self, count: usize) -> Result<(), DecodeError> {
        self.add(count.saturating_mul(ENTRY_LEN))
    }

    /// Counts a message.
    pub(crate) fn add_message(&self) -> Result<(), DecodeError> {
        self.add(VALUE_LEN + NODE_LEN)
    }

    fn add(&self, len: usize) -> Result<(), DecodeError> {
        let left = self.left.get().checked_sub(len).ok_or(DecodeErrorKind::OverBudget { limit: self.limit })?;
        self.left.set(left);
        Ok(())
    }

    /// Counts a message in the protobuf format. Malformed parts count as nothing: the decoder refuses them.
    fn add_proto(&self, shape: &MessageDescriptor, content: &[u8]) -> Result<(), DecodeError> {
        self.add_nested(shape, content, DEPTH_MAX)
    }

    fn add_nested(&self, shape: &MessageDescriptor, content: &[u8], depth: usize) -> Result<(), DecodeError> {
        // The decoder refuses deeper messages.
        let Some(depth) = depth.checked_sub(1) else { return Ok(()) };
        self.add_message()?;
        for (number, value) in (WireFields { rest: content }) {
            let declared = shape.get_field(number);
            match (declared.as_ref().map(|field| (field.kind(), field.is_map())), value) {
                (Some((Kind::Message(entry), true)), WireValue::Content(content)) => {
                    self.add_entries(1)?;
                    if let Kind::Message(of) = entry.map_entry_value_field().kind() {
                        for (number, value) in (WireFields { rest: content }) {
                            if let (2, WireValue::Content(content)) = (number, value) {
                                self.add_nested(&of, content, depth)?;
                            }
                        }
                    }
                }
                (Some((Kind::Message(of), false)), WireValue::Content(content) | WireValue::Group(content)) => {
                    self.add_nested(&of, content, depth)?;
                }
                (Some((Kind::String | Kind::Bytes, _)), WireValue::Content(content)) => {
                    self.add(VALUE_LEN + content.len())?;
                }
                // A packed list has at most one value for each byte.
                (Some(_), WireValue::Content(content)) => self.add_values(content.len())?,
                (_, WireValue::Content(content) | WireValue::Group(content)) => self.add(VALUE_LEN + content.len())?,
                (_, WireValue::Number) => self.add_values(1)?,
            }
        }
        Ok(())
    }

    /// Counts a message in JSON: an object is a message or a map, and each other value follows a comma or a bracket.
    fn add_json(&self, content: &[u8]) -> Result<(), DecodeError> {
        let (mut is_text, mut is_escaped) = (false, false);
        for byte in content {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = is_text,
                b'"' => is_text = !is_text,
                _ if is_text => {}
                b'{' => self.add_message()?,
                b',' | b'[' => self.add_entries(1)?,
                _ => {}
            }
        }
        self.add(content.len())
    }
}

/// The fields of a message in the protobuf format.
struct WireFields<'a> {
    rest: &'a [u8],
}

enum WireValue<'a> {
    /// A varint or a number of fixed length.
    Number,
    Content(&'a [u8]),
    Group(&'a [u8]),
}

impl<'a> Iterator for WireFields<'a> {
    type Item = (u32, WireValue<'a>);

    /// Returns the next field. `None` at the end, or if the rest is malformed.
    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok()?;
        let value = match key & 7 {
            0 => {
                self.varint()?;
                WireValue::Number
            }
            1 => {
                self.take(8)?;
                WireValue::Number
            }
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                WireValue::Content(self.take(len)?)
            }
            3 => {
                let begin = self.rest;
                let mut depth = 1_usize;
                loop {
                    let before = self.rest.len();
                    let key = self.varint()?;
                    match key & 7 {
                        0 => drop(self.varint()?),
                        1 => drop(self.take(8)?),
                        2 => {
                            let len = usize::try_from(self.varint()?).ok()?;
                            self.take(len)?;
                        }
                        3 => depth += 1,
                        4 => depth -= 1,
                        5 => drop(self.take(4)?),
                        _ => return None,
                    }
                    if depth == 0 {
                        break WireValue::Group(&begin[..begin.len() - before]);
                    }
                }
            }
            5 => {
                self.take(4)?;
                WireValue::Number
            }
            _ => return None,
        };
        Some((number, value))
    }
}

impl<'a> WireFields<'a> {
    fn varint(&mut self) -> Option<u64> {
        frpc::prost::encoding::decode_varint(&mut self.rest).ok()
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }
}
