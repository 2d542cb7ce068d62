//! State shared by all handles of a broker, and the end of subscriptions.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use frisbee::{Connection, InvalidSetting};

use crate::{
    Refusal, RefusalCode,
    broker::{
        authorize::{Action, Authorize},
        gauge::QueueGauge,
        groups::deliver_to_one,
        hold::PublisherAccount,
        limits::BrokerLimits,
        metrics::{BrokerMetrics, PrefixTable},
        registry::PatternRegistry,
        retained::RetainedValues,
        subscriber::{EndStalled, Subscriber, SubscriptionShared, UndeliveredMessages},
    },
    lock::lock,
    sync::Mutex,
    wire::{EndReason, EndedPacket, OperationBase, PacketKind},
};

/// State of a broker.
///
/// Lock order: publishing, retained, registry, subscriptions of a peer, delivery of a subscriber. All other locks come
/// last and are held only briefly.
pub(super) struct BrokerShared {
    pub(super) common: Arc<SubscriptionShared>,
    authorize: Option<Box<dyn Authorize>>,
    registry: RwLock<PatternRegistry>,
    /// Version of the set of lanes, groups and permissions. A change invalidates the cached routes of publishers.
    pub(super) generation: AtomicU64,
    pub(super) retained: Mutex<RetainedValues>,
    pub(super) prefixes: PrefixTable,
    /// Account for group messages that pass to another member without holding up a publisher.
    orphans: Arc<PublisherAccount>,
    itself: Weak<Self>,
}

impl BrokerShared {
    pub(super) fn new(base: OperationBase, limits: BrokerLimits, authorize: Option<Box<dyn Authorize>>) -> Arc<Self> {
        Arc::new_cyclic(|itself| {
            let gauge = Arc::new(QueueGauge::new(limits.queued_len_max));
            let orphans = Arc::new(PublisherAccount::new(u32::MAX, gauge.clone(), Weak::new()));
            let common =
                SubscriptionShared { base, limits, gauge, missing: AtomicU64::new(0), refused: AtomicU64::new(0) };
            Self {
                common: Arc::new(common),
                authorize,
                registry: RwLock::default(),
                generation: AtomicU64::new(0),
                retained: Mutex::default(),
                prefixes: PrefixTable::default(),
                orphans,
                itself: itself.clone(),
            }
        })
    }

    /// Removes an ended subscription and reports it to the client. `missing` counts dropped messages in addition to the
    /// queued ones.
    pub(super) fn end(&self, subscriber: &Arc<Subscriber>, reason: EndReason, missing: u64) {
        let mut ended = vec![(subscriber.clone(), reason, missing)];
        // Messages handed over to another member of the group may end that member too.
        while let Some((subscriber, reason, missing)) = ended.pop() {
            self.remove(std::slice::from_ref(&subscriber));
            subscriber.forget_number();
            let mut too_slow = Vec::new();
            let missing = missing + self.hand_over(&subscriber, &mut too_slow);
            let text = match reason {
                EndReason::TooSlow => "the subscriber took messages too slowly",
                _ => "",
            };
            let content = EndedPacket { number: subscriber.number, reason, missing, text }.write();
            subscriber.answers.queue_answer(PacketKind::Ended, 0, content);
            ended.extend(too_slow.into_iter().map(|(next, missing)| (next, EndReason::TooSlow, missing)));
        }
    }

    /// Removes the subscriptions of a closed connection.
    pub(super) fn forget(&self, subscribers: Vec<Arc<Subscriber>>) {
        // Remove in chunks, so publishers can use the registry in between.
        subscribers.chunks(AT_ONCE_MAX).for_each(|subscribers| self.remove(subscribers));
        let mut too_slow = Vec::new();
        for subscriber in &subscribers {
            self.hand_over(subscriber, &mut too_slow);
        }
        for (subscriber, missing) in too_slow {
            self.end(&subscriber, EndReason::TooSlow, missing);
        }
    }

    fn remove(&self, subscribers: &[Arc<Subscriber>]) {
        let mut registry = self.registry_mut();
        let mut is_out_of_date = false;
        for subscriber in subscribers {
            is_out_of_date |= registry.remove(subscriber);
        }
        // Change the registry before the generation: a publisher that sees the new generation must also see the new
        // set.
        if is_out_of_date {
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Hands the queued messages of an ended subscription to the other members of its group. Returns the number of
    /// missing messages.
    fn hand_over(&self, subscriber: &Arc<Subscriber>, too_slow: &mut Vec<(Arc<Subscriber>, u64)>) -> u64 {
        let UndeliveredMessages { mut missing, waiting } = subscriber.take_remains();
        if waiting.is_empty() {
            return missing;
        }
        let group = self.registry().group_of(subscriber);
        for (parcel, hold) in waiting {
            let account = hold.as_ref().map_or(&self.orphans, |hold| hold.account());
            // The first four bytes are the number of the ended subscription.
            let renumbered = |number: u32| [&number.to_be_bytes()[..], &parcel.content()[4..]].concat().into();
            let is_taken = group.as_ref().is_some_and(|group| deliver_to_one(group, account, renumbered, too_slow));
            if !is_taken {
                missing += 1;
                self.common.missing.fetch_add(1, Ordering::Relaxed);
            }
        }
        missing
    }

    /// Returns an error for the first invalid setting.
    pub(super) fn check(&self) -> Result<(), InvalidSetting> {
        self.common.base.check()?;
        self.common.limits.check()
    }

    /// Invalidates all cached permissions.
    pub(super) fn reauthorize(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(super) fn itself(&self) -> Weak<dyn EndStalled> {
        self.itself.clone()
    }

    pub(super) fn authorize(&self, by: Option<&Connection>, action: Action, subject: &str) -> Result<(), Refusal> {
        match (&self.authorize, by) {
            (Some(authorize), Some(connection)) => {
                authorize.authorize(connection, action, subject).map_err(|text| Refusal::new(RefusalCode::Denied, text))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn metrics(&self) -> BrokerMetrics {
        // Lock one after the other: `subscribe` holds both, in the opposite order.
        let patterns = self.registry().patterns();
        let retained = lock(&self.retained).count();
        BrokerMetrics {
            patterns,
            queued_len: self.common.gauge.len(),
            retained,
            missing: self.common.missing.load(Ordering::Relaxed),
            refused: self.common.refused.load(Ordering::Relaxed),
            prefixes: self.prefixes.snapshot(),
        }
    }

    pub(super) fn registry(&self) -> RwLockReadGuard<'_, PatternRegistry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn registry_mut(&self) -> RwLockWriteGuard<'_, PatternRegistry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EndStalled for BrokerShared {
    fn end_stalled(&self, subscriber: &Arc<Subscriber>, missing: u64) {
        self.end(subscriber, EndReason::TooSlow, missing);
    }
}

/// Number of subscriptions removed per acquisition of the lock.
const AT_ONCE_MAX: usize = 32;

impl fmt::Debug for BrokerShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("common", &self.common).finish_non_exhaustive()
    }
}
