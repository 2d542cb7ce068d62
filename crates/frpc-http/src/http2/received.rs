//! Received data, until its application reads it.

use std::{collections::VecDeque, mem};

use bytes::{Bytes, BytesMut};
use frpc::frisbee::keep_freed_memory;

use crate::message::envelope;

/// Unread data in pieces. A piece never moves to grow, except the start of a long message.
///
/// The reader of a long message [collects](Self::collect) it: all its data goes into one piece, and is decoded there.
#[derive(Debug, Default)]
pub(crate) struct ReceivedData {
    /// The oldest piece, and later ones. Most messages have one piece.
    first: BytesMut,
    later: VecDeque<BytesMut>,
    /// The length of the collected message. The reader gets `first` once it is that long. Until then, there are no later
    /// pieces.
    collected_len: usize,
}

impl ReceivedData {
    /// Adds data. Returns the length of its part in a collected message.
    pub(crate) fn push(&mut self, data: &[u8]) -> usize {
        let collected = self.missing().min(data.len());
        if collected > 0 {
            envelope::reserve(&mut self.first, collected, self.collected_len);
            self.first.extend_from_slice(&data[..collected]);
        }
        self.push_uncollected(&data[collected..]);
        collected
    }

    fn push_uncollected(&mut self, data: &[u8]) {
        let len = self.len();
        if len == 0 {
            return self.first.extend_from_slice(data);
        }
        // Later pieces have room for further data: a piece per small frame would take far more memory than its data.
        let last = self.later.back_mut().filter(|last| last.capacity() > last.len());
        let room = last.as_ref().map_or(0, |last| last.capacity() - last.len());
        let (start, rest) = data.split_at(data.len().min(room));
        if let Some(last) = last {
            last.extend_from_slice(start);
        }
        if !rest.is_empty() {
            if len >= PIECE_MAX {
                // A reader of a long stream frees pieces as fast as they come.
                keep_freed_memory();
            }
            let mut piece = BytesMut::with_capacity(rest.len().max(len.clamp(PIECE_MIN, PIECE_MAX)));
            piece.extend_from_slice(rest);
            self.later.push_back(piece);
        }
    }

    /// Adds a piece without a copy.
    pub(crate) fn push_piece(&mut self, piece: BytesMut) {
        if self.is_empty() {
            self.first = piece;
        } else {
            self.later.push_back(piece);
        }
    }

    /// Returns the oldest piece. A collected message is a piece once it is complete.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        if self.missing() > 0 { None } else { self.pop_partial() }
    }

    /// Returns the oldest piece, even a part of a collected message.
    pub(crate) fn pop_partial(&mut self) -> Option<Bytes> {
        self.collected_len = 0;
        if self.first.is_empty() {
            return self.later.pop_front().map(BytesMut::freeze);
        }
        Some(mem::take(&mut self.first).freeze())
    }

    /// Collects a message of `len` bytes in one piece, after its start. Returns the length of its data among the unread
    /// data.
    pub(crate) fn collect(&mut self, start: BytesMut, len: usize) -> usize {
        let collected = self.len().min(len - start.len());
        let unread = mem::take(self);
        (self.first, self.collected_len) = (start, len);
        envelope::reserve(&mut self.first, collected, len);
        for mut piece in [unread.first].into_iter().chain(unread.later) {
            let part = piece.len().min(self.missing());
            self.first.extend_from_slice(&piece.split_to(part));
            if !piece.is_empty() {
                self.later.push_back(piece);
            }
        }
        collected
    }

    /// Returns the missing length of a collected message.
    pub(crate) fn missing(&self) -> usize {
        self.collected_len.saturating_sub(self.first.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.later.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.later.iter().map(BytesMut::len).sum::<usize>()
    }
}

/// The minimum capacity of a later piece.
const PIECE_MIN: usize = 4 << 10;

/// The maximum capacity of a piece for several frames. Up to it, a piece has the length of the data before it.
const PIECE_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collected_message_takes_memory_for_received_bytes_only() {
        let mut received = ReceivedData::default();
        received.push(&[7; 5000]);
        assert_eq!(received.collect(b"start"[..].into(), 4 << 20), 5000);
        let mut len = 5005;
        while received.missing() > 0 {
            assert!(received.first.capacity() <= 4 * len, "{} bytes for {len}", received.first.capacity());
            len += received.push(&[7; 16_000]);
        }
        assert_eq!(len, 4 << 20);
        assert_eq!(received.pop().unwrap().len(), len, "the next message is not part of it");
    }

    fn bytes(lens: &[usize]) -> Vec<Vec<u8>> {
        lens.iter().enumerate().map(|(i, len)| vec![u8::try_from(i).unwrap(); *len]).collect()
    }

    #[test]
    fn pieces_keep_the_order_of_frames() {
        for lens in [&[3, 5000, 4, 5, 4096, 6000, 7, 70_000, 1][..], &[5000, 1, 1, 5000], &[1, 2, 3]] {
            let (mut received, mut expected, mut read) = (ReceivedData::default(), Vec::new(), Vec::new());
            for data in bytes(lens) {
                assert_eq!(received.push(&data), 0);
                expected.extend(data);
            }
            assert_eq!(received.len(), expected.len());
            while let Some(piece) = received.pop() {
                read.extend_from_slice(&piece);
            }
            assert!(read == expected && received.is_empty());
        }
    }

    #[test]
    fn small_frames_share_pieces_within_twice_their_length() {
        let mut received = ReceivedData::default();
        for len in 1..100_000 {
            received.push(&[7]);
            let capacity = received.first.capacity() + received.later.iter().map(BytesMut::capacity).sum::<usize>();
            assert!(capacity <= 2 * len + 2 * PIECE_MIN, "{capacity} bytes for {len}");
        }
        let pieces = std::iter::from_fn(|| received.pop()).count();
        assert!(pieces < 10, "{pieces} pieces");
        received.push(&[1]);
        assert_eq!(received.pop().as_deref(), Some(&[1][..]));
        received.push(&[2]);
        assert_eq!(received.pop().as_deref(), Some(&[2][..]), "a piece that was read does not grow");
    }

    #[test]
    fn a_collected_message_is_one_piece() {
        for unread in [&[][..], &[10], &[5000, 60], &[5000, 5000], &[10_000, 7]] {
            let (mut received, mut expected) = (ReceivedData::default(), b"start".to_vec());
            for data in bytes(unread) {
                received.push(&data);
                expected.extend(data);
            }
            let unread: usize = unread.iter().sum();
            assert_eq!(received.collect(b"start"[..].into(), 8000), unread.min(7995));
            for data in bytes(&[3000, 1, 6000]) {
                let missing = received.missing();
                assert!(missing == 0 || received.pop().is_none());
                assert_eq!(received.push(&data), missing.min(data.len()));
                expected.extend(data);
            }
            let message = received.pop().unwrap();
            assert_eq!(message.len(), 8000);
            let rest = std::iter::from_fn(|| received.pop()).flatten();
            assert!(message.into_iter().chain(rest).eq(expected));
        }
    }
}
