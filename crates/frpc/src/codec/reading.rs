//! Rules for decoding formats other than polyglot.

use super::{json::Types, layout::MemoryBudget};

/// The rules for decoding a message, and facts collected while decoding it.
#[derive(Debug)]
pub(crate) struct DecodeContext {
    /// The memory limit of the message.
    pub(crate) budget: MemoryBudget,
    /// `true` if JSON fields and enum names unknown to this side are errors.
    pub(crate) is_strict: bool,
    /// `true` if the memory of the message is counted, because it may exceed 1 MiB.
    pub(crate) is_counted: bool,
    /// The number of bytes the decoded message takes in memory.
    pub(crate) memory_len: usize,
    /// `true` after an unknown JSON field or enum name was ignored.
    pub(crate) has_unknown: bool,
    /// More types for an `Any` in JSON.
    pub(crate) any_types: &'static Types,
}

impl Default for DecodeContext {
    fn default() -> Self {
        Self {
            budget: MemoryBudget::default(),
            is_strict: false,
            is_counted: false,
            memory_len: 0,
            has_unknown: false,
            any_types: Types::WELL_KNOWN,
        }
    }
}

impl DecodeContext {
    /// Returns lenient rules with this memory budget.
    pub(crate) fn within(budget: MemoryBudget) -> Self {
        Self { budget, ..Self::default() }
    }
}
