//! Encoding of header blocks, with blocks prepared in advance.

use crate::{
    BlockEncoder, Field,
    frame::{FrameBuffer, HEADER_LEN, kind},
    hpack::OwnedField,
};

/// The fields of a head or of trailers, for sending.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    pub(super) prepared: Option<PreparedBlock>,
    pub(super) fields: &'a [Field<'a>],
}

impl<'a> Header<'a> {
    /// Creates a header of fields. Pseudo-headers come first.
    pub fn fields(fields: &'a [Field<'a>]) -> Self {
        Self { prepared: None, fields }
    }

    /// Creates a header of a prepared block.
    pub fn prepared(block: PreparedBlock) -> Self {
        Self { prepared: Some(block), fields: &[] }
    }

    /// Appends fields to a prepared block.
    pub fn with_fields(self, fields: &'a [Field<'a>]) -> Self {
        Self { fields, ..self }
    }
}

/// A header block of [`Connection::prepare`](crate::Connection::prepare), valid for its connection only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedBlock(usize);

/// The encoder of a connection, and its prepared blocks.
#[derive(Debug)]
pub(super) struct HeadEncoder {
    encoder: BlockEncoder,
    prepared: Vec<EncodedBlock>,
}

#[derive(Debug)]
struct EncodedBlock {
    fields: Vec<OwnedField>,
    list_len: usize,
    /// `true` for the head of a HEAD request.
    is_head: bool,
    /// The encoded fields, if the dynamic table still has this generation.
    bytes: Vec<u8>,
    generation: u64,
    /// The HEADERS frame of a short block, without flags and stream.
    frame: Option<ShortFrame>,
}

/// A short frame. Its copy has a fixed length, which takes no call of `memcpy`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortFrame {
    bytes: [u8; SHORT_FRAME_LEN],
    len: usize,
}

const SHORT_FRAME_LEN: usize = 32;

impl ShortFrame {
    fn new(block: &[u8]) -> Option<Self> {
        let len = HEADER_LEN + block.len();
        let mut bytes = [0; SHORT_FRAME_LEN];
        bytes.get_mut(HEADER_LEN..len)?.copy_from_slice(block);
        (bytes[2], bytes[3]) = (u8::try_from(block.len()).ok()?, kind::HEADERS);
        Some(Self { bytes, len })
    }

    /// Appends the frame.
    #[inline]
    pub(super) fn put(&self, out: &mut FrameBuffer, flags: u8, stream: u32) {
        let (mut bytes, end) = (self.bytes, out.len() + self.len);
        bytes[4] = flags;
        bytes[5..HEADER_LEN].copy_from_slice(&stream.to_be_bytes());
        out.count(kind::HEADERS);
        out.extend_from_slice(&bytes);
        out.truncate(end);
    }
}

impl HeadEncoder {
    pub(super) fn new(table_max: u32) -> Self {
        Self { encoder: BlockEncoder::new(table_max as usize), prepared: Vec::new() }
    }

    pub(super) fn set_peer_max(&mut self, max: u32) {
        self.encoder.set_peer_max(max as usize);
    }

    pub(super) fn prepare(&mut self, fields: &[Field<'_>]) -> PreparedBlock {
        let list_len = fields.iter().map(Field::list_len).sum();
        let is_head = fields.iter().any(is_method_head);
        let fields = fields.iter().map(|field| field.detach()).collect();
        // Generations begin at 1, so the first use encodes.
        self.prepared.push(EncodedBlock { fields, list_len, is_head, bytes: Vec::new(), generation: 0, frame: None });
        PreparedBlock(self.prepared.len() - 1)
    }

    /// Returns the size of a header in the sense of MAX_HEADER_LIST_SIZE.
    pub(super) fn list_len(&self, header: Header<'_>) -> usize {
        let prepared = header.prepared.and_then(|block| self.prepared.get(block.0)).map_or(0, |block| block.list_len);
        prepared + header.fields.iter().map(Field::list_len).sum::<usize>()
    }

    /// Returns `true` for the head of a HEAD request.
    pub(super) fn is_head(&self, header: Header<'_>) -> bool {
        // Pseudo-headers come first, so the search for the method is short.
        let own = || header.fields.iter().take_while(|field| field.name().starts_with(':')).any(is_method_head);
        header.prepared.and_then(|block| self.prepared.get(block.0)).is_some_and(|block| block.is_head) || own()
    }

    /// Returns the block of a prepared header without further fields, if it is encoded for the current table.
    #[inline]
    pub(super) fn encoded(&self, header: Header<'_>) -> Option<&[u8]> {
        let block = self.prepared.get(header.prepared?.0).filter(|_| header.fields.is_empty())?;
        let is_current = !self.encoder.needs_update() && block.generation == self.encoder.generation();
        is_current.then_some(&block.bytes)
    }

    /// Returns the frame of such a block, if it is short.
    #[inline]
    pub(super) fn short_frame(&self, header: Header<'_>) -> Option<&ShortFrame> {
        let block = self.prepared.get(header.prepared?.0).filter(|_| header.fields.is_empty())?;
        let is_current = !self.encoder.needs_update() && block.generation == self.encoder.generation();
        block.frame.as_ref().filter(|_| is_current)
    }

    /// Appends the block of a header.
    pub(super) fn encode(&mut self, out: &mut Vec<u8>, header: Header<'_>) {
        let prefix = self.encoded(Header { fields: &[], ..header }).is_some();
        self.encoder.begin(out);
        match header.prepared {
            Some(block) if prefix => out.extend_from_slice(&self.prepared[block.0].bytes),
            Some(block) => self.encode_prepared(out, block),
            None => {}
        }
        for field in header.fields {
            self.encoder.field(out, *field);
        }
    }

    fn encode_prepared(&mut self, out: &mut Vec<u8>, block: PreparedBlock) {
        let Some(block) = self.prepared.get_mut(block.0) else {
            debug_assert!(false, "a prepared block belongs to its connection");
            return;
        };
        let (start, generation) = (out.len(), self.encoder.generation());
        for field in &block.fields {
            self.encoder.field(out, field.borrow());
        }
        // Fields that entered the table have shorter forms the next time.
        if self.encoder.generation() == generation {
            block.bytes.clear();
            block.bytes.extend_from_slice(&out[start..]);
            block.generation = generation;
            block.frame = ShortFrame::new(&block.bytes);
        }
    }

    /// Frees spare capacity.
    pub(super) fn shrink(&mut self) {
        self.prepared.shrink_to_fit();
        self.encoder.shrink();
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.encoder.table_len()
    }
}

fn is_method_head(field: &Field<'_>) -> bool {
    field.name() == ":method" && field.value() == b"HEAD"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockDecoder;

    #[test]
    fn head_requests_are_found_in_both_parts_of_a_header() {
        let mut encoder = HeadEncoder::new(4096);
        let (scheme, head, get) =
            ([Field::new(":scheme", "http")], [Field::new(":method", "HEAD")], [Field::new(":method", "GET")]);
        let [prepared_scheme, prepared_head, prepared_get] =
            [&scheme, &head, &get].map(|fields| encoder.prepare(fields));
        assert!(encoder.is_head(Header::fields(&head)) && !encoder.is_head(Header::fields(&get)));
        assert!(encoder.is_head(Header::prepared(prepared_head)) && !encoder.is_head(Header::prepared(prepared_get)));
        assert!(encoder.is_head(Header::prepared(prepared_scheme).with_fields(&head)));
        assert!(!encoder.is_head(Header::fields(&[Field::new("x", "HEAD")])));
    }

    #[test]
    fn prepared_blocks_stay_valid_as_the_table_changes() {
        let (mut encoder, mut decoder) = (HeadEncoder::new(4096), BlockDecoder::new(4096, 4096));
        let head =
            encoder.prepare(&[Field::new(":status", "200"), Field::repeated("content-type", "application/grpc")]);
        let trailers = encoder.prepare(&[Field::repeated("grpc-status", "0")]);
        let extra = [Field::new("x", "y")];
        for round in 0..6 {
            if round == 4 {
                encoder.set_peer_max(0);
                decoder.set_limit(0);
            }
            for (block, expected) in
                [(head, ":status=200;content-type=application/grpc;x=y;"), (trailers, "grpc-status=0;x=y;")]
            {
                let (mut out, mut text) = (Vec::new(), String::new());
                encoder.encode(&mut out, Header::prepared(block).with_fields(&extra));
                let complete = decoder.decode(&out, |name, value| {
                    text += &format!("{}={};", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                });
                assert_eq!((complete, &*text), (Ok(true), expected), "round {round}");
                if (2..4).contains(&round) {
                    assert!(out.len() <= 7, "two indices and the extra field: {out:?}");
                }
            }
        }
    }
}
