//! Messages that somebody publishes and will hear again as a subscriber.

use std::collections::{HashMap, hash_map::Entry};

use bytes::Bytes;
use frisbee_pubsub::{Message, Subject};

/// Counts messages by what they are. Two that are the same are the same to every subscriber, so it does not matter which of them
/// is taken for the one that comes back.
#[derive(Debug, Default)]
pub(super) struct Echoes(HashMap<(Subject, Bytes), usize>);

impl Echoes {
    /// Notes that a message will come back as often.
    pub(super) fn expect(&mut self, message: &Message, count: usize) {
        if count == 0 {
            return;
        }
        if self.0.len() >= ECHOES_MAX {
            tracing::warn!("{ECHOES_MAX} messages have not come back from the broker, and are forgotten");
            self.clear();
        }
        *self.0.entry(key(message)).or_default() += count;
    }

    /// Takes a message that has come, and returns whether it was one to come back.
    pub(super) fn take(&mut self, message: &Message) -> bool {
        !self.0.is_empty() && self.remove(message, 1)
    }

    /// Notes that a message will not come back after all.
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

/// The reply subject of a request is made anew for the broker, so it does not count.
fn key(message: &Message) -> (Subject, Bytes) {
    (message.subject.clone(), message.payload.clone())
}

/// More than can wait at a broker and on the way from it.
const ECHOES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_often_as_it_is_expected() {
        let message = |payload: &'static str| Message::new(Subject::new("chat").expect("it is good"), payload);
        let mut echoes = Echoes::default();
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
