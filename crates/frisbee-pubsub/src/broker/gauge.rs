//! Total size of the messages queued for a broker's subscribers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use frisbee::Content;

/// A counter of the bytes in all queues of a broker. Each [`QueuedMessage`] counts once; each queue entry counts in addition.
#[derive(Debug)]
pub(super) struct QueueGauge {
    len: AtomicUsize,
    len_max: usize,
}

impl QueueGauge {
    pub(super) fn new(len_max: usize) -> Self {
        Self { len: AtomicUsize::new(0), len_max }
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes left below the limit.
    pub(super) fn left(&self) -> usize {
        self.len_max.saturating_sub(self.len())
    }

    /// Changes the count of an item from `before` to `now` bytes.
    pub(super) fn change(&self, before: usize, now: usize) {
        // Wraps around if `now` is smaller. The wrapping addition then subtracts the difference.
        self.len.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// A queued message, shared by the queues of all its subscribers. It owns a copy of the bytes, so it keeps no read
/// buffer alive.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    content: Content,
    gauge: Arc<QueueGauge>,
}

impl QueuedMessage {
    /// Copies the content of a message.
    pub(super) fn new(content: &Content, gauge: &Arc<QueueGauge>) -> Self {
        let content: Content = content.pieces().concat().into();
        gauge.change(0, content.len());
        Self { content, gauge: gauge.clone() }
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }
}

impl Drop for QueuedMessage {
    fn drop(&mut self) {
        self.gauge.change(self.content.len(), 0);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn queued_messages_do_not_retain_read_buffers() {
        let gauge = Arc::new(QueueGauge::new(100_000));
        for len in [10, 4_096, 60_000] {
            let read = Bytes::from(vec![7; 64 * 1024]);
            let parcel = QueuedMessage::new(&vec![read.slice(..5), read.slice(5..len)].into(), &gauge);
            assert!(read.is_unique(), "{len} bytes of it are a copy");
            assert_eq!((parcel.content().len(), gauge.len(), gauge.left()), (len, len, 100_000 - len));
        }
        assert_eq!(gauge.len(), 0);
    }
}
