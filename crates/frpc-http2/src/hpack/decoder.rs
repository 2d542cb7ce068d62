//! The decoder of header blocks, with the dynamic table of the peer.

use std::collections::VecDeque;

use super::{
    FIELD_OVERHEAD, HpackError,
    integer::{read_integer, read_string},
    static_table::{DYNAMIC_START, STATIC_TABLE},
};

/// Decodes the header blocks of one direction of a connection.
#[derive(Debug)]
pub struct BlockDecoder {
    /// Entries, the newest first.
    entries: VecDeque<TableEntry>,
    /// Size of the entries in the sense of RFC 7541, section 4.1.
    size: usize,
    /// The current maximum, chosen by the peer.
    max: usize,
    /// The highest maximum the peer may choose.
    limit: usize,
    /// `true` if the limit fell below the maximum: the next block has to begin with a smaller one.
    needs_update: bool,
    generation: u64,
    /// The longest string copied. Longer ones are skipped and reported as oversized.
    string_max: usize,
    text: Vec<u8>,
}

#[derive(Debug)]
struct TableEntry {
    text: Box<[u8]>,
    name_len: usize,
}

impl BlockDecoder {
    /// Creates a decoder whose table has at most `limit` bytes, for strings of at most `string_max` bytes.
    pub fn new(limit: usize, string_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            max: limit,
            limit,
            needs_update: false,
            generation: 0,
            // A skipped string has to exceed the table, or the tables of both sides would differ.
            string_max: string_max.max(limit),
            text: Vec::new(),
        }
    }

    /// Returns a number that grows with every change of the dynamic table.
    ///
    /// A block decodes to the same fields whenever its bytes and the generation are the same.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the size of the dynamic table, in bytes.
    pub fn table_len(&self) -> usize {
        self.size
    }

    /// Changes the limit of the table, after the peer has acknowledged it.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.needs_update = self.max > limit;
    }

    /// Frees spare capacity.
    pub(crate) fn shrink(&mut self) {
        self.text = Vec::new();
        self.entries.shrink_to_fit();
    }

    /// Decodes a block and passes each field to `field`. Returns `false` if a field was skipped as oversized.
    pub fn decode(&mut self, block: &[u8], mut field: impl FnMut(&[u8], &[u8])) -> Result<bool, HpackError> {
        let mut input = block;
        let mut is_start = true;
        let mut is_complete = true;
        while let Some(&first) = input.first() {
            if first & 0xe0 == 0x20 {
                let max = read_integer(&mut input, 5)?;
                if !is_start || max > self.limit {
                    return Err(HpackError::InvalidTableSize);
                }
                self.needs_update = false;
                self.max = max;
                self.evict(max);
                self.generation += 1;
                continue;
            }
            if self.needs_update {
                return Err(HpackError::InvalidTableSize);
            }
            is_start = false;
            if first & 0x80 != 0 {
                let index = read_integer(&mut input, 7)?;
                let (name, value) = self.entry(index)?;
                field(name, value);
            } else {
                let inserts = first & 0x40 != 0;
                is_complete &= self.literal(&mut input, inserts, &mut field)?;
            }
        }
        Ok(is_complete)
    }

    fn literal(
        &mut self,
        input: &mut &[u8],
        inserts: bool,
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<bool, HpackError> {
        let index = read_integer(input, if inserts { 6 } else { 4 })?;
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let mut fits = true;
        if index == 0 {
            fits &= read_string(input, &mut text, self.string_max)?;
        } else {
            text.extend_from_slice(self.entry(index)?.0);
        }
        let name_len = text.len();
        fits &= read_string(input, &mut text, self.string_max)?;
        if fits {
            field(&text[..name_len], &text[name_len..]);
        }
        if inserts {
            // An oversized string has no bytes here. It exceeds the table too, so it only empties the table.
            self.insert(&text, name_len, fits);
        }
        if text.capacity() <= TEXT_KEPT {
            self.text = text;
        }
        Ok(fits)
    }

    fn insert(&mut self, text: &[u8], name_len: usize, fits: bool) {
        self.generation += 1;
        let size = text.len() + FIELD_OVERHEAD;
        if !fits || size > self.max {
            return self.evict(0);
        }
        self.evict(self.max - size);
        self.entries.push_front(TableEntry { text: text.into(), name_len });
        self.size += size;
    }

    fn evict(&mut self, max: usize) {
        while self.size > max {
            let Some(entry) = self.entries.pop_back() else { break };
            self.size -= entry.text.len() + FIELD_OVERHEAD;
        }
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        if let Some((name, value)) = index.checked_sub(1).and_then(|i| STATIC_TABLE.get(i)) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let entry = index.checked_sub(DYNAMIC_START).and_then(|i| self.entries.get(i));
        entry.map(|entry| entry.text.split_at(entry.name_len)).ok_or(HpackError::InvalidIndex)
    }
}

/// The longest scratch buffer kept between blocks, in bytes.
const TEXT_KEPT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(decoder: &mut BlockDecoder, block: &[u8]) -> Result<Vec<String>, HpackError> {
        let mut fields = Vec::new();
        decoder.decode(block, |name, value| {
            fields.push(format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        })?;
        Ok(fields)
    }

    #[test]
    fn table_sizes_are_allowed_up_to_the_limit_and_only_first() {
        let mut decoder = BlockDecoder::new(100, 1000);
        assert_eq!(fields(&mut decoder, &[0x20, 0x3f, 69, 0x82]).unwrap(), [":method=GET"], "two at the start");
        assert_eq!(fields(&mut decoder, &[0x3f, 70]), Err(HpackError::InvalidTableSize), "101 bytes");
        assert_eq!(fields(&mut decoder, &[0x82, 0x20]), Err(HpackError::InvalidTableSize), "after a field");
    }

    #[test]
    fn a_lower_limit_has_to_be_confirmed_by_the_next_block() {
        let mut decoder = BlockDecoder::new(4096, 1000);
        decoder.set_limit(10);
        assert_eq!(fields(&mut decoder, &[0x82]), Err(HpackError::InvalidTableSize));
        assert_eq!(fields(&mut decoder, &[0x2b, 0x82]), Err(HpackError::InvalidTableSize), "11 bytes");
        assert!(fields(&mut decoder, &[0x2a, 0x82]).is_ok());
        assert!(fields(&mut decoder, &[0x82]).is_ok());
    }

    #[test]
    fn entries_leave_the_table_as_it_fills() {
        // Each entry has 34 bytes, and the table has room for two.
        let mut decoder = BlockDecoder::new(68, 1000);
        let insert = |name: u8| [0x40, 1, name, 1, b'v'];
        fields(&mut decoder, &[insert(b'a'), insert(b'b'), insert(b'c')].concat()).unwrap();
        assert_eq!(decoder.table_len(), 68);
        assert_eq!(fields(&mut decoder, &[0x80 | 62, 0x80 | 63]).unwrap(), ["c=v", "b=v"]);
        assert_eq!(fields(&mut decoder, &[0x80 | 64]), Err(HpackError::InvalidIndex));
        assert_eq!(fields(&mut decoder, &[0x80]), Err(HpackError::InvalidIndex), "index 0");
        // A field larger than the table empties it.
        let long = [&[0x40, 1, b'x', 60][..], &[b'y'; 60]].concat();
        fields(&mut decoder, &long).unwrap();
        assert_eq!(decoder.table_len(), 0);
    }

    #[test]
    fn an_entry_may_name_the_entry_it_evicts() {
        let mut decoder = BlockDecoder::new(34, 1000);
        let both = [0x40, 1, b'a', 1, b'v', 0x40 | 62, 1, b'w'];
        assert_eq!(fields(&mut decoder, &both).unwrap(), ["a=v", "a=w"]);
    }

    #[test]
    fn oversized_strings_are_skipped_and_reported() {
        for (len, expected) in [(50, (Ok(true), 3, 0)), (51, (Ok(false), 2, 0))] {
            let mut decoder = BlockDecoder::new(40, 50);
            let mut block = vec![0x40, 1, b'a', 1, b'v', 0x40, 1, b'b', len];
            block.extend(std::iter::repeat_n(b'w', usize::from(len)));
            block.push(0x82);
            let mut count = 0;
            let complete = decoder.decode(&block, |_, _| count += 1);
            assert_eq!((complete, count, decoder.table_len()), expected);
        }
    }

    #[test]
    fn the_generation_changes_with_the_table_only() {
        let mut decoder = BlockDecoder::new(4096, 100);
        fields(&mut decoder, &[0x82, 0, 1, b'a', 1, b'v', 0x10, 1, b'a', 1, b'v']).unwrap();
        assert_eq!(decoder.generation(), 0);
        fields(&mut decoder, &[0x40, 1, b'a', 1, b'v']).unwrap();
        assert_eq!(decoder.generation(), 1);
        fields(&mut decoder, &[0x20]).unwrap();
        assert_eq!(decoder.generation(), 2);
    }
}
