//! The subscribed patterns with their subscribers.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    Pattern,
    broker::subscriber::{ReadyMembers, Subscriber},
    lock::lock,
    sync::Mutex,
    trie::{PatternShapes, PatternTrie},
};

/// All subscribed patterns. A change in the set of lanes or groups invalidates the cached routes of publishers.
#[derive(Debug, Default)]
pub(super) struct PatternRegistry {
    trie: PatternTrie<RouteTarget>,
    numbers: HashSet<u32>,
    last_number: u32,
}

/// Recipients of a pattern's messages: a lane, where all subscribers get each message, or a group, where one member
/// gets it.
#[derive(Clone, Debug)]
pub(super) enum RouteTarget {
    Lane(Arc<Lane>),
    Group(Arc<QueueGroup>),
}

/// Subscribers with the same subscription number. They receive the same encoded frames. A lane has at most one
/// subscriber per connection.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) number: u32,
    slot: u8,
    pub(super) subscribers: SubscriberList,
}

/// The members of a queue group.
#[derive(Debug)]
pub(super) struct QueueGroup {
    name: Box<str>,
    members: SubscriberList,
    turn: AtomicUsize,
    /// Members believed to have room for a message, in the order of their turns. No member is in the list twice.
    ready: Mutex<VecDeque<Arc<Subscriber>>>,
}

/// A list of subscribers. Publishers iterate over a snapshot of it without holding the lock.
#[derive(Debug, Default)]
pub(super) struct SubscriberList {
    list: Mutex<Arc<Vec<Arc<Subscriber>>>>,
    count: AtomicUsize,
}

impl PatternRegistry {
    /// Returns the number of lanes plus members of groups.
    pub(super) fn patterns(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the shapes of all patterns.
    pub(super) fn shapes(&self) -> &PatternShapes {
        self.trie.shapes()
    }

    /// Adds a subscriber created by `make` with its number. Returns it, and `true` if cached routes became invalid.
    pub(super) fn add(
        &mut self,
        pattern: &Pattern,
        group: &str,
        slot: u8,
        make: impl FnOnce(u32) -> Arc<Subscriber>,
    ) -> (Arc<Subscriber>, bool) {
        let is_lane = |target: &RouteTarget| matches!(target, RouteTarget::Lane(lane) if lane.slot == slot);
        let is_group = |target: &RouteTarget| matches!(target, RouteTarget::Group(there) if *there.name == *group);
        let found = self.trie.find(pattern, |target| if group.is_empty() { is_lane(target) } else { is_group(target) });
        let found = found.cloned();
        match (found, group) {
            (Some(RouteTarget::Lane(lane)), _) => {
                let subscriber = make(lane.number);
                lane.subscribers.add(subscriber.clone());
                (subscriber, false)
            }
            (Some(RouteTarget::Group(group)), _) => {
                let subscriber = make(self.take_number());
                group.add(&subscriber);
                (subscriber, false)
            }
            (None, "") => {
                let number = self.take_number();
                let subscriber = make(number);
                let lane = Lane { number, slot, subscribers: SubscriberList::default() };
                lane.subscribers.add(subscriber.clone());
                self.trie.insert(pattern, RouteTarget::Lane(Arc::new(lane)));
                (subscriber, true)
            }
            (None, name) => {
                let subscriber = make(self.take_number());
                let group = Arc::new(QueueGroup {
                    name: name.into(),
                    members: SubscriberList::default(),
                    turn: AtomicUsize::new(0),
                    ready: Mutex::default(),
                });
                group.add(&subscriber);
                self.trie.insert(pattern, RouteTarget::Group(group));
                (subscriber, true)
            }
        }
    }

    /// Removes a subscriber. Returns `true` if cached routes became invalid.
    pub(super) fn remove(&mut self, subscriber: &Arc<Subscriber>) -> bool {
        let Self { trie, numbers, .. } = self;
        let removed = trie.remove(&subscriber.pattern, |target| match target {
            RouteTarget::Lane(lane) if subscriber.group.is_empty() && lane.slot == subscriber.slot => {
                let is_empty = lane.subscribers.remove(subscriber);
                if is_empty {
                    numbers.remove(&lane.number);
                }
                is_empty
            }
            RouteTarget::Group(group) if *group.name == *subscriber.group => {
                numbers.remove(&subscriber.number);
                lock(&group.ready).retain(|ready| !Arc::ptr_eq(ready, subscriber));
                group.members.remove(subscriber)
            }
            _ => false,
        });
        removed > 0
    }

    /// Returns the group of a current or former member, if the group still has members.
    pub(super) fn group_of(&self, subscriber: &Subscriber) -> Option<Arc<QueueGroup>> {
        let is_it =
            |target: &RouteTarget| matches!(target, RouteTarget::Group(group) if *group.name == *subscriber.group);
        match self.trie.find(&subscriber.pattern, is_it) {
            Some(RouteTarget::Group(group)) => Some(group.clone()),
            _ => None,
        }
    }

    /// Calls `found` with all lanes and groups of the patterns matching a subject.
    pub(super) fn matching<'a>(&'a self, subject: &str, found: &mut impl FnMut(&'a RouteTarget)) {
        self.trie.matching(subject, found);
    }

    fn take_number(&mut self) -> u32 {
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            if self.last_number != 0 && self.numbers.insert(self.last_number) {
                return self.last_number;
            }
        }
    }
}

impl QueueGroup {
    fn add(self: &Arc<Self>, member: &Arc<Subscriber>) {
        let members: Weak<dyn ReadyMembers> = Arc::downgrade(self) as _;
        member.join(members);
        self.members.add(member.clone());
        self.add_ready(member.clone());
    }

    /// Returns the next member in turn, ready or not. Returns `None` if the group is empty.
    pub(super) fn in_turn(&self) -> Option<Arc<Subscriber>> {
        let members = self.members.snapshot();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        members.get(turn % members.len().max(1)).cloned()
    }

    /// Returns the next ready member and moves it to the end of the list.
    pub(super) fn ready_in_turn(&self) -> Option<Arc<Subscriber>> {
        let mut ready = lock(&self.ready);
        let member = ready.pop_front()?;
        ready.push_back(member.clone());
        Some(member)
    }

    #[cfg(all(loom, test))]
    pub(super) fn ready(&self) -> usize {
        lock(&self.ready).len()
    }

    /// Removes a member without room from the ready list. The member adds itself again later.
    pub(super) fn remove_ready(&self, member: &Arc<Subscriber>) {
        let mut ready = lock(&self.ready);
        // The member had its turn just now, so it is near the end of the list.
        if let Some(index) = ready.iter().rposition(|ready| Arc::ptr_eq(ready, member)) {
            ready.remove(index);
        }
    }
}

impl ReadyMembers for QueueGroup {
    fn add_ready(&self, member: Arc<Subscriber>) {
        lock(&self.ready).push_back(member);
    }
}

impl SubscriberList {
    pub(super) fn snapshot(&self) -> Arc<Vec<Arc<Subscriber>>> {
        lock(&self.list).clone()
    }

    /// Returns the number of subscribers without locking.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn add(&self, subscriber: Arc<Subscriber>) {
        let mut list = lock(&self.list);
        // Copies the list only while a publisher holds a snapshot of it.
        Arc::make_mut(&mut list).push(subscriber);
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Removes a subscriber. Returns `true` if none is left.
    fn remove(&self, subscriber: &Arc<Subscriber>) -> bool {
        let mut list = lock(&self.list);
        if let Some(index) = list.iter().position(|there| Arc::ptr_eq(there, subscriber)) {
            Arc::make_mut(&mut list).swap_remove(index);
        }
        self.count.store(list.len(), Ordering::Relaxed);
        list.is_empty()
    }
}
