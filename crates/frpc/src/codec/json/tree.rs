//! The memory that JSON takes as a tree of values, known before it is read.

use crate::codec::polyglot::{ALLOCATION_LEN, tree_len};

/// Returns how many bytes a value takes in memory when it is read into a tree whose type says nothing of it, such as
/// `serde_json::Value`, or a number above `limit` as soon as it is more. Memory is allocated only for the depth.
///
/// A value of two bytes, such as `1,`, takes 64 while its list grows, an object of one member some hundred times its length.
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
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if sum > limit {
            break;
        }
        let closes = matches!(byte, b']' | b'}');
        // The first thing in a list or an object is its first value.
        if let Some(level) = levels.last_mut()
            && (*byte == b',' || level.count == 0 && !closes && !byte.is_ascii_whitespace())
        {
            sum = sum.saturating_add(level.add());
        }
        match byte {
            b'"' => {
                let len = string_len(&bytes[at + 1..]);
                if len > 0 {
                    sum = sum.saturating_add(len + ALLOCATION_LEN);
                }
                at += len + 1;
            }
            b'[' | b'{' if levels.len() == DEPTH_MAX => break,
            b'[' | b'{' => levels.push(Level { is_object: *byte == b'{', count: 0 }),
            _ if closes => drop(levels.pop()),
            _ => {}
        }
        at += 1;
    }
    sum
}

/// A list or an object.
struct Level {
    is_object: bool,
    /// The number of values.
    count: usize,
}

impl Level {
    /// Counts a value, and returns how much more memory that takes.
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

/// Returns the length of a string up to its end, escapes included.
fn string_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(len) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))) {
        at += len;
        if bytes[at] == b'"' {
            return at;
        }
        at += 2;
    }
    bytes.len()
}

/// The size of a `serde_json::Value`.
const VALUE_LEN: usize = 32;
const KEY_LEN: usize = size_of::<String>();
/// The values that a list has room for once it has any.
const ROOM_MIN: usize = 4;
/// Deeper than serde_json reads.
const DEPTH_MAX: usize = 200;
