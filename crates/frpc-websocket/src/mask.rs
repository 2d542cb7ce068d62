//! The masks that clients put over the contents of their frames.

use std::hash::{BuildHasher, RandomState};

/// A mask, as it stands in the head of a frame.
pub(crate) type Mask = [u8; 4];

/// Puts a mask over bytes, or takes it off. The first of them is at this offset in the content.
pub(crate) fn apply(mask: Mask, offset: usize, bytes: &mut [u8]) {
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

/// Makes masks that nobody who chooses the contents can foresee, so that no proxy takes them for requests, and as many bytes for keys: the hashes of a counter with
/// keys that are drawn from the operating system.
pub(crate) struct Masks {
    keys: RandomState,
    count: u64,
}

impl Masks {
    pub(crate) fn new() -> Self {
        Self { keys: RandomState::new(), count: 0 }
    }

    pub(crate) fn next(&mut self) -> Mask {
        self.count += 1;
        let [a, b, c, d, ..] = self.keys.hash_one(self.count).to_ne_bytes();
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_goes_over_any_part_of_a_content() {
        let content: Vec<u8> = (0..100).collect();
        let mask = [0x11, 0x52, 0x93, 0xf4];
        let slow: Vec<u8> = content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        for at in 0..content.len() {
            for end in at..content.len() {
                let mut part = content[at..end].to_vec();
                apply(mask, at, &mut part);
                assert_eq!(part, slow[at..end], "{at}..{end}");
            }
        }
    }

    #[test]
    fn masks_differ() {
        let (mut first, mut second) = (Masks::new(), Masks::new());
        let drawn: std::collections::HashSet<Mask> = (0..100).flat_map(|_| [first.next(), second.next()]).collect();
        assert!(drawn.len() > 190, "{}", drawn.len());
    }
}
