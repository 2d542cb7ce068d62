//! The patterns that are subscribed to, and the subscribers of each.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    Pattern,
    broker::subscriber::{ReadyMembers, Subscriber},
    trie::{Shapes, Trie},
};

/// All patterns. What changes the set of lanes and groups makes routes out of date that were found before.
#[derive(Debug, Default)]
pub(super) struct Registry {
    trie: Trie<Target>,
    numbers: HashSet<u32>,
    last_number: u32,
}

/// The subscribers to a pattern that get its messages in the same frames, or a group of which one gets each message.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Lane(Arc<Lane>),
    Group(Arc<Group>),
}

/// The subscribers that share a number, and so the frames of each message. A connection has one of them at most.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) number: u32,
    slot: u8,
    pub(super) subscribers: Subscribers,
}

/// The members of a queue group.
#[derive(Debug)]
pub(super) struct Group {
    name: Box<str>,
    members: Subscribers,
    turn: AtomicUsize,
    /// Members that take a message now, as far as they know, in the order of their turns. Each is here once.
    ready: Mutex<VecDeque<Arc<Subscriber>>>,
}

/// Subscribers that get messages alike. Those who send to them have a list that does not change meanwhile.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    list: Mutex<Arc<Vec<Arc<Subscriber>>>>,
    count: AtomicUsize,
}

impl Registry {
    /// Returns the number of lanes and of members of groups.
    pub(super) fn patterns(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the shapes of all patterns.
    pub(super) fn shapes(&self) -> &Shapes {
        self.trie.shapes()
    }

    /// Adds the subscriber that `make` makes with a number. Returns it, and whether routes are out of date.
    pub(super) fn add(
        &mut self,
        pattern: &Pattern,
        group: &str,
        slot: u8,
        make: impl FnOnce(u32) -> Arc<Subscriber>,
    ) -> (Arc<Subscriber>, bool) {
        let is_lane = |target: &Target| matches!(target, Target::Lane(lane) if lane.slot == slot);
        let is_group = |target: &Target| matches!(target, Target::Group(there) if *there.name == *group);
        let found = self.trie.find(pattern, |target| if group.is_empty() { is_lane(target) } else { is_group(target) });
        let found = found.cloned();
        match (found, group) {
            (Some(Target::Lane(lane)), _) => {
                let subscriber = make(lane.number);
                lane.subscribers.add(subscriber.clone());
                (subscriber, false)
            }
            (Some(Target::Group(group)), _) => {
                let subscriber = make(self.take_number());
                group.add(&subscriber);
                (subscriber, false)
            }
            (None, "") => {
                let number = self.take_number();
                let subscriber = make(number);
                let lane = Lane { number, slot, subscribers: Subscribers::default() };
                lane.subscribers.add(subscriber.clone());
                self.trie.insert(pattern, Target::Lane(Arc::new(lane)));
                (subscriber, true)
            }
            (None, name) => {
                let subscriber = make(self.take_number());
                let group = Arc::new(Group {
                    name: name.into(),
                    members: Subscribers::default(),
                    turn: AtomicUsize::new(0),
                    ready: Mutex::default(),
                });
                group.add(&subscriber);
                self.trie.insert(pattern, Target::Group(group));
                (subscriber, true)
            }
        }
    }

    /// Removes a subscriber. Returns whether routes are out of date.
    pub(super) fn remove(&mut self, subscriber: &Arc<Subscriber>) -> bool {
        let Self { trie, numbers, .. } = self;
        let removed = trie.remove(&subscriber.pattern, |target| match target {
            Target::Lane(lane) if subscriber.group.is_empty() && lane.slot == subscriber.slot => {
                let is_empty = lane.subscribers.remove(subscriber);
                if is_empty {
                    numbers.remove(&lane.number);
                }
                is_empty
            }
            Target::Group(group) if *group.name == *subscriber.group => {
                numbers.remove(&subscriber.number);
                group.ready().retain(|ready| !Arc::ptr_eq(ready, subscriber));
                group.members.remove(subscriber)
            }
            _ => false,
        });
        removed > 0
    }

    /// Returns the group that a subscriber is, or was, a member of, as long as it has others.
    pub(super) fn group_of(&self, subscriber: &Subscriber) -> Option<Arc<Group>> {
        let is_it = |target: &Target| matches!(target, Target::Group(group) if *group.name == *subscriber.group);
        match self.trie.find(&subscriber.pattern, is_it) {
            Some(Target::Group(group)) => Some(group.clone()),
            _ => None,
        }
    }

    /// Hands over all lanes and groups that messages under a subject go to.
    pub(super) fn matching<'a>(&'a self, subject: &str, found: &mut impl FnMut(&'a Target)) {
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

impl Group {
    fn add(self: &Arc<Self>, member: &Arc<Subscriber>) {
        let members: Weak<dyn ReadyMembers> = Arc::downgrade(self) as _;
        member.join(members);
        self.members.add(member.clone());
        self.add_ready(member.clone());
    }

    /// Returns the member whose turn it is of all, ready or not, if there is any.
    pub(super) fn in_turn(&self) -> Option<Arc<Subscriber>> {
        let members = self.members.snapshot();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        members.get(turn % members.len().max(1)).cloned()
    }

    /// Returns the member whose turn it is of those that are ready, and puts it behind the others.
    pub(super) fn ready_in_turn(&self) -> Option<Arc<Subscriber>> {
        let mut ready = self.ready();
        let member = ready.pop_front()?;
        ready.push_back(member.clone());
        Some(member)
    }

    /// Removes a member that takes none now. It comes back by itself.
    pub(super) fn remove_ready(&self, member: &Arc<Subscriber>) {
        let mut ready = self.ready();
        // It had its turn, so it is among the last.
        if let Some(index) = ready.iter().rposition(|ready| Arc::ptr_eq(ready, member)) {
            ready.remove(index);
        }
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<Arc<Subscriber>>> {
        // Nothing that runs under the lock leaves it half changed.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadyMembers for Group {
    fn add_ready(&self, member: Arc<Subscriber>) {
        self.ready().push_back(member);
    }
}

impl Subscribers {
    pub(super) fn snapshot(&self) -> Arc<Vec<Arc<Subscriber>>> {
        self.list().clone()
    }

    /// Returns how many there are, without a lock.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn add(&self, subscriber: Arc<Subscriber>) {
        let mut list = self.list();
        Arc::make_mut(&mut list).push(subscriber);
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Removes a subscriber, and returns whether none is left.
    fn remove(&self, subscriber: &Arc<Subscriber>) -> bool {
        let mut list = self.list();
        if let Some(index) = list.iter().position(|there| Arc::ptr_eq(there, subscriber)) {
            Arc::make_mut(&mut list).swap_remove(index);
        }
        self.count.store(list.len(), Ordering::Relaxed);
        list.is_empty()
    }

    fn list(&self) -> MutexGuard<'_, Arc<Vec<Arc<Subscriber>>>> {
        // Nothing that runs under the lock leaves it half changed.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
