//! The broker as a frisbee router, in combination with a fallback router.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use frisbee::{
    Arrivals, Connection, Event, Outcome, Packet, RefusalReason as Turned, RefusedPacket, Router, RouterInfo, SendOrder,
};

use crate::{
    Refusal, RefusalCode,
    broker::{
        peer::BrokerPeer,
        publishing::{Publisher, PublisherState},
        shared::BrokerShared,
    },
    lock::{lock, take},
    wire::{ACKNOWLEDGE, PacketKind, read_credit, read_hello, read_number, write_refused, write_welcome},
};

/// A broker combined with a fallback router for all other packets; see [`Broker::over`](crate::Broker::over).
///
/// The broker processes most packets directly as they arrive, without a handler. A handler runs only for a packet that
/// has to wait, because blocking subscribers hold too many of the publisher's messages or because the client does not
/// read its answers. Such packets keep their order with [`Dispatch::InPlace`](frisbee::Dispatch::InPlace) and
/// [`Dispatch::Ordered`](frisbee::Dispatch::Ordered).
#[derive(Clone, Debug)]
pub struct BrokerRouter<F> {
    pub(super) shared: Arc<BrokerShared>,
    pub(super) fallback: F,
}

/// The state attached to a connection.
struct AttachedPeer(Arc<BrokerPeer>);

impl<F: Router> BrokerRouter<F> {
    fn peer<'a>(&self, connection: &'a Connection) -> &'a Arc<BrokerPeer> {
        &connection.state_or_insert_with(|| AttachedPeer(Arc::new(BrokerPeer::new(&self.shared, connection)))).0
    }

    /// Returns the kind of a packet sent from a client to a broker.
    #[inline]
    fn kind(&self, packet: &Packet) -> Option<PacketKind> {
        let kind = self.shared.common.base.kind(packet.operation)?;
        kind.is_for_broker().then_some(kind)
    }

    fn handle(&self, peer: &Arc<BrokerPeer>, kind: PacketKind, id: u16, content: &Bytes, connection: &Connection) {
        let shared = &*self.shared;
        let handled = match kind {
            PacketKind::Publish => return self.publish(peer, &mut lock(&peer.publishing), id, content, connection),
            PacketKind::Credit => read_credit(content).map_err(Refusal::from).map(|(number, bytes)| {
                // A missing subscription is no error: it may have ended while this packet was in flight.
                if let Some(subscriber) = peer.subscriptions.get(number) {
                    subscriber.give_credit(bytes);
                }
            }),
            PacketKind::Subscribe => {
                // Earlier messages do not belong to the new subscription.
                lock(&peer.publishing).flush(shared, &peer.account);
                peer.subscribe(shared, connection, id, content)
            }
            PacketKind::Unsubscribe => {
                let number = read_number(content).map_err(Refusal::from);
                number.and_then(|number| peer.unsubscribe(shared, number))
            }
            _ => read_hello(content).map_err(Refusal::from).map(|_| {
                peer.account.keep_to_credit();
                peer.answers.queue_answer(PacketKind::Welcome, id, write_welcome(shared.common.limits.publish_window));
            }),
        };
        let Err(refusal) = handled else { return };
        if !may_wait(kind) && peer.answers.is_full() {
            // The client sends invalid packets and does not read the answers.
            connection.close();
            return;
        }
        self.refuse_packet(peer, kind, id, &refusal);
    }

    fn refuse_packet(&self, peer: &BrokerPeer, kind: PacketKind, id: u16, refusal: &Refusal) {
        self.shared.common.refused.fetch_add(1, Ordering::Relaxed);
        peer.answers.queue_answer(PacketKind::Refused, id, write_refused(kind, refusal));
    }

    #[inline]
    fn publish(
        &self,
        peer: &BrokerPeer,
        publishing: &mut PublisherState,
        id: u16,
        content: &Bytes,
        connection: &Connection,
    ) {
        let by = Publisher { shared: &self.shared, account: &peer.account, connection: Some(connection) };
        match publishing.publish(by, content) {
            Ok(deliveries) if content.first().is_some_and(|flags| flags & ACKNOWLEDGE != 0) => {
                peer.answers.queue_answer(PacketKind::Published, id, deliveries.to_be_bytes().to_vec());
            }
            Ok(_) => {}
            Err(refusal) => self.refuse_packet(peer, PacketKind::Publish, id, &refusal),
        }
    }

    /// Processes a packet after the earlier ones, as soon as there is room for its effects.
    async fn handle_in_turn(&self, kind: PacketKind, packet: Packet, connection: &Connection) {
        let peer = self.peer(connection).clone();
        let _waiting = DelayedPacket(&peer.waiting);
        // The mutex is fair, so packets pass in the order of their handlers.
        let _turn = peer.gate.lock().await;
        peer.wait_for_room().await;
        self.handle(&peer, kind, packet.id, &packet.content, connection);
        lock(&peer.publishing).flush(&self.shared, &peer.account);
    }
}

/// Returns `true` if a packet may be delayed. The other kinds free room, so delaying them could block forever.
fn may_wait(kind: PacketKind) -> bool {
    !matches!(kind, PacketKind::Credit | PacketKind::Unsubscribe)
}

/// Counts a delayed packet until it is processed. Meanwhile all later packets are delayed too.
struct DelayedPacket<'a>(&'a AtomicUsize);

impl Drop for DelayedPacket<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<F: Router> Router for BrokerRouter<F> {
    fn fallback(&self) -> &impl Router {
        &self.fallback
    }

    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        self.shared.check()?;
        let below = self.fallback.describe()?;
        // Subscribers rely on the order of messages.
        let send_order = if below.send_order == SendOrder::Unused { SendOrder::Kept } else { below.send_order };
        Ok(RouterInfo { send_order, ..below })
    }

    fn event(&self, connection: &Connection, event: Event<'_>) {
        match (event, connection.state()) {
            (Event::Received, Some(AttachedPeer(peer))) => lock(&peer.publishing).flush(&self.shared, &peer.account),
            (Event::Writable, Some(AttachedPeer(peer))) if peer.answers.drain() => {
                for subscriber in take(&peer.slow) {
                    subscriber.resume_delivery();
                }
            }
            (Event::Closed(_), Some(AttachedPeer(peer))) => peer.forget(&self.shared),
            _ => {}
        }
        self.fallback.event(connection, event);
    }

    fn intercept(&self, packets: &mut Arrivals<'_>, connection: &Connection) {
        let is_own = |packet: &Packet| self.kind(packet).is_some();
        // Locked for a run of consecutive publications, but not while other packets are handled.
        let (mut attached, mut publishing) = (None, None);
        while let Some(packet) = packets.peek() {
            let Some(kind) = self.kind(packet) else {
                publishing = None;
                packets.lend_until(&is_own, |packets| self.fallback.intercept(packets, connection));
                // The fallback leaves packets that it wants to route.
                if packets.peek().is_some_and(|packet| !is_own(packet)) {
                    return;
                }
                continue;
            };
            let peer = *attached.get_or_insert_with(|| self.peer(connection));
            if may_wait(kind) && (peer.waiting.load(Ordering::Relaxed) > 0 || peer.is_full()) {
                // Leave the packet at the front, so that it is routed next.
                peer.waiting.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let Some(Packet { id, content, .. }) = packets.next() else { return };
            if kind == PacketKind::Publish {
                let publishing = publishing.get_or_insert_with(|| lock(&peer.publishing));
                self.publish(peer, publishing, id, &content, connection);
            } else {
                publishing = None;
                self.handle(peer, kind, id, &content, connection);
            }
        }
    }

    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        match self.kind(&packet) {
            Some(kind) => {
                self.handle_in_turn(kind, packet, connection).await;
                Outcome::Nothing
            }
            None => self.fallback.route(packet, connection).await,
        }
    }

    fn refuse(&self, refused: RefusedPacket, connection: &Connection) -> Outcome {
        let base = self.shared.common.base;
        let refusal = match (base.kind(refused.operation), refused.why) {
            (None, _) => return self.fallback.refuse(refused, connection),
            (_, Turned::Draining) => Refusal::new(RefusalCode::ShuttingDown, ""),
            (_, Turned::TooLarge { .. }) => Refusal::new(RefusalCode::LimitReached, refused.why.to_string()),
            // Returning nothing keeps the packet queued.
            _ => return Outcome::Nothing,
        };
        let kind = base.kind(refused.operation).unwrap_or(PacketKind::Publish);
        Packet::new(refused.id, base.operation(PacketKind::Refused), write_refused(kind, &refusal)).into()
    }
}

#[cfg(loom)]
#[cfg(test)]
mod models {
    use frisbee::{CloseReason, Config, ConnectionModel};
    use loom::{future::block_on, model::Builder, thread};

    use super::*;
    use crate::{
        Pattern, Policy,
        broker::{
            BrokerLimits,
            groups::deliver_to_one,
            registry::PatternRegistry,
            subscriber::{Subscriber, SubscriberConnection},
        },
        wire::{BASE, OperationBase, SubscribePacket},
    };

    /// Checks all orders with at most three switches of a thread that could go on.
    fn check(model: impl Fn() + Send + Sync + 'static) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let mut builder = Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// A broker with one connection, whose outbox has room for one packet.
    struct Scene {
        model: ConnectionModel,
        connection: Connection,
        router: BrokerRouter<()>,
        peer: Arc<BrokerPeer>,
        registry: PatternRegistry,
    }

    impl Scene {
        fn new() -> Self {
            Self::with(BrokerLimits::default())
        }

        fn with(limits: BrokerLimits) -> Self {
            let model = ConnectionModel::new(Config { outbox_len_max: 1, ..Config::default() });
            let connection = model.handle();
            let shared = BrokerShared::new(OperationBase::new(BASE), limits, None);
            let router = BrokerRouter { shared, fallback: () };
            let peer = router.peer(&connection).clone();
            Self { model, connection, router, peer, registry: PatternRegistry::default() }
        }

        fn subscribe(&mut self, group: &str) -> Arc<Subscriber> {
            let Self { connection, router, peer, registry, .. } = self;
            let pattern = Pattern::new("jobs").unwrap();
            let packet = SubscribePacket { policy: Policy::DropNewest, window: 0, slot: 0, pattern: &pattern, group };
            let place = SubscriberConnection {
                connection,
                answers: &peer.answers,
                slow: &peer.slow,
                subscriptions: &peer.subscriptions,
                common: &router.shared.common,
                stalled: router.shared.itself(),
            };
            let make = |number| Arc::new(Subscriber::new(number, packet, pattern.clone(), place));
            registry.add(&pattern, group, 0, make).0
        }

        /// Writes what is queued, with the events that follow.
        fn write(&mut self) {
            let Self { model, connection, router, .. } = self;
            model.write(|| router.event(connection, Event::Writable));
        }

        fn end(self) {
            self.router.event(&self.connection, Event::Closed(&CloseReason::Local));
        }
    }

    fn message(number: u32) -> frisbee::Content {
        number.to_be_bytes().to_vec().into()
    }

    #[test]
    fn messages_and_answers_for_a_full_outbox_follow_once_it_has_room() {
        check(|| {
            let mut scene = Scene::new();
            let subscriber = scene.subscribe("");
            subscriber.offer_one(&message(1), &scene.peer.account);
            let publisher = thread::spawn({
                let (subscriber, peer) = (subscriber.clone(), scene.peer.clone());
                move || {
                    subscriber.offer_one(&message(1), &peer.account);
                    peer.answers.queue_answer(PacketKind::Published, 1, message(1));
                }
            });
            scene.write();
            publisher.join().unwrap();
            scene.write();
            assert!(!scene.peer.answers.are_waiting());
            assert_eq!(subscriber.queued(), 0);
            scene.end();
        });
    }

    #[test]
    fn a_packet_delayed_for_lack_of_room_goes_on() {
        check(|| {
            let mut scene = Scene::with(BrokerLimits { answers_max: 1, ..BrokerLimits::default() });
            for id in 1..=2 {
                scene.peer.answers.queue_answer(PacketKind::Published, id, message(1));
            }
            assert!(scene.peer.is_full());
            let delayed = thread::spawn({
                let peer = scene.peer.clone();
                move || block_on(peer.wait_for_room())
            });
            scene.write();
            delayed.join().unwrap();
            scene.end();
        });
    }

    #[test]
    fn a_full_member_of_a_group_is_ready_again_once_it_has_room() {
        check(|| {
            let mut scene = Scene::new();
            let member = scene.subscribe("workers");
            let group = scene.registry.group_of(&member).unwrap();
            assert!(deliver_to_one(&group, &scene.peer.account, message, &mut Vec::new()));
            let publisher = thread::spawn({
                let (group, peer) = (group.clone(), scene.peer.clone());
                move || assert!(deliver_to_one(&group, &peer.account, message, &mut Vec::new()))
            });
            scene.write();
            publisher.join().unwrap();
            scene.write();
            assert_eq!(member.queued(), 0);
            assert_eq!(group.ready(), 1);
            scene.end();
        });
    }
}
