//! Received data that its application has not read.

use std::{collections::VecDeque, mem};

use bytes::Bytes;

/// Unread data in pieces. A piece never moves to grow, unless it consists of small frames.
#[derive(Debug, Default)]
pub(crate) struct ReceivedData {
    /// The oldest piece, and later ones. Most messages have one piece.
    first: Vec<u8>,
    later: VecDeque<Vec<u8>>,
    /// `true` if the last piece consists of small frames.
    is_shared: bool,
}

impl ReceivedData {
    pub(crate) fn push(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let is_small = data.len() < SHARED_LEN;
        // Small frames share a piece: a piece for each would take far more memory than its data.
        if is_small && self.is_shared {
            let last = self.later.back_mut().unwrap_or(&mut self.first);
            if !last.is_empty() {
                return last.extend_from_slice(data);
            }
        }
        self.is_shared = is_small;
        self.push_piece(data.to_vec());
    }

    /// Adds a piece without a copy.
    pub(crate) fn push_piece(&mut self, piece: Vec<u8>) {
        if self.is_empty() {
            self.first = piece;
        } else {
            self.later.push_back(piece);
        }
    }

    /// Returns the oldest piece.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        if self.first.is_empty() {
            return self.later.pop_front().map(Bytes::from);
        }
        Some(mem::take(&mut self.first).into())
    }

    /// Returns all unread data if it is one piece.
    pub(crate) fn as_piece(&self) -> Option<&[u8]> {
        self.later.is_empty().then_some(&self.first)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.later.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.later.iter().map(Vec::len).sum::<usize>()
    }
}

/// Frames below this length share a piece.
const SHARED_LEN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_the_order_of_frames() {
        for lens in [&[3, 5000, 4, 5, 4096, 6000, 7][..], &[5000, 1, 1, 5000], &[1, 2, 3]] {
            let (mut received, mut expected, mut read) = (ReceivedData::default(), Vec::new(), Vec::new());
            for (i, len) in lens.iter().enumerate() {
                let data = vec![u8::try_from(i).unwrap(); *len];
                received.push(&data);
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
    fn only_small_frames_share_a_piece() {
        let mut received = ReceivedData::default();
        for len in [1, SHARED_LEN - 1, SHARED_LEN, 1, 1, SHARED_LEN] {
            received.push(&vec![0; len]);
        }
        let lens: Vec<_> = std::iter::from_fn(|| received.pop()).map(|piece| piece.len()).collect();
        assert_eq!(lens, [SHARED_LEN, SHARED_LEN, 2, SHARED_LEN]);
        received.push(&[1]);
        assert_eq!(received.pop().as_deref(), Some(&[1][..]));
        received.push(&[2]);
        assert_eq!(received.pop().as_deref(), Some(&[2][..]), "a piece that was read does not grow");
    }
}
