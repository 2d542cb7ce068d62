//! Masking of client frames.

use std::hash::{BuildHasher, RandomState};

/// The masking key of a frame.
pub(crate) type MaskingKey = [u8; 4];

/// Masks or unmasks `bytes`. The first byte has the given offset within the content of its frame.
pub(crate) fn apply(mask: MaskingKey, offset: usize, bytes: &mut [u8]) {
    let mut turned = mask;
    turned.rotate_left(offset % 4);
    let wide = u64::from_ne_bytes([turned, turned].concat().try_into().expect("twice four bytes are eight"));
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(turned.iter().cycle()) {
        *byte ^= mask;
    }
}

/// A generator of masks and handshake keys, unpredictable for authors of message content.
///
/// Masks keep intermediaries from mistaking content for HTTP requests (RFC 6455, section 10.3). They are hashes of a
/// counter, with hash keys from the operating system.
pub(crate) struct MaskGenerator {
    keys: RandomState,
    count: u64,
}

impl MaskGenerator {
    pub(crate) fn new() -> Self {
        Self { keys: RandomState::new(), count: 0 }
    }

    pub(crate) fn next(&mut self) -> MaskingKey {
        self.count += 1;
        let [a, b, c, d, ..] = self.keys.hash_one(self.count).to_ne_bytes();
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_differ() {
        let (mut first, mut second) = (MaskGenerator::new(), MaskGenerator::new());
        let drawn: std::collections::HashSet<MaskingKey> =
            (0..100).flat_map(|_| [first.next(), second.next()]).collect();
        assert!(drawn.len() > 190, "{}", drawn.len());
    }
}
