//! Bytes to be written: frames in one buffer, and large data between them without a copy.

use std::{collections::VecDeque, sync::Arc};

use bytes::{Buf, Bytes};

use crate::frame::{FrameBuffer, FrameCounters};

/// The output of a connection, in order.
#[derive(Debug, Default)]
pub(super) struct OutputBuffer {
    /// Frame headers, header blocks and small data.
    small: FrameBuffer,
    /// The number of written bytes of `small`.
    written: usize,
    /// Large data, each piece with its position in `small`.
    large: VecDeque<LargeData>,
    large_len: usize,
}

#[derive(Debug)]
struct LargeData {
    position: usize,
    bytes: Bytes,
}

/// Data of this length and above is not copied.
const LARGE_MIN: usize = 4096;

/// The capacity of an empty buffer that is kept for later output.
const CAPACITY_KEPT: usize = 64 << 10;

impl OutputBuffer {
    /// Returns the buffer for frames. Its content stays as it is; callers append.
    #[inline]
    pub(super) fn frames(&mut self) -> &mut FrameBuffer {
        &mut self.small
    }

    /// Returns the counters of the frames in both directions.
    #[inline]
    pub(super) fn counters(&self) -> &Arc<FrameCounters> {
        &self.small.counters
    }

    /// Returns the number of unwritten bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.small.len() - self.written + self.large_len
    }

    /// Appends data, by reference if it is large.
    pub(super) fn push(&mut self, bytes: Bytes) {
        if bytes.len() < LARGE_MIN {
            return self.small.extend_from_slice(&bytes);
        }
        self.large_len += bytes.len();
        self.large.push_back(LargeData { position: self.small.len(), bytes });
    }

    /// Returns the unwritten bytes in order.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(self.written).chain(self.large.iter().map(|large| large.position));
        let ends = self.large.iter().map(|large| large.position).chain([self.small.len()]);
        let large = self.large.iter().map(|large| &large.bytes[..]).chain([&[][..]]);
        let pairs = starts.zip(ends).zip(large).flat_map(|((start, end), large)| [&self.small[start..end], large]);
        pairs.filter(|chunk| !chunk.is_empty())
    }

    /// Removes `len` written bytes.
    pub(super) fn advance(&mut self, mut len: usize) {
        assert!(len <= self.len(), "only existing output can be written");
        while len > 0 {
            let end = self.large.front().map_or(self.small.len(), |large| large.position);
            let from_small = len.min(end - self.written);
            self.written += from_small;
            len -= from_small;
            if let Some(large) = self.large.front_mut().filter(|_| len > 0) {
                let from_large = len.min(large.bytes.len());
                large.bytes.advance(from_large);
                len -= from_large;
                self.large_len -= from_large;
                if large.bytes.is_empty() {
                    self.large.pop_front();
                }
            }
        }
        if self.len() == 0 {
            self.clear();
        } else if self.written > CAPACITY_KEPT {
            // A slow peer never lets the buffer become empty, and written bytes must not pile up.
            self.small.drain(..self.written);
            self.large.iter_mut().for_each(|large| large.position -= self.written);
            self.written = 0;
        }
    }

    /// Moves all output to the end of `out`. An empty `out` takes the buffer without a copy.
    pub(super) fn take(&mut self, out: &mut Vec<u8>) {
        if out.is_empty() && self.large.is_empty() && self.written == 0 {
            std::mem::swap(out, &mut self.small.bytes);
            return;
        }
        self.chunks().for_each(|chunk| out.extend_from_slice(chunk));
        (self.large_len, self.written) = (0, 0);
        self.large.clear();
        self.clear();
    }

    fn clear(&mut self) {
        self.small.clear();
        self.written = 0;
        if self.small.capacity() > CAPACITY_KEPT {
            self.small.shrink_to(CAPACITY_KEPT);
        }
    }

    /// Frees the spare capacity.
    pub(super) fn shrink(&mut self) {
        self.small.shrink_to_fit();
        self.large.shrink_to_fit();
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.small.capacity() + self.large_len + self.large.capacity() * size_of::<LargeData>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_in_order_however_it_is_written() {
        for step in [1, 7, 4096, 5000, 20_000] {
            let (mut output, mut expected, mut written) = (OutputBuffer::default(), Vec::new(), Vec::new());
            for (i, len) in [3, 4095, 4096, 5000, 1, 0, 9000].into_iter().enumerate() {
                let bytes = vec![u8::try_from(i).unwrap(); len];
                output.frames().push(0xff);
                output.push(bytes.clone().into());
                expected.push(0xff);
                expected.extend(bytes);
            }
            assert_eq!(output.len(), expected.len());
            while output.len() > 0 {
                let chunk: Vec<u8> = output.chunks().flatten().copied().take(step).collect();
                output.advance(chunk.len());
                written.extend(chunk);
            }
            assert!(written == expected);
            assert_eq!(output.chunks().count(), 0);
        }
    }

    #[test]
    fn written_bytes_do_not_pile_up() {
        let mut output = OutputBuffer::default();
        output.frames().push(0);
        for _ in 0..10_000 {
            output.frames().extend([0; 1000]);
            output.advance(1000);
        }
        assert!(output.memory() < 256 << 10, "{}", output.memory());
    }

    #[test]
    fn large_data_is_taken_in_its_position() {
        let mut output = OutputBuffer::default();
        output.frames().extend(b"ab");
        output.push(vec![b'x'; LARGE_MIN].into());
        output.frames().extend(b"cd");
        output.advance(1);
        let mut out = b"-".to_vec();
        output.take(&mut out);
        assert_eq!(out, [b"-b", &[b'x'; LARGE_MIN][..], b"cd"].concat());
        assert_eq!(output.len(), 0);
    }
}
