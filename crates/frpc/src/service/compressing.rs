//! Compression settings of one side.

use crate::codec::Compression;

/// Settings for sent and received compressed messages.
#[derive(Clone, Debug)]
pub(crate) struct Compressing {
    /// The allowed algorithms, in order of preference.
    pub(crate) send: Vec<Compression>,
    /// Messages below this length are not compressed.
    pub(crate) len_min: usize,
    /// The maximum number of inflated bytes held per connection. At 0, compressed messages are not accepted.
    pub(crate) inflated_len_max: usize,
}

impl Compressing {
    /// Returns `true` if any algorithm is enabled for sending.
    pub(crate) fn compresses(&self) -> bool {
        !self.send.is_empty()
    }

    /// Returns the numbers of the algorithms accepted from peers.
    pub(crate) fn accepted(&self) -> Vec<u8> {
        let algorithms = if self.inflated_len_max == 0 { &[] } else { Compression::ALL };
        algorithms.iter().map(|algorithm| algorithm.number()).collect()
    }

    /// Returns the algorithm with this number, if it is accepted from peers.
    pub(crate) fn accepts(&self, number: u8) -> Option<Compression> {
        Compression::of_number(number).filter(|_| self.inflated_len_max > 0)
    }
}

impl Default for Compressing {
    fn default() -> Self {
        Self { send: Vec::new(), len_min: LEN_MIN, inflated_len_max: INFLATED_LEN_MAX }
    }
}

/// Below this length, compression saves less than one TCP segment.
const LEN_MIN: usize = 1024;
const INFLATED_LEN_MAX: usize = 32 * 1024 * 1024;
