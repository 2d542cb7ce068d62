//! The unread data of one stream.

use std::{collections::VecDeque, mem};

use bytes::Bytes;

use crate::proto::transmit::COPY_LEN_MAX;

/// Queued contents of a stream, and the content that its reader took last.
#[derive(Debug, Default)]
pub(super) struct UnreadQueue {
    contents: VecDeque<Bytes>,
    /// The cost of the queued contents.
    len: usize,
    /// The cost of the last content taken by the reader. Counted until its next read or the drop of the stream.
    taken_len: usize,
    /// The number of contents at the front of the queue already copied out of their read buffers.
    detached: usize,
}

impl UnreadQueue {
    /// Returns the cost of all contents, including the last one taken.
    pub(super) fn held_len(&self) -> usize {
        self.len + self.taken_len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    pub(super) fn push(&mut self, content: Bytes) {
        self.len += content.len() + PACKET_COST;
        self.contents.push_back(content);
    }

    /// Returns `true` if the queue exceeds its limit. A single content always fits.
    pub(super) fn is_over(&self, len_max: usize) -> bool {
        self.len > len_max && self.contents.len() > 1
    }

    /// Returns `true` if at most half of the limit, or a single content, is left.
    pub(super) fn is_below_half(&self, len_max: usize) -> bool {
        self.len <= len_max / 2 || self.contents.len() <= 1
    }

    /// Takes the next content. It counts until [`finish_taken`](Self::finish_taken).
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let content = self.contents.pop_front()?;
        self.taken_len = content.len() + PACKET_COST;
        self.len -= self.taken_len;
        self.detached = self.detached.saturating_sub(1);
        Some(content)
    }

    pub(super) fn front(&self) -> Option<&Bytes> {
        self.contents.front()
    }

    /// Returns the cost of the last content taken, which no longer counts.
    pub(super) fn finish_taken(&mut self) -> usize {
        mem::take(&mut self.taken_len)
    }

    /// Drops all contents and returns their cost, including the last one taken.
    pub(super) fn clear(&mut self) -> usize {
        mem::take(self).held_len()
    }

    /// Copies small contents out of the read buffers they pin.
    pub(super) fn detach(&mut self) {
        for content in self.contents.iter_mut().skip(self.detached) {
            if content.len() < COPY_LEN_MAX {
                *content = Bytes::copy_from_slice(content);
            }
        }
        self.detached = self.contents.len();
    }
}

/// The extra cost of a queued packet in bytes. It bounds the number of empty packets too.
pub const PACKET_COST: usize = 64;
