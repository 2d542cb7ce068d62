//! A subscription's queue, and the effects of its policy when the queue is full.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use frisbee::Content;

use crate::{
    Policy,
    broker::{gauge::QueuedMessage, hold::MessageHold},
    wire::{MESSAGE_COST, PublishPacket},
};

/// A queue of messages in delivery order, each with the number of messages dropped directly before it.
#[derive(Debug, Default)]
pub(super) struct MessageQueue {
    items: VecDeque<QueueItem>,
    len: usize,
    /// Messages dropped after the last queued one.
    missing: u64,
    /// Number of items removed from the front since the queue was created.
    taken: u64,
    /// Position of each subject's message, counted like `taken`. Filled only for [`Policy::KeepLatest`].
    latest: HashMap<Bytes, u64>,
}

#[derive(Debug)]
struct QueueItem {
    missing: u64,
    parcel: Arc<QueuedMessage>,
    hold: Option<Arc<MessageHold>>,
}

/// Outcome of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushOutcome {
    Waits,
    /// This number of messages was dropped. The new message may be among them.
    Dropped(u64),
    /// The policy ends the subscription.
    TooSlow,
}

/// The next item to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextDelivery<'a> {
    Missing(u64),
    Message(&'a Content),
}

impl MessageQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.missing == 0
    }

    /// Returns the queued bytes plus the fixed cost of each message.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of queued messages.
    pub(super) fn count(&self) -> usize {
        self.items.len()
    }

    /// Returns the number of items removed so far. It grows while the subscriber makes progress.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Queues the content of a MESSAGE, or drops messages as the policy demands.
    ///
    /// `room` is the limit for the whole queue. `parcel` creates the shared copy; it is called only if the message is
    /// queued. A message with a `hold` is queued regardless of the room, because its publisher waits for it.
    pub(super) fn push(
        &mut self,
        policy: Policy,
        content: &Content,
        parcel: impl FnOnce() -> Arc<QueuedMessage>,
        hold: Option<Arc<MessageHold>>,
        room: usize,
    ) -> PushOutcome {
        let cost = cost(content);
        let mut dropped = 0;
        if policy == Policy::KeepLatest
            && cost <= room
            && let Some(place) = self.latest.get(subject(content)).copied()
        {
            let index = usize::try_from(place - self.taken).expect("the position is in the queue");
            let former = self::cost(self.items[index].parcel.content());
            while self.len - former + cost > room && self.taken < place && self.drop_first() {
                dropped += 1;
            }
            // Everything before the former message is dropped. If the new one still does not fit, drop the former too
            // and append it.
            if self.len - former + cost > room {
                dropped += u64::from(self.drop_first());
            } else {
                let index = usize::try_from(place - self.taken).expect("the position is in the queue");
                let item = &mut self.items[index];
                self.len = self.len - former + cost;
                item.missing += 1;
                item.parcel = parcel();
                return PushOutcome::Dropped(dropped + 1);
            }
        }
        // A message with a hold is always queued. Its publisher has to stop instead.
        if self.len + cost > room && hold.is_none() {
            match policy {
                // The message exceeds the room of an empty queue. Drop it and keep the others.
                Policy::DropOldest | Policy::KeepLatest if cost > room => {}
                Policy::DropOldest | Policy::KeepLatest => {
                    while self.len + cost > room && self.drop_first() {
                        dropped += 1;
                    }
                }
                Policy::DropNewest => {}
                // Without a hold there is no publisher to block.
                Policy::Block | Policy::Disconnect => return PushOutcome::TooSlow,
            }
            if self.len + cost > room {
                self.missing += 1;
                return PushOutcome::Dropped(dropped + 1);
            }
        }
        if policy == Policy::KeepLatest {
            // A slice of the content would keep the publisher's read buffer alive.
            let subject = Bytes::copy_from_slice(subject(content));
            self.latest.insert(subject, self.taken + self.items.len() as u64);
        }
        let missing = std::mem::take(&mut self.missing);
        self.items.push_back(QueueItem { missing, parcel: parcel(), hold });
        self.len += cost;
        if dropped == 0 { PushOutcome::Waits } else { PushOutcome::Dropped(dropped) }
    }

    /// Returns all items to send, in order.
    pub(super) fn upcoming(&self) -> impl Iterator<Item = NextDelivery<'_>> {
        let missing = |count: u64| (count > 0).then_some(NextDelivery::Missing(count));
        let told = self.items.iter().flat_map(move |item| {
            missing(item.missing).into_iter().chain([NextDelivery::Message(item.parcel.content())])
        });
        told.chain(missing(self.missing))
    }

    /// Records that the next count of missing messages was sent to the client.
    pub(super) fn told_missing(&mut self) {
        match self.items.front_mut() {
            Some(item) => item.missing = 0,
            None => self.missing = 0,
        }
    }

    /// Removes the first message after its delivery.
    pub(super) fn pop(&mut self) {
        if let Some(item) = self.items.pop_front() {
            debug_assert_eq!(item.missing, 0, "missing messages are reported before the message");
            self.forget(&item);
        }
    }

    /// Drops the first message and counts it as missing. Returns `false` if the queue was empty.
    pub(super) fn drop_first(&mut self) -> bool {
        let Some(item) = self.items.pop_front() else { return false };
        self.forget(&item);
        match self.items.front_mut() {
            Some(next) => next.missing += item.missing + 1,
            None => self.missing += item.missing + 1,
        }
        true
    }

    /// Removes all queued messages and returns them with their holds. Counts of missing messages stay queued.
    pub(super) fn take_all(&mut self) -> Vec<(Arc<QueuedMessage>, Option<Arc<MessageHold>>)> {
        let mut all = Vec::with_capacity(self.items.len());
        while let Some(item) = self.items.pop_front() {
            self.forget(&item);
            self.missing += item.missing;
            all.push((item.parcel, item.hold));
        }
        all
    }

    /// Drops everything. Returns the number of missing messages not reported before.
    pub(super) fn clear(&mut self) -> u64 {
        while self.drop_first() {}
        std::mem::take(&mut self.missing)
    }

    fn forget(&mut self, item: &QueueItem) {
        self.taken += 1;
        self.len -= cost(item.parcel.content());
        // Other policies leave the map empty and need not parse the subject.
        if !self.latest.is_empty() {
            self.latest.remove(subject(item.parcel.content()));
        }
        if self.items.is_empty() && self.items.capacity() > SPARE_MAX {
            // Give the memory of a past burst back.
            (self.items, self.latest) = (VecDeque::new(), HashMap::new());
        }
    }
}

pub(super) fn cost(content: &Content) -> usize {
    content.len() + MESSAGE_COST
}

/// Returns the subject of a MESSAGE created by this broker. The first piece of such a content always contains it.
fn subject(content: &Content) -> &[u8] {
    let published = content.pieces()[0].get(4..).and_then(|published| PublishPacket::read(published).ok());
    published.map_or(&[], |published| published.subject)
}

/// Maximum capacity kept by an empty queue, in items.
const SPARE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{broker::gauge::QueueGauge, wire::write_publish};

    fn push(queue: &mut MessageQueue, policy: Policy, content: &Content) -> PushOutcome {
        let gauge = Arc::new(QueueGauge::new(usize::MAX));
        queue.push(policy, content, || Arc::new(QueuedMessage::new(content, &gauge)), None, ROOM)
    }

    fn message(subject: &str, payload: &str) -> Content {
        let mut content = 1_u32.to_be_bytes().to_vec();
        write_publish(0, subject, None, &mut content);
        content.extend_from_slice(payload.as_bytes());
        content.into()
    }

    /// Takes everything out of the queue and describes it in words.
    fn drained(queue: &mut MessageQueue) -> String {
        let mut words = Vec::new();
        for next in queue.upcoming() {
            words.push(match next {
                NextDelivery::Missing(count) => format!("missing {count}"),
                NextDelivery::Message(content) => {
                    let published = PublishPacket::read(&content[4..]).expect("it is one");
                    String::from_utf8_lossy(published.payload).into_owned()
                }
            });
        }
        for word in &words {
            if word.starts_with("missing") { queue.told_missing() } else { queue.pop() }
        }
        assert_eq!((queue.len(), queue.latest.len()), (0, 0));
        words.join(" ")
    }

    /// Room for three messages with one byte of subject and one byte of payload each.
    const ROOM: usize = 3 * (4 + 1 + 2 + 1 + MESSAGE_COST);

    fn pushed(policy: Policy, messages: &[(&str, &str)]) -> (MessageQueue, Vec<PushOutcome>) {
        let mut queue = MessageQueue::default();
        let pushed =
            messages.iter().map(|(subject, payload)| push(&mut queue, policy, &message(subject, payload))).collect();
        (queue, pushed)
    }

    #[test]
    fn messages_within_the_limit_are_queued_in_order() {
        for policy in [Policy::DropNewest, Policy::DropOldest, Policy::Disconnect, Policy::Block] {
            let (mut queue, pushed) = pushed(policy, &[("a", "1"), ("a", "2"), ("b", "3")]);
            assert_eq!(pushed, [PushOutcome::Waits; 3]);
            assert_eq!((queue.len(), drained(&mut queue)), (ROOM, "1 2 3".into()));
        }
    }

    #[test]
    fn drop_newest_reports_losses_in_order() {
        let (mut queue, pushed) =
            pushed(Policy::DropNewest, &[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("a", "5")]);
        assert_eq!(pushed[3..], [PushOutcome::Dropped(1); 2]);
        queue.pop();
        push(&mut queue, Policy::DropNewest, &message("a", "6"));
        push(&mut queue, Policy::DropNewest, &message("a", "7"));
        assert_eq!(drained(&mut queue), "2 3 missing 2 6 missing 1");
    }

    #[test]
    fn drop_oldest_reports_losses_before_remaining_messages() {
        let (mut queue, pushed) =
            pushed(Policy::DropOldest, &[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("a", "5")]);
        assert_eq!(pushed[3..], [PushOutcome::Dropped(1); 2]);
        assert_eq!(drained(&mut queue), "missing 2 3 4 5");
    }

    #[test]
    fn keep_latest_replaces_the_previous_value_of_a_subject() {
        let (mut queue, pushed) =
            pushed(Policy::KeepLatest, &[("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("a", "5"), ("b", "6")]);
        assert_eq!(pushed.iter().filter(|pushed| **pushed == PushOutcome::Dropped(1)).count(), 3);
        assert_eq!(drained(&mut queue), "missing 2 5 missing 1 6 4");
    }

    #[test]
    fn keep_latest_drops_the_oldest_subject_when_full() {
        let (mut queue, _) =
            pushed(Policy::KeepLatest, &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("a", "5"), ("c", "6")]);
        assert_eq!(drained(&mut queue), "missing 3 6 4 5");
    }

    #[test]
    fn keep_latest_bounds_the_queue_when_values_grow() {
        let with_len = |len: usize| "x".repeat(len);
        // ROOM holds 3 messages of 72 bytes.
        for (large, expected) in [(1 + 72, "missing 1 2 missing 1 X"), (1 + 2 * 72, "missing 3 X")] {
            let (mut queue, _) = pushed(Policy::KeepLatest, &[("a", "1"), ("b", "2"), ("c", "3")]);
            let before = queue.taken();
            push(&mut queue, Policy::KeepLatest, &message("c", &with_len(large)));
            assert!(queue.len() <= ROOM, "{} bytes wait after {before} were taken", queue.len());
            assert_eq!(drained(&mut queue).replace(&with_len(large), "X"), expected);
        }
        // The larger value replaces the first message, so that message itself has to be dropped.
        let (mut queue, _) = pushed(Policy::KeepLatest, &[("a", "1"), ("b", "2"), ("c", "3")]);
        push(&mut queue, Policy::KeepLatest, &message("a", &with_len(1 + 2 * 72)));
        assert!(queue.len() <= ROOM, "{} bytes wait", queue.len());
        assert_eq!(drained(&mut queue).replace(&with_len(1 + 2 * 72), "X"), "missing 3 X");
    }

    #[test]
    fn an_empty_queue_frees_its_memory() {
        let (mut queue, gauge) = (MessageQueue::default(), Arc::new(QueueGauge::new(usize::MAX)));
        for number in 0..1000 {
            let message = message(&number.to_string(), "x");
            queue.push(
                Policy::KeepLatest,
                &message,
                || Arc::new(QueuedMessage::new(&message, &gauge)),
                None,
                usize::MAX,
            );
        }
        queue.clear();
        assert!(queue.items.capacity() <= SPARE_MAX && queue.latest.capacity() <= 2 * SPARE_MAX);
    }

    #[test]
    fn oversized_messages_are_missing_and_drop_few_others() {
        for policy in [Policy::DropNewest, Policy::DropOldest, Policy::KeepLatest] {
            let mut queue = MessageQueue::default();
            assert_eq!(push(&mut queue, policy, &message("a", "1")), PushOutcome::Waits);
            assert_eq!(push(&mut queue, policy, &message("a", &"x".repeat(ROOM))), PushOutcome::Dropped(1));
            assert_eq!(drained(&mut queue), "1 missing 1");
        }
    }

    #[test]
    fn disconnect_ends_the_subscription_when_the_queue_is_full() {
        let (mut queue, pushed) = pushed(Policy::Disconnect, &[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")]);
        assert_eq!(pushed[3], PushOutcome::TooSlow);
        assert_eq!((queue.clear(), queue.is_empty(), queue.len()), (3, true, 0));
    }
}
