//! A subscription at the broker: its queue of undelivered messages, its credit, and its policy for a full queue.

use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use frisbee::{Connection, Content, Frames, Packet, SendError, TrySendError};
use tokio::time::sleep;

use crate::{
    Pattern, Policy,
    broker::{
        answers::AnswerQueue,
        gauge::{QueueGauge, QueuedMessage},
        hold::{MessageHold, PublisherAccount},
        limits::BrokerLimits,
        queue::{MessageQueue, NextDelivery, PushOutcome, cost},
    },
    lock::lock,
    sync::Mutex,
    trie::PatternShapes,
    wire::{MESSAGE_COST, OperationBase, PacketKind, SubscribePacket, write_missing},
};

/// State shared by all subscriptions of a broker.
#[derive(Debug)]
pub(super) struct SubscriptionShared {
    pub(super) base: OperationBase,
    pub(super) limits: BrokerLimits,
    /// Bytes queued for all subscriptions together.
    pub(super) gauge: Arc<QueueGauge>,
    /// Number of dropped messages.
    pub(super) missing: AtomicU64,
    /// Number of refused packets.
    pub(super) refused: AtomicU64,
}

/// A subscription of one connection.
pub(super) struct Subscriber {
    pub(super) number: u32,
    pub(super) pattern: Pattern,
    /// Name of the queue group. Empty without a group.
    pub(super) group: Box<str>,
    pub(super) slot: u8,
    policy: Policy,
    connection: Connection,
    pub(super) answers: Arc<AnswerQueue>,
    slow: Arc<SlowList>,
    /// The connection's subscriptions, for removal by number.
    siblings: Weak<PeerSubscriptions>,
    /// The queue group, if the subscription is a member of one.
    group_members: OnceLock<Weak<dyn ReadyMembers>>,
    common: Arc<SubscriptionShared>,
    /// Ends the subscription after it has blocked publishers for too long.
    stalled: Weak<dyn EndStalled>,
    pub(super) delivery: Mutex<DeliveryState>,
}

/// Subscriptions of one connection waiting for room in its outbox, in the order in which they ran out of it. Each is in
/// the list at most once.
pub(super) type SlowList = Mutex<VecDeque<Arc<Subscriber>>>;

/// Ends stalled subscriptions.
pub(super) trait EndStalled: Send + Sync {
    fn end_stalled(&self, subscriber: &Arc<Subscriber>, missing: u64);
}

#[derive(Debug)]
pub(super) struct DeliveryState {
    /// Bytes the subscriber still accepts. `None` without a window: then only the outbox limits delivery.
    credit: Option<i64>,
    queue: MessageQueue,
    has_ended: bool,
    /// Set while the subscription is in `slow`, waiting for a writable connection.
    is_listed: bool,
    /// Set while a task checks the subscription for progress.
    is_watched: bool,
    /// Set while the subscription is in the ready list of its group.
    is_ready: bool,
}

/// Outcome of an offer, with the action required from the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfferOutcome {
    GoesOn,
    /// The subscription has just ended. This number of messages never entered its queue and is missing.
    TooSlow(u64),
    /// The subscription had ended before and did not get the message.
    HasEnded,
}

/// Ready list of a queue group.
pub(super) trait ReadyMembers: Send + Sync {
    /// Adds a member with room for messages.
    fn add_ready(&self, member: Arc<Subscriber>);
}

/// Answer of a group member asked to take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeOutcome {
    Yes,
    /// The member has no room for any message now.
    NotNow,
    /// The member cannot take this message, for example because it is too large. It may take others.
    NotThis,
}

/// Remains of an ended subscription.
#[derive(Debug, Default)]
pub(super) struct UndeliveredMessages {
    /// Messages neither delivered nor reported as missing.
    pub(super) missing: u64,
    /// Queued messages to hand over to other members of the group.
    pub(super) waiting: Vec<(Arc<QueuedMessage>, Option<Arc<MessageHold>>)>,
}

/// Messages of one publisher for all subscribers to a pattern.
pub(super) struct MessageBatch<'a> {
    pub(super) frames: &'a Frames,
    pub(super) cost: usize,
    pub(super) account: &'a Arc<PublisherAccount>,
    /// One entry per frame. Created for the first subscriber that cannot take the whole batch.
    pub(super) shared: OnceCell<Vec<SharedMessage>>,
}

/// Parts of a queued message, shared by all queues with it.
#[derive(Debug, Default)]
pub(super) struct SharedMessage {
    parcel: OnceCell<Arc<QueuedMessage>>,
    hold: OnceCell<Arc<MessageHold>>,
}

/// The connection of a subscription, with the state attached to it.
pub(super) struct SubscriberConnection<'a> {
    pub(super) connection: &'a Connection,
    pub(super) answers: &'a Arc<AnswerQueue>,
    pub(super) slow: &'a Arc<SlowList>,
    pub(super) subscriptions: &'a Arc<PeerSubscriptions>,
    pub(super) common: &'a Arc<SubscriptionShared>,
    pub(super) stalled: Weak<dyn EndStalled>,
}

impl Subscriber {
    pub(super) fn new(
        number: u32,
        packet: SubscribePacket<'_>,
        pattern: Pattern,
        place: SubscriberConnection<'_>,
    ) -> Self {
        let SubscribePacket { policy, window, slot, group, .. } = packet;
        let credit = (window > 0).then(|| i64::from(window.min(CREDIT_MAX)));
        let delivery = DeliveryState {
            credit,
            queue: MessageQueue::default(),
            has_ended: false,
            is_listed: false,
            is_watched: false,
            is_ready: true,
        };
        Self {
            number,
            pattern,
            group: group.into(),
            slot,
            policy,
            connection: place.connection.clone(),
            answers: place.answers.clone(),
            slow: place.slow.clone(),
            siblings: Arc::downgrade(place.subscriptions),
            group_members: OnceLock::new(),
            common: place.common.clone(),
            stalled: place.stalled,
            delivery: Mutex::new(delivery),
        }
    }

    /// Sends a batch to the subscriber.
    ///
    /// If the whole batch can be sent now, this costs one lock and one wake-up. Otherwise each message is sent, queued
    /// or dropped individually.
    pub(super) fn offer(self: &Arc<Self>, batch: &MessageBatch<'_>) -> OfferOutcome {
        let mut delivery = lock(&self.delivery);
        let cost = i64::try_from(batch.cost).unwrap_or(i64::MAX);
        // A batch must fit the credit completely. Only a single message may overdraw it, see `has_credit`.
        if delivery.credit.is_none_or(|credit| credit >= cost) && self.can_send_directly(&delivery) {
            match self.connection.try_send_frames(batch.frames) {
                Ok(_) => {
                    delivery.spend(batch.cost);
                    return OfferOutcome::GoesOn;
                }
                Err(TrySendError::Failed(SendError::Closed)) => return OfferOutcome::GoesOn,
                // The outbox is full, or a message exceeds the peer's size limit. Handle each message individually.
                Err(TrySendError::Full(()) | TrySendError::Failed(_)) => {}
            }
        }
        let (count, was_listed) = (batch.frames.count(), delivery.is_listed);
        let shared = batch.shared.get_or_init(|| batch.frames.iter().map(|_| SharedMessage::default()).collect());
        for (index, (packet, shared)) in batch.frames.iter().zip(shared).enumerate() {
            let pushed = self.push(&mut delivery, &packet.content, shared, Some(batch.account));
            if let OfferOutcome::TooSlow(missing) = pushed {
                return OfferOutcome::TooSlow(missing + (count - index - 1) as u64);
            }
        }
        // `push` does not drain for a listed subscription. Drain once for the whole batch.
        if was_listed {
            self.drain(&mut delivery);
        }
        OfferOutcome::GoesOn
    }

    /// Makes the subscription a member of a group. New members are ready for messages.
    pub(super) fn join(&self, members: Weak<dyn ReadyMembers>) {
        // Called only once, at creation.
        let _ = self.group_members.set(members);
    }

    /// Sends a message of the group if the subscriber has room for it now.
    pub(super) fn take(self: &Arc<Self>, content: &Content) -> TakeOutcome {
        let mut delivery = lock(&self.delivery);
        // At most two rounds: after the registration by `register_slow`, sending is tried once more.
        while !delivery.has_ended && delivery.has_credit() && delivery.queue.is_empty() {
            if !self.answers.are_waiting() {
                let packet = Packet::new(0, self.common.base.operation(PacketKind::Message), content.clone());
                match self.connection.try_send(packet) {
                    Ok(_) => {
                        delivery.spend(cost(content));
                        return TakeOutcome::Yes;
                    }
                    Err(TrySendError::Full(_)) => {}
                    Err(TrySendError::Failed(SendError::Closed)) => break,
                    Err(TrySendError::Failed(_)) => return TakeOutcome::NotThis,
                }
            }
            if !self.register_slow(&mut delivery) {
                break;
            }
        }
        // The group now removes the member from its ready list. `note_ready` adds it again.
        delivery.is_ready = false;
        TakeOutcome::NotNow
    }

    /// Sends, queues or drops a single message of the group.
    pub(super) fn offer_one(self: &Arc<Self>, content: &Content, account: &Arc<PublisherAccount>) -> OfferOutcome {
        self.push(&mut lock(&self.delivery), content, &SharedMessage::default(), Some(account))
    }

    /// Increases the subscriber's credit and sends queued messages.
    pub(super) fn give_credit(self: &Arc<Self>, bytes: u32) {
        let mut delivery = lock(&self.delivery);
        if let Some(credit) = &mut delivery.credit {
            *credit = (*credit + i64::from(bytes)).min(i64::from(CREDIT_MAX));
        }
        self.drain(&mut delivery);
    }

    /// Resumes delivery after the connection has become writable.
    pub(super) fn resume_delivery(self: &Arc<Self>) {
        let mut delivery = lock(&self.delivery);
        delivery.is_listed = false;
        self.drain(&mut delivery);
    }

    /// Ends the subscription. Returns `false` if it had ended before.
    pub(super) fn end(&self) -> bool {
        !std::mem::replace(&mut lock(&self.delivery).has_ended, true)
    }

    /// Takes the queue of an ended subscription.
    pub(super) fn take_remains(&self) -> UndeliveredMessages {
        let mut delivery = lock(&self.delivery);
        let before = delivery.queue.count();
        let waiting = if self.group.is_empty() { Vec::new() } else { delivery.queue.take_all() };
        let missing = delivery.queue.clear();
        self.count_queued(before, 0);
        UndeliveredMessages { missing, waiting }
    }

    /// Removes the subscription's number, so packets of the client no longer refer to it.
    pub(super) fn forget_number(&self) {
        if let Some(siblings) = self.siblings.upgrade() {
            siblings.remove(self.number);
        }
    }

    /// Delivers a retained value at the beginning of a subscription.
    pub(super) fn deliver_retained(self: &Arc<Self>, delivery: &mut DeliveryState, content: &Content) -> OfferOutcome {
        self.push(delivery, content, &SharedMessage::default(), None)
    }

    #[cfg(all(loom, test))]
    pub(super) fn queued(&self) -> usize {
        lock(&self.delivery).queue.count()
    }

    /// Returns `true` if nothing is queued before a new message.
    fn can_send_directly(&self, delivery: &DeliveryState) -> bool {
        delivery.queue.is_empty() && !delivery.has_ended && !self.answers.are_waiting()
    }

    fn push(
        self: &Arc<Self>,
        delivery: &mut DeliveryState,
        content: &Content,
        shared: &SharedMessage,
        account: Option<&Arc<PublisherAccount>>,
    ) -> OfferOutcome {
        if delivery.has_ended {
            return OfferOutcome::HasEnded;
        }
        if self.send_now(delivery, content) {
            return OfferOutcome::GoesOn;
        }
        let SubscriptionShared { gauge, limits, .. } = &*self.common;
        let (before, len) = (delivery.queue.count(), delivery.queue.len());
        let parcel = || shared.parcel.get_or_init(|| Arc::new(QueuedMessage::new(content, gauge))).clone();
        let new_hold = |account: &Arc<PublisherAccount>| Arc::new(MessageHold::new(account.clone(), cost(content)));
        // Only messages queued for blocking subscribers count against their publisher.
        let account = account.filter(|_| self.policy == Policy::Block);
        let hold = account.map(|account| shared.hold.get_or_init(|| new_hold(account)).clone());
        let is_held = hold.is_some();
        // With a full gauge, the room is the length already queued. Every policy then treats its queue as full.
        let room = limits.queue_len_max.min(len + gauge.left());
        let pushed = delivery.queue.push(self.policy, content, parcel, hold, room);
        self.count_queued(before, delivery.queue.count());
        match pushed {
            PushOutcome::Waits => {}
            PushOutcome::Dropped(count) => self.count_missing(count),
            PushOutcome::TooSlow => {
                delivery.has_ended = true;
                self.count_missing(1);
                return OfferOutcome::TooSlow(1);
            }
        }
        // A listed subscription waits for room in the outbox. Do not try to send for each further message.
        if !delivery.is_listed {
            self.drain(delivery);
        }
        // One task per blocked subscription is enough, because it runs until the queue is empty.
        if is_held && !delivery.queue.is_empty() && !delivery.is_watched {
            delivery.is_watched = true;
            self.watch(delivery.queue.taken());
        }
        OfferOutcome::GoesOn
    }

    /// Sends a message if it can go before all queues. Returns `true` if it was sent.
    fn send_now(&self, delivery: &mut DeliveryState, content: &Content) -> bool {
        if !delivery.has_credit() || !self.can_send_directly(delivery) {
            return false;
        }
        let packet = Packet::new(0, self.common.base.operation(PacketKind::Message), content.clone());
        let is_sent = self.connection.try_send(packet).is_ok();
        if is_sent {
            delivery.spend(cost(content));
        }
        is_sent
    }

    /// Sends queued messages until the credit is used up or the outbox is full.
    fn drain(self: &Arc<Self>, delivery: &mut DeliveryState) {
        if delivery.has_ended {
            return;
        }
        let before = delivery.queue.count();
        loop {
            let packets = self.next_packets(delivery);
            if packets.is_empty() {
                break;
            }
            // Answers go first. Treat a connection with queued answers as full.
            let sent = if self.answers.are_waiting() { Ok(0) } else { self.connection.try_send_all(&packets) };
            match sent {
                Ok(0) => {
                    if !self.register_slow(delivery) {
                        break;
                    }
                }
                Ok(sent) => packets[..sent].iter().for_each(|packet| self.note_sent(delivery, packet)),
                // `Peer::forget` drops the queue or hands it over, together with all subscriptions of the connection.
                Err(SendError::Closed) => break,
                // The message exceeds the peer's size limit.
                Err(_) => {
                    delivery.queue.drop_first();
                    self.count_missing(1);
                }
            }
        }
        self.count_queued(before, delivery.queue.count());
        self.note_ready(delivery);
    }

    /// Adds a member of a group to the ready list again, if it has room.
    fn note_ready(self: &Arc<Self>, delivery: &mut DeliveryState) {
        if delivery.is_ready || !delivery.has_credit() || !delivery.queue.is_empty() {
            return;
        }
        let Some(members) = self.group_members.get().and_then(Weak::upgrade) else { return };
        if self.answers.are_waiting() && (!self.register_slow(delivery) || self.answers.are_waiting()) {
            // `resume_delivery` runs after the answers are sent.
            return;
        }
        delivery.is_ready = true;
        members.add_ready(self.clone());
    }

    /// Returns the first queued packets covered by the credit.
    fn next_packets(&self, delivery: &DeliveryState) -> Vec<Packet> {
        let (mut packets, mut credit) = (Vec::new(), delivery.credit);
        for next in delivery.queue.upcoming().take(AT_ONCE_MAX) {
            if credit.is_some_and(|credit| credit <= 0) {
                break;
            }
            let (kind, content) = match next {
                NextDelivery::Missing(count) => (PacketKind::Missing, write_missing(self.number, count).into()),
                NextDelivery::Message(content) => {
                    credit = credit.map(|credit| less(credit, cost(content)));
                    (PacketKind::Message, content.clone())
                }
            };
            packets.push(Packet::new(0, self.common.base.operation(kind), content));
        }
        packets
    }

    fn note_sent(&self, delivery: &mut DeliveryState, packet: &Packet) {
        if packet.operation == self.common.base.operation(PacketKind::Missing) {
            delivery.queue.told_missing();
        } else {
            delivery.queue.pop();
            delivery.spend(cost(&packet.content));
        }
    }

    /// Registers the subscription for the next writable connection. Returns `true` if it was not registered before.
    ///
    /// The connection may have become writable just before the registration, without waking this subscription. On
    /// `true`, the caller therefore has to try again.
    fn register_slow(self: &Arc<Self>, delivery: &mut DeliveryState) -> bool {
        if delivery.is_listed {
            return false;
        }
        delivery.is_listed = true;
        lock(&self.slow).push_back(self.clone());
        true
    }

    /// Updates the count of queue entries in the gauge. The parcels count their own bytes.
    fn count_queued(&self, before: usize, now: usize) {
        self.common.gauge.change(before * MESSAGE_COST, now * MESSAGE_COST);
    }

    fn count_missing(&self, count: u64) {
        self.common.missing.fetch_add(count, Ordering::Relaxed);
    }

    /// Spawns a task to end the subscription if it blocks publishers and makes no progress.
    fn watch(self: &Arc<Self>, mut taken: u64) {
        // A strong reference would keep an ended subscription alive for up to `stall_max`.
        let (subscriber, pause) = (Arc::downgrade(self), self.common.limits.stall_max);
        self.connection.runtime().spawn(async move {
            while let Some((subscriber, verdict)) = check_after_pause(&subscriber, pause, &mut taken).await {
                if let (OfferOutcome::TooSlow(missing), Some(stalled)) = (verdict, subscriber.stalled.upgrade()) {
                    stalled.end_stalled(&subscriber, missing);
                }
            }
        });
    }

    /// Checks the progress since `taken` messages were removed. Returns `None` if no further check is needed.
    fn check_progress(&self, taken: &mut u64) -> Option<OfferOutcome> {
        let mut delivery = lock(&self.delivery);
        if delivery.has_ended || delivery.queue.is_empty() {
            delivery.is_watched = false;
            return None;
        }
        if std::mem::replace(taken, delivery.queue.taken()) != delivery.queue.taken() {
            return Some(OfferOutcome::GoesOn);
        }
        delivery.has_ended = true;
        Some(OfferOutcome::TooSlow(0))
    }
}

/// The subscriptions of a connection. `None` after the connection has ended.
#[derive(Debug)]
pub(super) struct PeerSubscriptions(pub(super) Mutex<Option<NumberedSubscriptions>>);

/// Subscriptions by number.
#[derive(Debug, Default)]
pub(super) struct NumberedSubscriptions {
    pub(super) by_number: HashMap<u32, Arc<Subscriber>>,
    /// Pattern and slot of each subscription outside of groups.
    taken: HashSet<(Pattern, u8)>,
    pub(super) shapes: PatternShapes,
}

impl NumberedSubscriptions {
    /// Returns `true` if a subscription outside of groups has this pattern and slot.
    pub(super) fn has(&self, pattern: &Pattern, slot: u8) -> bool {
        self.taken.contains(&(pattern.clone(), slot))
    }

    pub(super) fn add(&mut self, subscriber: Arc<Subscriber>) {
        self.shapes.add(&subscriber.pattern);
        if subscriber.group.is_empty() {
            self.taken.insert((subscriber.pattern.clone(), subscriber.slot));
        }
        self.by_number.insert(subscriber.number, subscriber);
    }

    fn remove(&mut self, number: u32) -> Option<Arc<Subscriber>> {
        let subscriber = self.by_number.remove(&number)?;
        if subscriber.group.is_empty() {
            self.taken.remove(&(subscriber.pattern.clone(), subscriber.slot));
        }
        self.shapes.remove(&subscriber.pattern, 1);
        Some(subscriber)
    }
}

impl PeerSubscriptions {
    pub(super) fn get(&self, number: u32) -> Option<Arc<Subscriber>> {
        lock(&self.0).as_ref()?.by_number.get(&number).cloned()
    }

    fn remove(&self, number: u32) {
        let removed = lock(&self.0).as_mut().and_then(|subscriptions| subscriptions.remove(number));
        // Drop without the lock held: this may be the last reference to the subscriber and its connection.
        drop(removed);
    }
}

impl Default for PeerSubscriptions {
    fn default() -> Self {
        Self(Mutex::new(Some(NumberedSubscriptions::default())))
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("number", &self.number)
            .field("pattern", &self.pattern)
            .finish_non_exhaustive()
    }
}

async fn check_after_pause(
    subscriber: &Weak<Subscriber>,
    pause: Duration,
    taken: &mut u64,
) -> Option<(Arc<Subscriber>, OfferOutcome)> {
    sleep(pause).await;
    let subscriber = subscriber.upgrade()?;
    let verdict = subscriber.check_progress(taken)?;
    Some((subscriber, verdict))
}

impl DeliveryState {
    fn has_credit(&self) -> bool {
        self.credit.is_none_or(|credit| credit > 0)
    }

    fn spend(&mut self, cost: usize) {
        if let Some(credit) = &mut self.credit {
            *credit = less(*credit, cost);
        }
    }
}

fn less(credit: i64, cost: usize) -> i64 {
    credit.saturating_sub(i64::try_from(cost).unwrap_or(i64::MAX))
}

/// Maximum number of packets sent with one lock and one wake-up.
const AT_ONCE_MAX: usize = 64;

/// Upper bound of the credit. A client cannot overflow it with more.
const CREDIT_MAX: u32 = i32::MAX as u32;
