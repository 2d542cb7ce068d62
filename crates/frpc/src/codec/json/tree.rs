//! The memory needed for JSON as a tree of values, computed before parsing.

use frpc_json::text::string_len;

use crate::codec::polyglot::{ALLOCATION_LEN, tree_len};

/// Returns the bytes of memory a JSON text takes as a tree of untyped values, such as `serde_json::Value`. Stops above
/// `limit` and returns a number larger than it. Allocates only for the nesting depth.
///
/// Trees can be much larger than their text. An element of two bytes, such as `1,`, takes 64 bytes while its list
/// grows. An object with one member takes about a hundred times its length.
///
/// ```
/// use frpc::codec::json::tree_memory_len;
///
/// assert_eq!(tree_memory_len("12.5", 1 << 20), 0);
/// assert!(tree_memory_len(&format!("[{}0]", "{\"\":0},".repeat(100_000)), 1 << 20) > 1 << 20);
/// ```
pub fn tree_memory_len(text: &str, limit: usize) -> usize {
    let bytes = text.as_bytes();
    let mut sum = 0_usize;
    let mut levels: Vec<OpenContainer> = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if sum > limit {
            break;
        }
        let closes = matches!(byte, b']' | b'}');
        // The first token in a list or object starts its first value.
        if let Some(level) = levels.last_mut()
            && (*byte == b',' || level.count == 0 && !closes && !byte.is_ascii_whitespace())
        {
            sum = sum.saturating_add(level.add());
        }
        match byte {
            b'"' => {
                let len = string_len(&bytes[at + 1..]).unwrap_or(bytes.len() - at - 1);
                if len > 0 {
                    sum = sum.saturating_add(len + ALLOCATION_LEN);
                }
                at += len + 1;
            }
            b'[' | b'{' if levels.len() == DEPTH_MAX => break,
            b'[' | b'{' => levels.push(OpenContainer { is_object: *byte == b'{', count: 0 }),
            _ if closes => drop(levels.pop()),
            _ => {}
        }
        at += 1;
    }
    sum
}

/// An open list or object.
struct OpenContainer {
    is_object: bool,
    /// The number of values so far.
    count: usize,
}

impl OpenContainer {
    /// Counts a value and returns the additional memory.
    fn add(&mut self) -> usize {
        let before = self.memory_len();
        self.count += 1;
        self.memory_len() - before
    }

    fn memory_len(&self) -> usize {
        match self.count {
            0 => 0,
            count if self.is_object => tree_len(count, KEY_LEN + VALUE_LEN),
            count => count.next_power_of_two().max(ROOM_MIN) * VALUE_LEN + ALLOCATION_LEN,
        }
    }
}

/// The size of a `serde_json::Value`.
const VALUE_LEN: usize = 32;
const KEY_LEN: usize = size_of::<String>();
/// The minimum capacity of a non-empty list.
const ROOM_MIN: usize = 4;
/// Above the nesting limit of serde_json, so deeper text fails to parse anyway.
const DEPTH_MAX: usize = 200;
