//! Status codes of gRPC, as numbers.

/// The names of the codes 0 to 16.
pub const CODE_NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// A set of status codes of gRPC. Numbers outside 0 to 16 are never in a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeSet(u32);

impl CodeSet {
    /// A set without codes.
    pub const EMPTY: Self = Self(0);
    /// Only `UNAVAILABLE`.
    pub const UNAVAILABLE: Self = Self(1 << 14);

    /// Adds a code. Returns `false` if no code has this number.
    pub fn insert(&mut self, code: u32) -> bool {
        let is_code = (code as usize) < CODE_NAMES.len();
        if is_code {
            self.0 |= 1 << code;
        }
        is_code
    }

    /// Returns `true` if the set contains this code.
    pub fn contains(self, code: u32) -> bool {
        (code as usize) < CODE_NAMES.len() && self.0 & 1 << code != 0
    }

    /// Returns `true` if the set has no codes.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the codes in increasing order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..32).filter(move |code| self.contains(*code))
    }
}

impl FromIterator<u32> for CodeSet {
    fn from_iter<I: IntoIterator<Item = u32>>(codes: I) -> Self {
        let mut set = Self::EMPTY;
        for code in codes {
            set.insert(code);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_only_codes() {
        let set: CodeSet = [14, 0, 17, 32, u32::MAX].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 14]);
        assert!(set.contains(14) && !set.contains(1) && !set.contains(46) && !set.contains(u32::MAX));
        assert!(CodeSet::EMPTY.is_empty() && CodeSet::UNAVAILABLE.contains(14));
    }
}
