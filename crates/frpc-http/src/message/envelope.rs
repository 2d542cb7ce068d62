//! Frames of gRPC, gRPC-Web and Connect: one byte of flags, the length in four bytes, and the content.

use std::mem;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use frpc::{Status, frisbee::keep_freed_memory};

/// The length of a frame header.
pub(crate) const HEADER_LEN: usize = 5;

/// The factor between the buffer of an incomplete frame and its received bytes.
const GROWTH: usize = 4;

/// Buffers of this length come and go in memory that is worth keeping.
const LARGE_LEN: usize = 16 << 10;

/// The flag of compressed content.
pub(crate) const COMPRESSED: u8 = 0x01;

/// The flag of the last frame of a Connect stream.
pub(crate) const END_OF_STREAM: u8 = 0x02;

/// The flag of gRPC-Web trailers.
pub(crate) const TRAILERS: u8 = 0x80;

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnvelopeFrame {
    pub(crate) flags: u8,
    pub(crate) content: Bytes,
}

/// Splits a byte stream received in chunks into frames. Does not copy frames contained in one chunk. Allocates memory
/// only for received bytes, never for an announced length.
#[derive(Debug)]
pub(crate) struct EnvelopeReader {
    /// The unread rest of the last chunk.
    chunk: Bytes,
    /// The start of a frame from earlier chunks. Empty if the next frame starts in `chunk`.
    partial: BytesMut,
    content_len_max: usize,
}

/// An invalid sequence of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The content of a frame exceeds the limit.
    TooLong { len: usize, max: usize },
    /// The stream ended within a frame.
    Truncated,
}

/// Reserves room for `arrived` bytes in the buffer of a frame of `len` bytes.
///
/// The sender announced the length, but not all of it may arrive. So the buffer grows by a multiple of the received
/// bytes: a frame of many chunks is copied once or twice, and never once per chunk.
pub(crate) fn reserve(buffer: &mut BytesMut, arrived: usize, len: usize) {
    if buffer.capacity() - buffer.len() < arrived {
        let (missing, received) = (len - buffer.len(), buffer.len() + arrived);
        if missing >= LARGE_LEN {
            keep_freed_memory();
        }
        buffer.reserve(missing.min(received * GROWTH - buffer.len()));
    }
}

/// Reads a frame header: the flags, and the length of the content.
pub(crate) fn parse(&[flags, a, b, c, d]: &[u8; HEADER_LEN]) -> (u8, usize) {
    (flags, usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX))
}

impl EnvelopeReader {
    /// Creates a reader of frames with at most this many bytes of content.
    pub(crate) fn new(content_len_max: usize) -> Self {
        Self { chunk: Bytes::new(), partial: BytesMut::new(), content_len_max }
    }

    /// Adds a received chunk. The caller must have taken all frames of the previous chunk.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "there may be a frame left");
        self.chunk = chunk;
    }

    /// Returns the next frame, or `None` if more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<EnvelopeFrame>, FrameError> {
        if self.partial.is_empty() {
            if let Some(header) = self.chunk.first_chunk() {
                let (flags, len) = self.parse(header)?;
                if self.chunk.len() >= HEADER_LEN + len {
                    self.chunk.advance(HEADER_LEN);
                    return Ok(Some(EnvelopeFrame { flags, content: self.chunk.split_to(len) }));
                }
            }
            if self.chunk.is_empty() {
                return Ok(None);
            }
        }
        self.next_partial()
    }

    /// Returns all whole frames of the chunk in one piece, if there are several and they have no flags.
    pub(crate) fn next_plain(&mut self) -> Option<Bytes> {
        if !self.partial.is_empty() {
            return None;
        }
        let (mut end, mut count) = (0, 0);
        while let Some((0, len)) = self.chunk[end..].first_chunk().map(parse)
            && len <= self.content_len_max
            && len <= self.chunk.len() - end - HEADER_LEN
        {
            end += HEADER_LEN + len;
            count += 1;
        }
        (count > 1).then(|| self.chunk.split_to(end))
    }

    /// Takes the start of a long frame, with the length of the frame, after [`next`](Self::next) needs more bytes. The
    /// next chunk then begins with the start.
    pub(crate) fn take_start(&mut self) -> Option<(BytesMut, usize)> {
        let (_, len) = parse(self.partial.first_chunk()?);
        (HEADER_LEN + len >= LARGE_LEN).then(|| (mem::take(&mut self.partial), HEADER_LEN + len))
    }

    /// Returns a frame spread over several chunks, or `None` until all its bytes have arrived.
    fn next_partial(&mut self) -> Result<Option<EnvelopeFrame>, FrameError> {
        self.gather(HEADER_LEN);
        let Some(header) = self.partial.first_chunk() else { return Ok(None) };
        let (flags, len) = self.parse(header)?;
        self.gather(HEADER_LEN + len);
        if self.partial.len() < HEADER_LEN + len {
            return Ok(None);
        }
        let mut content = mem::take(&mut self.partial).freeze();
        content.advance(HEADER_LEN);
        Ok(Some(EnvelopeFrame { flags, content }))
    }

    /// Moves bytes from the chunk to the partial frame until it has `len` bytes.
    fn gather(&mut self, len: usize) {
        let missing = len.saturating_sub(self.partial.len());
        let arrived = missing.min(self.chunk.len());
        reserve(&mut self.partial, arrived, len);
        self.partial.extend_from_slice(&self.chunk.split_to(arrived));
    }

    fn parse(&self, header: &[u8; HEADER_LEN]) -> Result<(u8, usize), FrameError> {
        let (flags, len) = parse(header);
        if len > self.content_len_max {
            return Err(FrameError::TooLong { len, max: self.content_len_max });
        }
        Ok((flags, len))
    }

    /// Returns the number of buffered bytes.
    pub(crate) fn held_len(&self) -> usize {
        self.partial.len() + self.chunk.len()
    }

    /// Returns `true` if the received bytes end within a frame.
    pub(crate) fn is_partial(&self) -> bool {
        !self.partial.is_empty() || !self.chunk.is_empty()
    }
}

impl From<FrameError> for Status {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::TooLong { len, max } => {
                Self::resource_exhausted(format!("a message of {len} bytes exceeds the limit of {max} bytes"))
            }
            FrameError::Truncated => Self::invalid_argument("the message stream ended in the middle of a message"),
        }
    }
}

/// Returns the header of a frame with content of this length.
///
/// # Errors
///
/// If the length does not fit into four bytes.
pub(crate) fn header(flags: u8, len: usize) -> Result<[u8; HEADER_LEN], Status> {
    let len = u32::try_from(len)
        .map_err(|_| Status::resource_exhausted("a message of 4 GiB or more does not fit into a frame"))?;
    let [a, b, c, d] = len.to_be_bytes();
    Ok([flags, a, b, c, d])
}

/// Returns a frame as one buffer.
///
/// # Errors
///
/// If the content is too long for a frame.
pub(crate) fn frame(flags: u8, content: &[u8]) -> Result<Bytes, Status> {
    let mut frame = BytesMut::with_capacity(HEADER_LEN + content.len());
    frame.put_slice(&header(flags, content.len())?);
    frame.put_slice(content);
    Ok(frame.freeze())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(frames: &mut EnvelopeReader) -> Vec<(u8, Bytes)> {
        std::iter::from_fn(|| frames.next().unwrap()).map(|frame| (frame.flags, frame.content)).collect()
    }

    #[test]
    fn a_frame_within_a_chunk_is_not_copied() {
        let chunk = Bytes::from_static(&[0, 0, 0, 0, 2, 7, 8, 1, 0, 0, 0, 0]);
        let mut frames = EnvelopeReader::new(2);
        frames.push(chunk.clone());
        let first = frames.next().unwrap().unwrap();
        assert_eq!((first.flags, &first.content[..]), (0, &[7, 8][..]));
        assert_eq!(first.content.as_ptr(), chunk[5..].as_ptr());
        assert_eq!(all(&mut frames), [(COMPRESSED, Bytes::new())]);
        assert!(!frames.is_partial());
    }

    #[test]
    fn whole_frames_without_flags_are_one_piece() {
        let chunk = Bytes::from_static(b"\0\0\0\0\x01a\0\0\0\0\0\0\0\0\0\x01b\x01\0\0\0\x01c\0\0\0\0\x01");
        let mut frames = EnvelopeReader::new(1);
        frames.push(chunk.clone());
        assert_eq!(frames.next_plain(), Some(chunk.slice(..17)));
        assert_eq!(frames.next_plain(), None, "a frame has a flag");
        assert_eq!(frames.next().unwrap().unwrap().flags, COMPRESSED);
        assert_eq!(frames.next_plain(), None, "a frame is incomplete");
        assert_eq!(frames.next(), Ok(None));
        frames.push(Bytes::from_static(b"d\0\0\0\0\0\0\0\0\0\x02ef"));
        assert_eq!(frames.next_plain(), None, "a frame began in an earlier chunk");
        assert_eq!(frames.next().unwrap().unwrap().content, "d");
        assert_eq!(frames.next_plain(), None, "a frame is alone, and the next one too long");
        assert_eq!(frames.next().unwrap().unwrap().content, "");
        assert_eq!(frames.next(), Err(FrameError::TooLong { len: 2, max: 1 }));
    }

    #[test]
    fn the_buffer_of_a_frame_grows_with_its_received_bytes() {
        let mut frames = EnvelopeReader::new(usize::MAX);
        frames.push(Bytes::from_static(&[0, 0, 16, 0, 0]));
        assert_eq!(frames.next(), Ok(None));
        let (mut received, mut moved, mut last) = (HEADER_LEN, 0, 0);
        let content = loop {
            frames.push(vec![7; 16 << 10].into());
            received += 16 << 10;
            if let Some(frame) = frames.next().unwrap() {
                break frame.content;
            }
            assert!(frames.partial.capacity() <= received * GROWTH);
            moved += usize::from(frames.partial.capacity() != last);
            last = frames.partial.capacity();
        };
        assert_eq!(content.len(), 1 << 20);
        assert!(moved <= 4, "the content moved {moved} times");
    }

    #[test]
    fn memory_is_allocated_for_received_bytes_only() {
        let mut frames = EnvelopeReader::new(usize::MAX);
        frames.push(Bytes::from_static(&[0, 255, 255, 255, 255, 1, 2, 3]));
        assert_eq!(frames.next(), Ok(None));
        assert!(frames.is_partial() && frames.partial.capacity() < 1024);
    }

    proptest! {
        #[test]
        fn frames_decode_for_any_split(
            sent in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(|(flags, content)| frame(*flags, content).unwrap()).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut frames = EnvelopeReader::new(40);
            let mut came = Vec::new();
            for cut in cuts.windows(2) {
                frames.push(Bytes::copy_from_slice(&bytes[cut[0]..cut[1]]));
                came.extend(all(&mut frames));
            }
            let came: Vec<_> = came.into_iter().map(|(flags, content)| (flags, content.to_vec())).collect();
            prop_assert_eq!(came, sent);
            prop_assert!(!frames.is_partial());
        }
    }
}
