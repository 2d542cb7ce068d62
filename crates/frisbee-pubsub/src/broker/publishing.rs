//! Publications of one connection: cached routes, and frames gathered per pattern until a whole read is processed.

use std::{
    cell::OnceCell,
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use frisbee::{Connection, Content, FrameBuffer, PacketName};

use crate::{
    Refusal, RefusalCode, Subject,
    broker::{
        authorize::Action,
        groups::deliver_to_one,
        hold::PublisherAccount,
        metrics::{PrefixCounters, PublishTally},
        registry::{Lane, QueueGroup, RouteTarget},
        shared::BrokerShared,
        subscriber::{MessageBatch, OfferOutcome, Subscriber},
    },
    lock::lock,
    wire::{EndReason, FORWARDED, MESSAGE_COST, PacketKind, PublishPacket, REPLY, RETAIN},
};

/// State of one publisher, kept under its lock.
#[derive(Debug, Default)]
pub(super) struct PublisherState {
    /// Generation of the registry at the time the routes were computed.
    generation: u64,
    routes: Vec<SubjectRoute>,
    /// Total number of lanes and queue groups in all cached routes.
    targets: usize,
    by_subject: HashMap<Bytes, usize>,
    /// Last subject with its route. Most publishers keep using the same subject.
    last: Option<(Bytes, usize)>,
    outgoing: Vec<LaneBatch>,
    by_lane: HashMap<u32, usize>,
    /// Indices in `outgoing` with frames to send.
    dirty: Vec<usize>,
    spare: Vec<FrameBuffer>,
    /// Messages and bytes counted on the current route, not yet added to its counters.
    tally: PublishTally,
    /// Cost of all publications since the last flush.
    spent: usize,
    /// Subscribers about to be ended, each with its number of missing messages.
    too_slow: Vec<(Arc<Subscriber>, u64)>,
}

/// Destinations of a subject's messages.
#[derive(Debug)]
struct SubjectRoute {
    lanes: Vec<usize>,
    groups: Vec<Arc<QueueGroup>>,
    counters: Arc<PrefixCounters>,
    refusal: Option<Refusal>,
}

/// Gathered messages for the subscribers of a lane.
#[derive(Debug)]
struct LaneBatch {
    lane: Arc<Lane>,
    frames: Option<FrameBuffer>,
    cost: usize,
}

/// The sender of a publication.
#[derive(Clone, Copy)]
pub(super) struct Publisher<'a> {
    pub(super) shared: &'a BrokerShared,
    pub(super) account: &'a Arc<PublisherAccount>,
    /// `None` for the broker itself, which needs no permission.
    pub(super) connection: Option<&'a Connection>,
}

impl PublisherState {
    /// Processes the content of a PUBLISH. Returns the number of subscriptions it goes to.
    pub(super) fn publish(&mut self, by: Publisher<'_>, content: &Bytes) -> Result<u32, Refusal> {
        let published = PublishPacket::read(content)?;
        if let Some(reply) = published.reply {
            check(reply)?;
        }
        // Charge publications refused below as well, because their sender has spent credit on them.
        self.spent += content.len() + MESSAGE_COST;
        if published.flags & RETAIN != 0 {
            return self.publish_retained(by, &published, content);
        }
        self.append(by, &published, content)
    }

    /// Sends all gathered frames.
    pub(super) fn flush(&mut self, shared: &BrokerShared, account: &Arc<PublisherAccount>) {
        self.flush_tally();
        let Self { outgoing, dirty, spare, too_slow, .. } = self;
        for index in dirty.drain(..) {
            let LaneBatch { lane, frames, cost } = &mut outgoing[index];
            let Some(mut buffer) = frames.take() else { continue };
            let frames = buffer.take();
            let batch = MessageBatch { frames: &frames, cost: std::mem::take(cost), account, shared: OnceCell::new() };
            for subscriber in lane.subscribers.snapshot().iter() {
                if let OfferOutcome::TooSlow(missing) = subscriber.offer(&batch) {
                    too_slow.push((subscriber.clone(), missing));
                }
            }
            if spare.len() < SPARE_MAX {
                spare.push(buffer);
            }
        }
        for (subscriber, missing) in self.too_slow.drain(..) {
            shared.end(&subscriber, EndReason::TooSlow, missing);
        }
        account.spend(std::mem::take(&mut self.spent));
        account.return_credit();
    }

    /// Publishes a message and retains it as the last value of its subject.
    ///
    /// The lock on the retained values keeps new subscriptions out meanwhile. A concurrent subscriber would receive the
    /// message twice or not at all.
    #[cold]
    fn publish_retained(
        &mut self,
        by: Publisher<'_>,
        published: &PublishPacket<'_>,
        content: &Bytes,
    ) -> Result<u32, Refusal> {
        let Publisher { shared, account, connection } = by;
        let subject = check(published.subject)?;
        // Check both permissions before any change, since a refused value must not be retained. `authorize` runs user
        // code, so call it before taking a lock other tasks need.
        let index = self.route(by, published.subject)?;
        if let Some(refusal) = &self.routes[index].refusal {
            return Err(refusal.clone());
        }
        shared.authorize(connection, Action::Retain, subject)?;
        let mut retained = lock(&shared.retained);
        retained.set(&shared.common.limits, subject, published, content)?;
        // `None` skips `authorize`, even if the route has to be computed again. The publisher was authorized above.
        let deliveries = self.append(Publisher { connection: None, ..by }, published, content);
        self.flush(shared, account);
        // Release the lock only after the flush has delivered the message to all earlier subscribers.
        drop(retained);
        deliveries
    }

    fn append(&mut self, by: Publisher<'_>, published: &PublishPacket<'_>, content: &Bytes) -> Result<u32, Refusal> {
        let index = self.route(by, published.subject)?;
        let Publisher { shared, account, .. } = by;
        let Self { routes, outgoing, dirty, spare, too_slow, tally, .. } = self;
        let route = &routes[index];
        if let Some(refusal) = &route.refusal {
            return Err(refusal.clone());
        }
        let flags = [published.flags & (REPLY | FORWARDED)];
        let (subjects, payload) = (published.subjects(content), published.payload);
        let mut deliveries = 0;
        for &index in &route.lanes {
            let LaneBatch { lane, frames, cost } = &mut outgoing[index];
            // Encode the message once per lane. All its subscribers share the frames.
            let buffer = frames.get_or_insert_with(|| {
                dirty.push(index);
                spare.pop().unwrap_or_default()
            });
            let name = PacketName { id: 0, operation: shared.common.base.operation(PacketKind::Message) };
            let number = lane.number.to_be_bytes();
            if payload.len() < SHARED_LEN_MIN {
                buffer.push(name, &[&number, &flags, subjects, payload]);
            } else {
                let head = [&number[..], &flags, subjects].concat();
                buffer.push_content(name, &head, &content.slice_ref(payload));
            }
            *cost += number.len() + content.len() + MESSAGE_COST;
            deliveries += lane.subscribers.count();
        }
        for group in &route.groups {
            let message = |number: u32| {
                let head = [&number.to_be_bytes()[..], &flags, subjects].concat();
                if payload.len() < REFERRED_LEN_MIN {
                    Content::from([&head[..], payload].concat())
                } else {
                    Content::from(vec![head.into(), content.slice_ref(payload)])
                }
            };
            deliveries += usize::from(deliver_to_one(group, account, message, too_slow));
        }
        tally.published += 1;
        tally.bytes += payload.len() as u64;
        tally.deliveries += deliveries as u64;
        Ok(u32::try_from(deliveries).unwrap_or(u32::MAX))
    }

    /// Adds the tally to the counters of the current route.
    fn flush_tally(&mut self) {
        if let Some((_, index)) = &self.last
            && self.tally.published > 0
        {
            self.routes[*index].counters.add(&mut self.tally);
        }
    }

    /// Returns the route of a subject. The common case: the same subject as before.
    #[inline]
    fn route(&mut self, by: Publisher<'_>, subject: &[u8]) -> Result<usize, Refusal> {
        let generation = by.shared.generation.load(Ordering::Acquire);
        // `forget_routes` also sends the frames gathered on the old routes.
        if self.generation != generation {
            self.forget_routes(by);
            self.generation = generation;
        }
        match &self.last {
            Some((last, index)) if last == subject => Ok(*index),
            _ => self.find(by, subject),
        }
    }

    /// Looks up or computes the route of a subject other than the last one.
    fn find(&mut self, by: Publisher<'_>, subject: &[u8]) -> Result<usize, Refusal> {
        self.flush_tally();
        if let Some((subject, index)) = self.by_subject.get_key_value(subject) {
            self.last = Some((subject.clone(), *index));
            return Ok(*index);
        }
        let Publisher { shared, connection, .. } = by;
        let text = check(subject)?;
        let routes_max = shared.common.limits.routes_max;
        // Clear the whole cache instead of tracking the use of single entries.
        if self.routes.len() >= routes_max || self.targets >= routes_max.saturating_mul(TARGETS_MAX) {
            self.forget_routes(by);
        }
        let refusal = shared.authorize(connection, Action::Publish, text).err();
        let counters = shared.prefixes.of(text, shared.common.limits.prefixes_max);
        let mut route = SubjectRoute { lanes: Vec::new(), groups: Vec::new(), counters, refusal };
        let Self { outgoing, by_lane, .. } = self;
        shared.registry().matching(text, &mut |target| match target {
            RouteTarget::Lane(lane) => route.lanes.push(*by_lane.entry(lane.number).or_insert_with(|| {
                outgoing.push(LaneBatch { lane: lane.clone(), frames: None, cost: 0 });
                outgoing.len() - 1
            })),
            RouteTarget::Group(group) => route.groups.push(group.clone()),
        });
        let index = self.routes.len();
        self.targets += route.lanes.len() + route.groups.len();
        self.routes.push(route);
        // Copy the subject. A slice would keep the whole read buffer alive.
        let subject = Bytes::copy_from_slice(subject);
        self.by_subject.insert(subject.clone(), index);
        self.last = Some((subject, index));
        Ok(index)
    }

    /// Sends all gathered frames and clears all routes.
    fn forget_routes(&mut self, by: Publisher<'_>) {
        self.flush(by.shared, by.account);
        self.routes.clear();
        self.targets = 0;
        self.by_subject.clear();
        self.last = None;
        self.outgoing.clear();
        self.by_lane.clear();
    }
}

fn check(subject: &[u8]) -> Result<&str, Refusal> {
    let malformed = |_| Refusal::new(RefusalCode::Malformed, "the subject is not UTF-8");
    let text = std::str::from_utf8(subject).map_err(malformed)?;
    Subject::check(text)?;
    Ok(text)
}

/// Larger payloads are shared among subscribers instead of copied into their frames. Copying a short payload costs less than
/// one more buffer in the write to each subscriber.
const SHARED_LEN_MIN: usize = 16 * 1024;
/// Larger payloads are passed to the member of a queue group without a copy.
const REFERRED_LEN_MIN: usize = 4096;
/// Average number of patterns and groups per cached subject.
const TARGETS_MAX: usize = 16;
/// Number of empty buffers kept for reuse.
const SPARE_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        broker::{BrokerLimits, testing::Bench},
        wire::write_publish,
    };

    #[tokio::test]
    async fn route_cache_size_is_bounded() {
        let bench = Bench::new(BrokerLimits { routes_max: 64, ..BrokerLimits::default() }).await;
        for number in 0..100 {
            bench.join(&mut bench.shared.registry_mut(), ">", &format!("group{number}"));
        }
        let by = Publisher { shared: &bench.shared, account: &bench.peer.account, connection: None };
        let mut publishing = PublisherState::default();
        for number in 0..60 {
            let mut content = Vec::new();
            write_publish(0, &format!("subject.{number}"), None, &mut content);
            let published = publishing.publish(by, &content.into());
            assert_eq!(published, Ok(100));
            let targets: usize = publishing.routes.iter().map(|route| route.lanes.len() + route.groups.len()).sum();
            assert!(targets <= 64 * TARGETS_MAX + 100, "{targets} of them are remembered");
        }
    }
}
