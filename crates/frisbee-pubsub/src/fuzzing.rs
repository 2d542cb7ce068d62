//! Entry points for fuzz targets, built only with `--cfg fuzzing`.

use bytes::Bytes;

use crate::{Pattern, trie::PatternTrie, wire};

/// Numbers stored under patterns.
#[derive(Debug, Default)]
pub struct Patterns(PatternTrie<usize>);

impl Patterns {
    /// Adds a number under a pattern.
    pub fn insert(&mut self, pattern: &Pattern, number: usize) {
        self.0.insert(pattern, number);
    }

    /// Removes a number under a pattern. Returns the count of removed entries.
    pub fn remove(&mut self, pattern: &Pattern, number: usize) -> usize {
        self.0.remove(pattern, |there| *there == number)
    }

    /// Returns the numbers under all patterns matching the subject, sorted.
    pub fn matching(&self, subject: &str) -> Vec<usize> {
        let mut numbers = Vec::new();
        self.0.matching(subject, &mut |number| numbers.push(*number));
        numbers.sort_unstable();
        numbers
    }
}

/// Parses the content as every kind of packet a client can receive.
pub fn read_as_client(content: &[u8]) {
    let bytes = Bytes::copy_from_slice(content);
    if let Ok((_, message)) = wire::read_message(&bytes) {
        assert!(message.payload.len() + message.subject.len() < content.len());
    }
    let _ = (wire::read_missing(content), wire::read_welcome(content), wire::read_refused(content));
    let _ = (wire::EndedPacket::read(content), wire::read_number(content));
}
