//! Checksums of frames, between extended peers that both enable them.
//!
//! ```text
//!   frame = header | CRC-32C u32 of the header | content | CRC-32C u32 of header and content
//!           └──── all of an empty frame ─────┘
//! ```
//!
//! Frames are sealed after a batch is assembled, so no other sending code depends on checksums.

use std::{collections::VecDeque, mem};

use bytes::{BufMut as _, Bytes, BytesMut};
use crc32c::{crc32c, crc32c_append};

use super::{
    header::{Header, HeaderFormat},
    transmit::{BatchPart, Transmit},
};

/// The length of a checksum in bytes.
pub(super) const CHECKSUM_LEN: usize = 4;

/// The state of checksums for frames sent by this side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ChecksumState {
    #[default]
    Off,
    /// The peer expects checksums, and a CHECKSUMS frame must announce them first.
    Due,
    On,
}

/// Returns the checksum after a header. It protects the length, which is used before the content arrives.
pub(super) fn header_checksum(format: HeaderFormat, header: Header) -> u32 {
    crc32c(format.part(&header.layout()))
}

/// Returns the checksum after a nonempty content.
pub(super) fn content_checksum(format: HeaderFormat, header: Header, content: &[u8]) -> u32 {
    crc32c_append(header_checksum(format, header), content)
}

/// Adds checksums to each frame of a batch after the first `skipped` bytes. Returns the number of bytes added.
///
/// Copies small frames once more, but not large contents.
pub(super) fn seal(format: HeaderFormat, mut skipped: usize, batch: &mut Transmit) -> usize {
    let before = batch.len;
    let parts = mem::take(&mut batch.parts);
    let mut sealed = SealedBatch { format, left: None, crc: 0, len: 0, parts: VecDeque::with_capacity(parts.len()) };
    for part in parts {
        match part {
            BatchPart::Flat(bytes, packets) => {
                let flat = sealed.flat(&bytes, mem::take(&mut skipped));
                sealed.push(BatchPart::Flat(flat, packets));
            }
            BatchPart::Shared(bytes, packets) => {
                let flat = sealed.flat(&bytes, 0);
                sealed.push(BatchPart::Flat(flat, packets));
            }
            BatchPart::Content(bytes) => sealed.content(bytes),
        }
    }
    debug_assert_eq!(sealed.left, None, "a batch ends with a whole frame");
    (batch.parts, batch.len) = (sealed.parts, sealed.len);
    batch.len - before
}

/// A batch being rebuilt with checksums.
struct SealedBatch {
    format: HeaderFormat,
    /// The missing content bytes of the current frame. `None` between frames.
    left: Option<usize>,
    /// The checksum of the current frame so far.
    crc: u32,
    parts: VecDeque<BatchPart>,
    len: usize,
}

impl SealedBatch {
    fn push(&mut self, part: BatchPart) {
        self.len += part.bytes().len();
        self.parts.push_back(part);
    }

    /// Copies frames. The last one may continue in the next part. The first `skipped` bytes get no checksum.
    fn flat(&mut self, bytes: &[u8], skipped: usize) -> BytesMut {
        let mut out = BytesMut::with_capacity(bytes.len() + bytes.len() / 4 + CHECKSUM_LEN);
        out.extend_from_slice(&bytes[..skipped]);
        let mut rest = &bytes[skipped..];
        while !rest.is_empty() {
            let (here, crc) = self.take(&mut rest);
            out.extend_from_slice(here);
            if let Some(crc) = crc {
                out.put_u32(crc);
            }
        }
        out
    }

    /// Passes bytes through without a copy.
    fn content(&mut self, bytes: Bytes) {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (here, crc) = self.take(&mut rest);
            let slice = bytes.slice_ref(here);
            self.push(BatchPart::Content(slice));
            if let Some(crc) = crc {
                self.push(BatchPart::Content(Bytes::copy_from_slice(&crc.to_be_bytes())));
            }
        }
    }

    /// Takes the next header or content bytes, and returns the checksum to insert after them, if any.
    fn take<'a>(&mut self, bytes: &mut &'a [u8]) -> (&'a [u8], Option<u32>) {
        let (here, rest, is_whole) = match self.left {
            None => {
                let header = Header::decode(self.format, bytes).ok().flatten();
                let len = header.expect("this side encoded the header, and never cuts one").len as usize;
                let (here, rest) = bytes.split_at(self.format.header_len());
                self.crc = crc32c(here);
                self.left = (len > 0).then_some(len);
                (here, rest, true)
            }
            Some(left) => {
                let (here, rest) = bytes.split_at(left.min(bytes.len()));
                self.crc = crc32c_append(self.crc, here);
                self.left = (left > here.len()).then(|| left - here.len());
                (here, rest, self.left.is_none())
            }
        };
        *bytes = rest;
        (here, is_whole.then_some(self.crc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_matches_the_specification() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let header = Header { id: 7, operation: 20, len: 2 };
        let sum = content_checksum(HeaderFormat::Magic10, header, b"hi");
        assert_eq!(sum, crc32c(b"\x00\x0f\x00\x07\x00\x14\x00\x00\x00\x02hi"));
    }
}
