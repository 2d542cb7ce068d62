//! State of a broker for one connection: its subscriptions, its publications and its answers.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use frisbee::{Connection, Content};

use crate::{
    Pattern, Refusal, RefusalCode,
    broker::{
        answers::AnswerQueue,
        authorize::Action,
        hold::PublisherAccount,
        publishing::PublisherState,
        shared::BrokerShared,
        subscriber::{OfferOutcome, PeerSubscriptions, SlowList, Subscriber, SubscriberConnection, SubscriptionShared},
    },
    client::check_group,
    lock::{lock, take},
    sync::Mutex,
    wire::{EndReason, PacketKind, PublishPacket, SubscribePacket},
};

/// State of a broker for one connection.
pub(super) struct BrokerPeer {
    pub(super) account: Arc<PublisherAccount>,
    pub(super) answers: Arc<AnswerQueue>,
    pub(super) slow: Arc<SlowList>,
    pub(super) publishing: Mutex<PublisherState>,
    pub(super) subscriptions: Arc<PeerSubscriptions>,
    /// Number of delayed packets, handled later in order of arrival.
    pub(super) waiting: AtomicUsize,
    pub(super) gate: tokio::sync::Mutex<()>,
}

impl BrokerPeer {
    pub(super) fn new(shared: &BrokerShared, connection: &Connection) -> Self {
        let SubscriptionShared { base, limits, gauge, .. } = &*shared.common;
        let answers = Arc::new(AnswerQueue::new(*base, limits.answers_max, Some(connection.clone())));
        Self {
            account: Arc::new(PublisherAccount::new(limits.publish_window, gauge.clone(), Arc::downgrade(&answers))),
            answers,
            slow: Arc::default(),
            publishing: Mutex::default(),
            subscriptions: Arc::default(),
            waiting: AtomicUsize::new(0),
            gate: tokio::sync::Mutex::new(()),
        }
    }

    /// Returns `true` if a packet has to wait because earlier ones still use up the room for answers or held messages.
    pub(super) fn is_full(&self) -> bool {
        self.account.is_full() || self.answers.is_full()
    }

    /// Waits until `is_full` is false.
    pub(super) async fn wait_for_room(&self) {
        loop {
            let (mut freed, mut drained) = (pin!(self.account.freed.notified()), pin!(self.answers.drained.notified()));
            // Register before the check. A change right after the check would not wake this task otherwise.
            freed.as_mut().enable();
            drained.as_mut().enable();
            match (self.account.is_full(), self.answers.is_full()) {
                (true, _) => freed.await,
                (_, true) => drained.await,
                _ => return,
            }
        }
    }

    /// Adds a subscription and answers the client.
    pub(super) fn subscribe(
        &self,
        shared: &BrokerShared,
        connection: &Connection,
        id: u16,
        content: &[u8],
    ) -> Result<(), Refusal> {
        let packet = SubscribePacket::read(content)?;
        let SubscribePacket { slot, pattern, group, .. } = packet;
        let pattern = Pattern::new(pattern)?;
        if !group.is_empty() {
            check_group(group)?;
        }
        shared.authorize(Some(connection), Action::Subscribe, &pattern)?;
        // Publications of retained values take this lock too, so each comes either before this subscription or after
        // it.
        let retained = lock(&shared.retained);
        let mut registry = shared.registry_mut();
        let mut locked = lock(&self.subscriptions.0);
        // `None` after the end of the connection. There is no client to answer then.
        let Some(subscriptions) = &mut *locked else { return Ok(()) };
        let refused = |text| Err(Refusal::new(RefusalCode::LimitReached, text));
        if subscriptions.by_number.len() >= shared.common.limits.subscriptions_max {
            return refused("the connection has reached its limit of subscriptions (subscriptions_max)");
        }
        if registry.patterns() >= shared.common.limits.patterns_max {
            return refused("the broker has reached its limit of patterns (patterns_max)");
        }
        if !subscriptions.shapes.has_room(&pattern, shared.common.limits.shapes_max) {
            return refused(
                "the connection has reached its limit of pattern shapes, sets of positions with a * (shapes_max)",
            );
        }
        if !registry.shapes().has_room(&pattern, shared.common.limits.all_shapes_max) {
            return refused(
                "the broker has reached its limit of pattern shapes, sets of positions with a * (all_shapes_max)",
            );
        }
        if group.is_empty() && subscriptions.has(&pattern, slot) {
            let text = "the connection already has a subscription with this pattern and slot";
            return Err(Refusal::new(RefusalCode::Malformed, text));
        }
        let place = SubscriberConnection {
            connection,
            answers: &self.answers,
            slow: &self.slow,
            common: &shared.common,
            subscriptions: &self.subscriptions,
            stalled: shared.itself(),
        };
        let make = |number| Arc::new(Subscriber::new(number, packet, pattern.clone(), place));
        let (subscriber, is_new) = registry.add(&pattern, group, slot, make);
        // Publishers need this lock from now on, so the answer and the retained values go out before their messages.
        let mut delivery = lock(&subscriber.delivery);
        subscriptions.add(subscriber.clone());
        if is_new {
            shared.generation.fetch_add(1, Ordering::Release);
        }
        drop((locked, registry));
        let values: Vec<Bytes> =
            if group.is_empty() { retained.matching(&pattern).cloned().collect() } else { Vec::new() };
        // Retained values published from now on queue after the ones collected here, like any message to this
        // subscription.
        drop(retained);
        self.answers.queue_answer(PacketKind::Subscribed, id, subscriber.number.to_be_bytes().to_vec());
        let mut verdict = OfferOutcome::GoesOn;
        for value in values {
            verdict = subscriber.deliver_retained(&mut delivery, &retained_message(subscriber.number, &value));
            if verdict != OfferOutcome::GoesOn {
                break;
            }
        }
        drop(delivery);
        if let OfferOutcome::TooSlow(missing) = verdict {
            shared.end(&subscriber, EndReason::TooSlow, missing);
        }
        Ok(())
    }

    /// Ends a subscription at the client's request.
    pub(super) fn unsubscribe(&self, shared: &BrokerShared, number: u32) -> Result<(), Refusal> {
        let Some(subscriber) = self.subscriptions.get(number) else {
            return Err(Refusal::new(RefusalCode::Malformed, "there is no subscription with this number"));
        };
        if subscriber.end() {
            shared.end(&subscriber, EndReason::Unsubscribed, 0);
        }
        Ok(())
    }

    /// Discards all state of the connection, after the connection has ended.
    pub(super) fn forget(&self, shared: &BrokerShared) {
        let subscriptions = lock(&self.subscriptions.0).take().unwrap_or_default();
        for subscriber in subscriptions.by_number.values() {
            subscriber.end();
        }
        shared.forget(subscriptions.by_number.into_values().collect());
        // The list and the subscribers refer to each other. Break the cycle.
        drop(take(&self.slow));
        self.answers.end();
    }
}

/// Returns the content of a MESSAGE for a retained value. It shares the payload instead of copying it, because a full
/// queue may drop the message.
fn retained_message(number: u32, value: &Bytes) -> Content {
    let payload = PublishPacket::read(value).map_or(&[][..], |published| published.payload);
    let head = [&number.to_be_bytes()[..], &value[..value.len() - payload.len()]].concat();
    Content::from(vec![head.into(), value.slice_ref(payload)])
}
