//! A subscription's queue, bounded in bytes, and its policy when full.

use std::{
    collections::{HashMap, VecDeque},
    task::{Context, Poll, Waker},
};

use frisbee_pubsub::{Message, Policy, Subject, SubscriptionEnd, SubscriptionEvent};

/// A queue of events between NATS and a subscriber. Performs no I/O and never waits.
#[derive(Debug)]
pub(crate) struct EventQueue {
    events: VecDeque<SubscriptionEvent>,
    /// Position of the first event. Later events have consecutive positions.
    first: u64,
    /// Positions of the queued messages by subject. Filled only for [`Policy::KeepLatest`].
    places: HashMap<Subject, u64>,
    /// Cost of the messages in `events`.
    len: usize,
    /// Number of messages in `events`.
    messages: usize,
    window: usize,
    policy: Policy,
    end: Option<SubscriptionEnd>,
    waker: Option<Waker>,
}

impl EventQueue {
    pub(crate) fn new(policy: Policy, window: u32) -> Self {
        Self {
            events: VecDeque::new(),
            first: 0,
            places: HashMap::new(),
            len: 0,
            messages: 0,
            window: window as usize,
            policy,
            end: None,
            waker: None,
        }
    }

    /// Queues a message, or drops messages as the policy demands. An empty queue accepts a message of any length.
    pub(crate) fn push(&mut self, message: Message) {
        if self.end.is_some() {
            return;
        }
        let len = cost(&message);
        let mut is_full = self.len + len > self.window && self.messages > 0;
        match self.policy {
            // Drop the queued message of the same subject first, even if others are older.
            Policy::KeepLatest if is_full => {
                self.remove(&message.subject);
                is_full = self.len + len > self.window && self.messages > 0;
                if is_full {
                    self.drop_oldest(len);
                }
            }
            Policy::DropOldest if is_full => self.drop_oldest(len),
            // NATS has no way to block publishers, so `Block` ends the subscription too.
            Policy::Disconnect | Policy::Block if is_full => {
                return self.finish(SubscriptionEnd::TooSlow { missing: 1 });
            }
            // `DropNewest`, and any policy added later.
            _ if is_full => return self.miss(1),
            _ => {}
        }
        if self.policy == Policy::KeepLatest {
            let place = self.first + self.events.len() as u64;
            self.places.insert(message.subject.clone(), place);
        }
        self.len += len;
        self.messages += 1;
        self.append(SubscriptionEvent::Message(message));
    }

    /// Appends an event for missing messages.
    pub(crate) fn miss(&mut self, count: u64) {
        if self.end.is_some() {
            return;
        }
        if let Some(SubscriptionEvent::Missing(before)) = self.events.back_mut() {
            *before += count;
        } else {
            self.append(SubscriptionEvent::Missing(count));
        }
    }

    /// Appends an event for a reconnection, unless the last event already is one.
    pub(crate) fn reconnected(&mut self) {
        if self.end.is_none() && !matches!(self.events.back(), Some(SubscriptionEvent::Reconnected)) {
            self.append(SubscriptionEvent::Reconnected);
        }
    }

    /// Ends the queue after its events. The first reason takes precedence.
    pub(crate) fn finish(&mut self, end: SubscriptionEnd) {
        self.end.get_or_insert(end);
        self.wake();
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<SubscriptionEvent, SubscriptionEnd>> {
        if let Some(event) = self.pop() {
            return Poll::Ready(Ok(event));
        }
        match &self.end {
            Some(end) => Poll::Ready(Err(end.clone())),
            None => {
                self.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn append(&mut self, event: SubscriptionEvent) {
        self.events.push_back(event);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Removes the first event. Merges consecutive losses into one.
    fn pop(&mut self) -> Option<SubscriptionEvent> {
        let mut event = self.events.pop_front()?;
        self.first += 1;
        match &mut event {
            SubscriptionEvent::Message(message) => self.forget(message, self.first - 1),
            SubscriptionEvent::Missing(count) => {
                while let Some(SubscriptionEvent::Missing(more)) = self.events.front() {
                    *count += more;
                    self.events.pop_front();
                    self.first += 1;
                }
            }
            _ => {}
        }
        Some(event)
    }

    /// Updates the counters for a message no longer in `events`.
    fn forget(&mut self, message: &Message, place: u64) {
        self.len -= cost(message);
        self.messages -= 1;
        if self.places.get(&message.subject) == Some(&place) {
            self.places.remove(&message.subject);
        }
    }

    /// Drops the queued message of this subject, if there is one.
    fn remove(&mut self, subject: &Subject) {
        let Some(place) = self.places.get(subject).copied() else { return };
        let index = usize::try_from(place - self.first).expect("the queue fits in memory");
        if let SubscriptionEvent::Message(message) =
            std::mem::replace(&mut self.events[index], SubscriptionEvent::Missing(1))
        {
            self.forget(&message, place);
        }
        // Limit the events for losses. They would accumulate without a reader otherwise.
        if self.events.len() > 2 * self.messages + NOTES_MAX {
            self.compact();
        }
    }

    /// Drops messages from the front until `len` more bytes fit or no message is left.
    fn drop_oldest(&mut self, len: usize) {
        let (mut missing, mut reconnected) = (0, false);
        while self.len + len > self.window && self.messages > 0 {
            match self.pop() {
                Some(SubscriptionEvent::Message(_)) => missing += 1,
                Some(SubscriptionEvent::Missing(count)) => missing += count,
                _ => reconnected = true,
            }
        }
        let notes = [
            (missing > 0).then_some(SubscriptionEvent::Missing(missing)),
            reconnected.then_some(SubscriptionEvent::Reconnected),
        ];
        for note in notes.into_iter().flatten().rev() {
            self.events.push_front(note);
            // At most two events go back, and they replace at least as many removed ones.
            self.first -= 1;
        }
    }

    /// Merges consecutive losses into one event each.
    fn compact(&mut self) {
        let mut events: VecDeque<SubscriptionEvent> = VecDeque::with_capacity(2 * self.messages + NOTES_MAX);
        self.places.clear();
        for event in self.events.drain(..) {
            match (event, events.back_mut()) {
                (SubscriptionEvent::Missing(count), Some(SubscriptionEvent::Missing(before))) => *before += count,
                (event, _) => {
                    if let SubscriptionEvent::Message(message) = &event {
                        self.places.insert(message.subject.clone(), self.first + events.len() as u64);
                    }
                    events.push_back(event);
                }
            }
        }
        self.events = events;
    }
}

/// Returns the cost of a message against the window, similar to a broker on frisbee.
fn cost(message: &Message) -> usize {
    message.payload.len() + message.subject.len() + OVERHEAD
}

const OVERHEAD: usize = 64;
/// Maximum number of losses and reconnections, in addition to one per message.
const NOTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A queue with room for three messages. `all` formats its events as text.
    struct Check(EventQueue);

    impl Check {
        fn new(policy: Policy) -> Self {
            Self(EventQueue::new(policy, 3 * 66))
        }

        /// Pushes messages, each given as one character of subject and one of payload.
        fn push(mut self, messages: &str) -> Self {
            for text in messages.split_whitespace() {
                let (subject, payload) = text.split_at(1);
                self.0.push(Message::new(Subject::new(subject).expect("it is good"), payload.to_owned()));
            }
            self
        }

        fn all(mut self) -> String {
            let mut cx = Context::from_waker(Waker::noop());
            let mut text = Vec::new();
            while let Poll::Ready(event) = self.0.poll(&mut cx) {
                match event {
                    Ok(SubscriptionEvent::Message(message)) => {
                        text.push(format!("{}{}", message.subject, String::from_utf8_lossy(&message.payload)));
                    }
                    Ok(SubscriptionEvent::Missing(count)) => text.push(format!("-{count}")),
                    Ok(_) => text.push("again".into()),
                    Err(end) => {
                        text.push(format!("{end:?}"));
                        break;
                    }
                }
            }
            assert_eq!((self.0.len, self.0.messages, self.0.places.len()), (0, 0, 0), "nothing is left on the books");
            text.join(" ")
        }
    }

    #[test]
    fn messages_within_the_limit_are_delivered_in_order() {
        for policy in [Policy::DropNewest, Policy::DropOldest, Policy::KeepLatest, Policy::Block, Policy::Disconnect] {
            assert_eq!(Check::new(policy).push("a1 b2 a3").all(), "a1 b2 a3");
        }
    }

    #[test]
    fn each_policy_reports_dropped_messages_in_order() {
        let after = |policy| Check::new(policy).push("a1 b2 a3 a4 c5").all();
        assert_eq!(after(Policy::DropNewest), "a1 b2 a3 -2");
        assert_eq!(after(Policy::DropOldest), "-2 a3 a4 c5");
        // a4 replaces a3. c5 then has no room until a1 is dropped.
        assert_eq!(after(Policy::KeepLatest), "-1 b2 -1 a4 c5");
        assert_eq!(after(Policy::Disconnect), "a1 b2 a3 TooSlow { missing: 1 }");
        assert_eq!(after(Policy::Block), "a1 b2 a3 TooSlow { missing: 1 }");
    }

    #[test]
    fn replaced_values_do_not_grow_the_queue() {
        let mut check = Check::new(Policy::KeepLatest).push("a0 b0");
        for _ in 0..1000 {
            check = check.push("c1 c2 c3 a1");
            assert!(check.0.events.len() <= 2 * 3 + NOTES_MAX + 1);
        }
        let text = check.all();
        assert!(text.ends_with("a1"), "{text}");
        let missing: u64 = text
            .split(' ')
            .filter_map(|part| part.strip_prefix('-'))
            .map(|n| n.parse::<u64>().expect("it is a number"))
            .sum();
        let delivered = text.split(' ').filter(|part| !part.starts_with('-')).count() as u64;
        assert_eq!(missing + delivered, 4002, "{text}");
    }

    #[test]
    fn a_message_larger_than_the_window_fits_alone() {
        let mut check = Check::new(Policy::DropOldest).push("a1");
        check.0.push(Message::new(Subject::new("b").expect("it is good"), vec![b'x'; 1000]));
        let text = check.all();
        assert!(text.starts_with("-1 bxx"), "{text}");
    }

    #[test]
    fn consecutive_losses_are_merged_and_reconnects_keep_order() {
        let mut check = Check::new(Policy::DropNewest).push("a1 a2 a3 a4");
        check.0.miss(5);
        check.0.reconnected();
        check.0.reconnected();
        check.0.miss(1);
        assert_eq!(check.push("a5").all(), "a1 a2 a3 -6 again -2");
        let mut check = Check::new(Policy::DropOldest).push("a1");
        check.0.reconnected();
        assert_eq!(check.push("a2 a3 a4 a5").all(), "-2 again a3 a4 a5");
    }

    #[test]
    fn no_events_follow_the_end() {
        let mut check = Check::new(Policy::DropNewest).push("a1");
        check.0.finish(SubscriptionEnd::Lost);
        check.0.finish(SubscriptionEnd::Closed);
        check.0.reconnected();
        check.0.miss(1);
        assert_eq!(check.push("a2").all(), "a1 Lost");
    }
}
