//! The settings of a side for messages that are compressed.

use crate::codec::Compression;

/// The messages that a side compresses, and those that it inflates.
#[derive(Clone, Debug)]
pub(crate) struct Compressing {
    /// Those that it may use, the one it likes best first.
    pub(crate) send: Vec<Compression>,
    /// Messages below this length are not compressed.
    pub(crate) len_min: usize,
    /// The bytes that may be inflated at the same time on a connection. None are without any.
    pub(crate) inflated_len_max: usize,
}

impl Compressing {
    /// Returns whether messages to some peers are compressed.
    pub(crate) fn compresses(&self) -> bool {
        !self.send.is_empty()
    }

    /// Returns the algorithms that this side inflates, as their numbers.
    pub(crate) fn accepted(&self) -> Vec<u8> {
        let algorithms = if self.inflated_len_max == 0 { &[] } else { Compression::ALL };
        algorithms.iter().map(|algorithm| algorithm.number()).collect()
    }

    /// Returns the algorithm of a number, if this side inflates it.
    pub(crate) fn accepts(&self, number: u8) -> Option<Compression> {
        Compression::of_number(number).filter(|_| self.inflated_len_max > 0)
    }
}

impl Default for Compressing {
    fn default() -> Self {
        Self { send: Vec::new(), len_min: LEN_MIN, inflated_len_max: INFLATED_LEN_MAX }
    }
}

/// Below this, what is saved on the wire is less than a segment.
const LEN_MIN: usize = 1024;
const INFLATED_LEN_MAX: usize = 32 * 1024 * 1024;
