//! Batches of frames being written.

use std::{collections::VecDeque, io::IoSlice, mem};

use bytes::{Buf, Bytes, BytesMut};

/// Contents below this length are copied into the batch. Longer ones never are.
pub const COPY_LEN_MAX: usize = 4 * 1024;
/// The length at which a buffer of collected frames is closed instead of growing.
pub(super) const FLAT_LEN_MAX: usize = 64 * 1024;

/// A batch of complete frames being written. [`Buf`] returns the unwritten rest.
#[derive(Debug, Default)]
pub struct Transmit {
    pub(super) parts: VecDeque<BatchPart>,
    /// The number of bytes written of the first part.
    offset: usize,
    pub(super) len: usize,
    /// The sequence number of the last packet completely written after this batch.
    pub(super) packets: u64,
    /// The sequence number of the last packet handed out with this batch. Contents in pieces may continue later.
    pub(super) attempted: u64,
    /// A buffer already written, for reuse by the next batch.
    pub(super) spare: BytesMut,
}

/// A part of a batch. A content part follows the flat part with its header, or its header as another content part.
#[derive(Debug)]
pub(super) enum BatchPart {
    /// Frames, and the sequence number of the last packet written after this part and its contents.
    Flat(BytesMut, u64),
    /// Like a flat part, with bytes shared by several connections.
    Shared(Bytes, u64),
    Content(Bytes),
}

impl Transmit {
    /// Frees buffers not needed by a quiet connection.
    pub fn release(&mut self) {
        if self.spare.capacity() > QUIET_LEN_MAX {
            self.spare = BytesMut::new();
        }
    }

    pub(super) fn push(&mut self, part: BatchPart) {
        self.len += part.bytes().len();
        if let BatchPart::Flat(_, packets) | BatchPart::Shared(_, packets) = part {
            self.packets = packets;
        }
        self.parts.push_back(part);
    }
}

impl Buf for Transmit {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], |part| &part.bytes()[self.offset..])
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut offset = self.offset;
        let mut filled = 0;
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            *slice = IoSlice::new(&part.bytes()[mem::take(&mut offset)..]);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, count: usize) {
        self.len -= count;
        self.offset += count;
        while let Some(first) = self.parts.front()
            && first.bytes().len() <= self.offset
        {
            self.offset -= first.bytes().len();
            if let Some(BatchPart::Flat(mut buf, _)) = self.parts.pop_front()
                && buf.capacity() > self.spare.capacity()
            {
                buf.clear();
                self.spare = buf;
            }
        }
    }
}

impl BatchPart {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Flat(bytes, _) => bytes,
            Self::Shared(bytes, _) | Self::Content(bytes) => bytes,
        }
    }
}

/// The largest write buffer kept by a quiet connection.
const QUIET_LEN_MAX: usize = 1024;
