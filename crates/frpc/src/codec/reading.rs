//! The way in which a message is read in formats other than polyglot.

use super::layout::MemoryBudget;

/// The rules for reading a message, and what was learned while it was read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The memory that the message may take.
    pub(crate) budget: MemoryBudget,
    /// True if fields and enum names in JSON that this side does not know are errors.
    pub(crate) is_strict: bool,
    /// True if the memory of the message is counted, in case it may be more than 1 MiB.
    pub(crate) is_counted: bool,
    /// The number of bytes that the message takes in memory.
    pub(crate) memory_len: usize,
    /// True once a field or an enum name in JSON was ignored.
    pub(crate) has_unknown: bool,
}

impl Reading {
    /// Returns lenient rules for a message that may take this much memory.
    pub(crate) fn within(budget: MemoryBudget) -> Self {
        Self { budget, ..Self::default() }
    }
}
