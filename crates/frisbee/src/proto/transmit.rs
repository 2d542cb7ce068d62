//! A batch of frames that is being written.

use std::{collections::VecDeque, io::IoSlice, mem};

use bytes::{Buf, Bytes, BytesMut};

/// Contents below this length are copied into the batch; from this length on they never are.
pub const COPY_LEN_MAX: usize = 4 * 1024;
/// A buffer that gathers frames is closed at this length instead of growing.
pub(super) const FLAT_LEN_MAX: usize = 64 * 1024;

/// A batch of whole frames that is being written. [`Buf`] says what is left of it.
#[derive(Debug, Default)]
pub struct Transmit {
    pub(super) parts: VecDeque<Part>,
    /// The number of bytes of the first part that are written.
    offset: usize,
    pub(super) len: usize,
    pub(super) packets: u64,
    /// The number of the last packet of which anything is in this batch or was in one before.
    pub(super) attempted: u64,
    /// A written buffer, kept so that the next batch need not allocate.
    pub(super) spare: BytesMut,
}

/// The pieces of a content always follow directly on the flat part that ends with its header.
#[derive(Debug)]
pub(super) enum Part {
    /// Frames, and the number of packets ever queued that are written once this part and the content behind it are.
    Flat(BytesMut, u64),
    /// As a flat part, of bytes that other connections send as well.
    Shared(Bytes, u64),
    Content(Bytes),
}

impl Transmit {
    /// Returns how many of the packets ever queued are written, once this batch is.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns how many of the packets ever queued may be handed out with this batch. Those that go in pieces may come later.
    pub(super) fn attempted(&self) -> u64 {
        self.attempted
    }

    /// Gives back memory that a quiet connection does not need.
    pub fn release(&mut self) {
        if self.spare.capacity() > QUIET_LEN_MAX {
            self.spare = BytesMut::new();
        }
    }

    pub(super) fn push(&mut self, part: Part) {
        self.len += part.bytes().len();
        if let Part::Flat(_, packets) | Part::Shared(_, packets) = part {
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
            if let Some(Part::Flat(mut buf, _)) = self.parts.pop_front()
                && buf.capacity() > self.spare.capacity()
            {
                buf.clear();
                self.spare = buf;
            }
        }
    }
}

impl Part {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Flat(bytes, _) => bytes,
            Self::Shared(bytes, _) | Self::Content(bytes) => bytes,
        }
    }
}

/// A quiet connection keeps a write buffer up to this size.
const QUIET_LEN_MAX: usize = 1024;
