//! The encoder of header blocks.

use std::borrow::Cow;

use super::{
    FIELD_OVERHEAD,
    integer::{put_integer, put_short_string, put_string},
    static_table::{DYNAMIC_START, find_static},
};

/// A header field for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    name: &'a str,
    value: &'a [u8],
    compression: Compression,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    /// Sent as it is.
    Plain,
    /// Put into the dynamic table, while that has room.
    Repeated,
    /// Never put into a table, also not by intermediaries.
    Sensitive,
}

impl<'a> Field<'a> {
    /// Creates a field. `name` is in lower case; `value` contains no NUL and no line break.
    ///
    /// Cookies and credentials are [sensitive](Self::sensitive) automatically.
    pub fn new(name: &'a str, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let compression = if is_secret(name) { Compression::Sensitive } else { Compression::Plain };
        Self { name, value: value.as_ref(), compression }
    }

    /// Creates a field that repeats on a connection. It enters the dynamic table and takes one or two bytes later.
    pub fn repeated(name: &'a str, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { name, value: value.as_ref(), compression: Compression::Repeated }
    }

    /// Creates a field with a secret, which no table stores, so compressed lengths reveal nothing about it.
    pub fn sensitive(name: &'a str, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { name, value: value.as_ref(), compression: Compression::Sensitive }
    }

    /// Returns the name.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the value.
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Returns the size that counts for MAX_HEADER_LIST_SIZE.
    pub(crate) fn list_len(&self) -> usize {
        self.name.len() + self.value.len() + FIELD_OVERHEAD
    }

    pub(crate) fn detach(self) -> OwnedField {
        OwnedField { name: self.name.to_owned().into(), value: self.value.into(), compression: self.compression }
    }
}

/// Returns `true` for fields whose values an attacker would guess by compressed lengths.
fn is_secret(name: &str) -> bool {
    matches!(name, "authorization" | "proxy-authorization" | "cookie" | "set-cookie")
}

/// A header field with its own memory.
#[derive(Clone, Debug)]
pub(crate) struct OwnedField {
    name: Cow<'static, str>,
    value: Box<[u8]>,
    compression: Compression,
}

impl OwnedField {
    pub(crate) fn borrow(&self) -> Field<'_> {
        Field { name: &self.name, value: &self.value, compression: self.compression }
    }
}

/// Encodes the header blocks of one direction of a connection.
///
/// Repeated fields enter the dynamic table until it is full. Nothing is evicted, so a block encoded in advance
/// stays valid until the next insertion.
#[derive(Debug)]
pub struct BlockEncoder {
    /// Entries in the order of insertion. The last one has the lowest index.
    entries: Vec<(Box<str>, Box<[u8]>)>,
    size: usize,
    max: usize,
    /// The highest maximum this side uses.
    limit: usize,
    /// The maximum that the peer knows of.
    announced: usize,
    /// `true` if the next block has to announce a new maximum.
    needs_update: bool,
    generation: u64,
}

impl BlockEncoder {
    /// Creates an encoder whose table has at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let max = PROTOCOL_MAX.min(limit);
        // A peer assumes 4096 bytes. Nothing is evicted, so a smaller own limit needs no announcement yet.
        let (entries, announced) = (Vec::new(), PROTOCOL_MAX);
        Self { entries, size: 0, max, limit, announced, needs_update: false, generation: 1 }
    }

    /// Returns a number that changes with the dynamic table. Equal fields encode to equal bytes in between.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns `true` if the next block begins with a table size and therefore differs from later ones.
    pub(crate) fn needs_update(&self) -> bool {
        self.needs_update
    }

    /// Returns the size of the dynamic table, in bytes.
    pub(crate) fn table_len(&self) -> usize {
        self.size
    }

    /// Frees spare capacity.
    pub(crate) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Obeys the peer's SETTINGS_HEADER_TABLE_SIZE.
    pub fn set_peer_max(&mut self, peer_max: usize) {
        let max = peer_max.min(self.limit);
        // A peer that lowers its limit below the size that it knows of waits for a smaller one.
        if max == self.max && peer_max >= self.announced {
            return;
        }
        // The table starts again from empty: the simplest state that is valid after any sequence of sizes.
        self.max = max;
        self.entries.clear();
        self.size = 0;
        self.needs_update = true;
        self.generation += 1;
    }

    /// Starts a block: announces a changed table size.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if self.needs_update {
            (self.needs_update, self.announced) = (false, self.max);
            // Zero first, because the maximum may have been lower between two blocks.
            out.push(0x20);
            put_integer(out, 0x20, 5, self.max);
        }
    }

    /// Appends a field to a block that has [begun](Self::begin).
    pub fn field(&mut self, out: &mut Vec<u8>, field: Field<'_>) {
        let Field { name, value, compression } = field;
        if compression == Compression::Sensitive {
            let index = find_static(name.as_bytes(), b"").map(|(index, _)| index);
            return put_literal(out, 0x10, 4, index, name, value);
        }
        let in_static = find_static(name.as_bytes(), value);
        if let Some((index, true)) = in_static {
            return put_integer(out, 0x80, 7, index);
        }
        let in_static = in_static.map(|(index, _)| index);
        if compression == Compression::Plain {
            return put_literal(out, 0, 4, in_static, name, value);
        }
        let position = self.entries.iter().position(|entry| *entry.1 == *value && *entry.0 == *name);
        if let Some(position) = position {
            return put_integer(out, 0x80, 7, DYNAMIC_START + self.entries.len() - 1 - position);
        }
        if self.size + field.list_len() > self.max {
            return put_literal(out, 0, 4, in_static, name, value);
        }
        self.size += field.list_len();
        self.entries.push((name.into(), value.into()));
        self.generation += 1;
        put_literal(out, 0x40, 6, in_static, name, value);
    }
}

/// The size of a dynamic table before SETTINGS, in bytes.
pub(crate) const PROTOCOL_MAX: usize = 4096;

fn put_literal(out: &mut Vec<u8>, first: u8, prefix: u32, name_index: Option<usize>, name: &str, value: &[u8]) {
    put_integer(out, first, prefix, name_index.unwrap_or(0));
    // Huffman pays for fields sent once per connection only. Elsewhere it would cost more time than bytes.
    let inserts = first == 0x40;
    let put = if inserts { put_short_string } else { put_string };
    if name_index.is_none() {
        put(out, name.as_bytes());
    }
    put(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockDecoder;

    fn block(encoder: &mut BlockEncoder, fields: &[Field<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        fields.iter().for_each(|field| encoder.field(&mut out, *field));
        out
    }

    fn decoded(decoder: &mut BlockDecoder, block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = Vec::new();
        decoder.decode(block, |name, value| fields.push((name.to_vec(), value.to_vec()))).unwrap();
        fields
    }

    #[test]
    fn repeated_fields_take_one_byte_later() {
        let (mut encoder, mut decoder) = (BlockEncoder::new(4096), BlockDecoder::new(4096, 4096));
        let fields = [
            Field::new(":status", "200"),
            Field::repeated("content-type", "application/grpc"),
            Field::repeated("x-first", "1"),
        ];
        let first = block(&mut encoder, &fields);
        let second = block(&mut encoder, &fields);
        assert!(first.len() > 20);
        assert_eq!(second.len(), 3);
        assert_eq!(decoded(&mut decoder, &first), decoded(&mut decoder, &second));
    }

    #[test]
    fn a_full_table_keeps_its_entries_and_takes_no_more() {
        let (mut encoder, mut decoder) = (BlockEncoder::new(80), BlockDecoder::new(4096, 4096));
        // 34 bytes each: the third exceeds 80.
        for _ in 0..2 {
            for name in ["a", "b", "c"] {
                let block = block(&mut encoder, &[Field::repeated(name, "v")]);
                assert_eq!(decoded(&mut decoder, &block), [(name.into(), b"v".to_vec())]);
            }
        }
        assert_eq!((encoder.table_len(), decoder.table_len()), (68, 68));
    }

    #[test]
    fn a_changed_table_size_is_announced_before_the_next_field() {
        let (mut encoder, mut decoder) = (BlockEncoder::new(4096), BlockDecoder::new(4096, 4096));
        let field = [Field::repeated("a", "v")];
        decoded(&mut decoder, &block(&mut encoder, &field));
        for (max, len) in [(0, 0), (40, 34), (33, 0), (1 << 20, 34)] {
            encoder.set_peer_max(max);
            decoder.set_limit(max.min(4096));
            for _ in 0..2 {
                assert_eq!(decoded(&mut decoder, &block(&mut encoder, &field)).len(), 1);
            }
            assert_eq!((encoder.table_len(), decoder.table_len()), (len, len));
        }
    }

    #[test]
    fn a_small_own_limit_is_announced_once_the_peer_has_one() {
        for (own, peer) in [(80, 1000), (80, 80), (80, 40), (4096, 4096), (0, 0)] {
            let (mut encoder, mut decoder) = (BlockEncoder::new(own), BlockDecoder::new(4096, 4096));
            let field = [Field::repeated("a", "v")];
            decoded(&mut decoder, &block(&mut encoder, &field));
            encoder.set_peer_max(peer);
            decoder.set_limit(peer);
            for _ in 0..2 {
                assert_eq!(decoded(&mut decoder, &block(&mut encoder, &field)).len(), 1, "{own} {peer}");
            }
            assert_eq!(encoder.table_len(), decoder.table_len());
        }
    }

    #[test]
    fn secrets_enter_no_table() {
        let mut encoder = BlockEncoder::new(4096);
        for field in
            [Field::new("authorization", "Bearer x"), Field::sensitive("x-key", "y"), Field::new("cookie", "z")]
        {
            assert_eq!(block(&mut encoder, &[field])[0] & 0xf0, 0x10, "{field:?}");
        }
        assert_eq!(encoder.table_len(), 0);
    }
}
