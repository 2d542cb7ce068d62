//! The bytes of all messages that a broker keeps for its subscribers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use frisbee::Content;

/// Counts the bytes that all queues of a broker hold together: each [`Parcel`] once, and every place in a queue.
#[derive(Debug)]
pub(super) struct Gauge {
    len: AtomicUsize,
    len_max: usize,
}

impl Gauge {
    pub(super) fn new(len_max: usize) -> Self {
        Self { len: AtomicUsize::new(0), len_max }
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns how many more bytes there may be.
    pub(super) fn left(&self) -> usize {
        self.len_max.saturating_sub(self.len())
    }

    /// Counts what was `before` bytes, and is `now`.
    pub(super) fn change(&self, before: usize, now: usize) {
        // Wraps around where it gets less, which is what is meant.
        self.len.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// A message that waits in queues. It is a copy, which keeps no buffer alive that others were read into, and the queues of all
/// subscribers to a pattern share it.
#[derive(Debug)]
pub(super) struct Parcel {
    content: Content,
    gauge: Arc<Gauge>,
}

impl Parcel {
    /// Copies the content of a message.
    pub(super) fn new(content: &Content, gauge: &Arc<Gauge>) -> Self {
        let content: Content = content.pieces().concat().into();
        gauge.change(0, content.len());
        Self { content, gauge: gauge.clone() }
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.gauge.change(self.content.len(), 0);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_message_that_waits_keeps_no_read_buffer_alive() {
        let gauge = Arc::new(Gauge::new(100_000));
        for len in [10, 4_096, 60_000] {
            let read = Bytes::from(vec![7; 64 * 1024]);
            let parcel = Parcel::new(&vec![read.slice(..5), read.slice(5..len)].into(), &gauge);
            assert!(read.is_unique(), "{len} bytes of it are a copy");
            assert_eq!((parcel.content().len(), gauge.len(), gauge.left()), (len, len, 100_000 - len));
        }
        assert_eq!(gauge.len(), 0);
    }
}
