//! Messages published to the broker and expected back through a subscription.

use std::collections::{HashMap, hash_map::Entry};

use bytes::Bytes;
use frisbee_pubsub::{Message, Subject};

/// A multiset of expected messages, compared by subject and payload. Subscribers cannot tell equal messages apart, so
/// either may be taken for the returning one.
#[derive(Debug, Default)]
pub(super) struct ExpectedEchoes(HashMap<(Subject, Bytes), usize>);

impl ExpectedEchoes {
    /// Records that a message will return `count` times.
    pub(super) fn expect(&mut self, message: &Message, count: usize) {
        if count == 0 {
            return;
        }
        if self.0.len() >= ECHOES_MAX {
            tracing::warn!("forgot {ECHOES_MAX} messages expected back from the broker");
            self.clear();
        }
        *self.0.entry(key(message)).or_default() += count;
    }

    /// Removes a returned message. Returns `false` if it was not expected.
    pub(super) fn take(&mut self, message: &Message) -> bool {
        !self.0.is_empty() && self.remove(message, 1)
    }

    /// Records that a message will not return.
    pub(super) fn forget(&mut self, message: &Message, count: usize) {
        self.remove(message, count);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn remove(&mut self, message: &Message, count: usize) -> bool {
        let Entry::Occupied(mut entry) = self.0.entry(key(message)) else { return false };
        if *entry.get() > count {
            *entry.get_mut() -= count;
        } else {
            entry.remove();
        }
        true
    }
}

/// Reply subjects are not compared: the broker replaces them in requests.
fn key(message: &Message) -> (Subject, Bytes) {
    (message.subject.clone(), message.payload.clone())
}

/// Maximum number of expected messages: more than fit in flight to the broker and in the queues on the way back.
const ECHOES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_echoes_are_dropped_once_per_expectation() {
        let message = |payload: &'static str| Message::new(Subject::new("chat").expect("it is good"), payload);
        let mut echoes = ExpectedEchoes::default();
        assert!(!echoes.take(&message("a")));
        echoes.expect(&message("a"), 2);
        echoes.expect(&message("b"), 0);
        assert!(!echoes.take(&message("b")));
        assert_eq!([(); 3].map(|()| echoes.take(&message("a"))), [true, true, false]);
        echoes.expect(&message("a"), 1);
        echoes.expect(&message("a"), 1);
        echoes.forget(&message("a"), 1);
        assert_eq!([(); 2].map(|()| echoes.take(&message("a"))), [true, false]);
        echoes.expect(&message("a"), 1);
        echoes.clear();
        assert!(!echoes.take(&message("a")));
    }
}
