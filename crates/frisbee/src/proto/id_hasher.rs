//! A fast hash function for packet and stream ids.

use std::hash::Hasher;

/// Distributes ids over a hash table. With only 65,536 ids, a peer cannot cause many collisions.
#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u16((*byte).into()));
    }

    fn write_u16(&mut self, id: u16) {
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
