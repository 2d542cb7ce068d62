//! Decoding of header blocks, with a cache of repeated ones.

use std::sync::Arc;

use crate::{
    BlockDecoder, ConnectionError, ErrorCode, HpackError, Settings,
    head::{Head, list_max},
    hpack::PROTOCOL_MAX,
};

/// The decoder of a connection. A block seen before costs a comparison of its bytes.
#[derive(Debug)]
pub(super) struct HeadDecoder {
    decoder: BlockDecoder,
    /// At most `CACHED_MAX` heads. The list grows as needed: most connections repeat few heads.
    cached: Vec<CachedHead>,
    /// The next entry to be replaced.
    next: usize,
    list_max: usize,
}

#[derive(Debug)]
struct CachedHead {
    /// The head holds for these bytes and this state of the dynamic table only.
    generation: u64,
    block: Box<[u8]>,
    head: Arc<Head>,
}

const CACHED_MAX: usize = 8;

/// The longest block in the cache, in bytes. Heads decoded from it are bounded by the header list limit.
const CACHED_BLOCK_MAX: usize = 256;

/// The largest head in the cache, in bytes of memory.
const CACHED_HEAD_MAX: usize = 2048;

impl HeadDecoder {
    pub(super) fn new(settings: &Settings) -> Self {
        // Until the peer has acknowledged our SETTINGS, it may use the default of the protocol.
        let table_max = PROTOCOL_MAX.max(settings.header_table_max as usize);
        let list_max = list_max(settings);
        Self { decoder: BlockDecoder::new(table_max, list_max), cached: Vec::new(), next: 0, list_max }
    }

    /// Applies the limit of the table the peer has acknowledged.
    pub(super) fn set_table_max(&mut self, max: u32) {
        self.decoder.set_limit(max as usize);
    }

    #[inline]
    pub(super) fn decode(&mut self, block: &[u8]) -> Result<Arc<Head>, ConnectionError> {
        if let Some(head) = self.cached(block) {
            return Ok(head.clone());
        }
        let invalid = |error: HpackError| ConnectionError::peer(ErrorCode::COMPRESSION_ERROR, error.reason());
        self.decode_new(block).map_err(invalid)
    }

    /// Returns the head of a repeated block. Decoding it would not change the table.
    #[inline]
    pub(super) fn cached(&self, block: &[u8]) -> Option<&Arc<Head>> {
        let generation = self.decoder.generation();
        let hit = |cached: &&CachedHead| cached.generation == generation && *cached.block == *block;
        self.cached.iter().find(hit).map(|cached| &cached.head)
    }

    fn decode_new(&mut self, block: &[u8]) -> Result<Arc<Head>, HpackError> {
        let generation = self.decoder.generation();
        let mut head = Head::default();
        let list_max = self.list_max;
        if !self.decoder.decode(block, |name, value| head.push(name, value, list_max))? {
            head.mark_too_large();
        }
        head.finish();
        // A block that changes the table means something else the next time.
        let is_stable = self.decoder.generation() == generation;
        if !is_stable || block.len() > CACHED_BLOCK_MAX || head.memory() > CACHED_HEAD_MAX {
            return Ok(Arc::new(head));
        }
        head.shrink();
        let head = Arc::new(head);
        self.cache(CachedHead { generation, block: block.into(), head: head.clone() });
        Ok(head)
    }

    fn cache(&mut self, entry: CachedHead) {
        // An entry of an older table never matches again, so it leaves before valid ones.
        let stale = self.cached.iter().position(|cached| cached.generation != entry.generation);
        if let Some(stale) = stale {
            self.cached[stale] = entry;
        } else if self.cached.len() < CACHED_MAX {
            self.cached.reserve_exact(1);
            self.cached.push(entry);
        } else {
            self.cached[self.next] = entry;
            self.next = (self.next + 1) % CACHED_MAX;
        }
    }

    /// Forgets the cached heads, and frees spare capacity.
    pub(super) fn shrink(&mut self) {
        (self.cached, self.next) = (Vec::new(), 0);
        self.decoder.shrink();
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        let cached: usize = self.cached.iter().map(|cached| cached.block.len() + cached.head.memory()).sum();
        self.decoder.table_len() + cached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_block_gives_the_same_head_until_the_table_changes() {
        let mut decoder = HeadDecoder::new(&Settings::default());
        let insert = [0x40, 1, b'a', 1, b'1'];
        let newest = [0xbe];
        decoder.decode(&insert).unwrap();
        let first = decoder.decode(&newest).unwrap();
        assert!(Arc::ptr_eq(&first, &decoder.decode(&newest).unwrap()));
        decoder.decode(&[0x40, 1, b'b', 1, b'2']).unwrap();
        let second = decoder.decode(&newest).unwrap();
        assert_eq!((first.get("a"), second.get("a"), second.get("b")), (Some(&b"1"[..]), None, Some(&b"2"[..])));
    }

    #[test]
    fn a_block_that_changes_the_table_is_decoded_every_time() {
        let mut decoder = HeadDecoder::new(&Settings::default());
        let insert = [0x40, 1, b'a', 1, b'1'];
        let first = decoder.decode(&insert).unwrap();
        assert!(!Arc::ptr_eq(&first, &decoder.decode(&insert).unwrap()));
        assert_eq!(decoder.decoder.table_len(), 68);
    }

    #[test]
    fn blocks_are_cached_up_to_their_limit() {
        for (value_len, is_cached) in [(120, true), (253, false)] {
            let mut decoder = HeadDecoder::new(&Settings::default());
            let mut block = vec![0, 1, b'a', 0x7f];
            block.push(u8::try_from(value_len - 127_i32.min(value_len)).unwrap());
            if value_len < 127 {
                block = vec![0, 1, b'a', u8::try_from(value_len).unwrap()];
            }
            block.extend(std::iter::repeat_n(b'v', usize::try_from(value_len).unwrap()));
            let first = decoder.decode(&block).unwrap();
            assert_eq!(Arc::ptr_eq(&first, &decoder.decode(&block).unwrap()), is_cached);
        }
    }
}
