//! Test subscribers, on a connection with an unread other end.

use std::sync::{Arc, Weak};

use frisbee::{Connection, Server};
use tokio::{
    io::{DuplexStream, duplex},
    task::yield_now,
};

use crate::{
    Pattern, Policy,
    broker::{
        BrokerLimits,
        answers::AnswerQueue,
        peer::BrokerPeer,
        registry::PatternRegistry,
        shared::BrokerShared,
        subscriber::{Subscriber, SubscriberConnection},
    },
    wire::{BASE, OperationBase, SubscribePacket},
};

/// A broker with one connection.
pub(super) struct Bench {
    pub(super) shared: Arc<BrokerShared>,
    pub(super) peer: BrokerPeer,
    connection: Connection,
    _open: (Server, DuplexStream),
}

impl Bench {
    pub(super) async fn new(limits: BrokerLimits) -> Self {
        let server = Server::builder(()).without_listener();
        let (ours, theirs) = duplex(1024);
        server.attach(theirs);
        while server.connections().is_empty() {
            yield_now().await;
        }
        let connection = server.connections().remove(0);
        let shared = BrokerShared::new(OperationBase::new(BASE), limits, None);
        let peer = BrokerPeer::new(&shared, &connection);
        Self { shared, peer, connection, _open: (server, ours) }
    }

    /// Adds a group member with room for one message.
    pub(super) fn join(&self, registry: &mut PatternRegistry, pattern: &str, group: &str) -> Arc<Subscriber> {
        let pattern = Pattern::new(pattern).expect("it is good");
        let packet = SubscribePacket { policy: Policy::DropNewest, window: 1, slot: 0, pattern: &pattern, group };
        let place = SubscriberConnection {
            connection: &self.connection,
            answers: &Arc::new(AnswerQueue::new(OperationBase::new(BASE), 1, Some(self.connection.clone()))),
            slow: &self.peer.slow,
            subscriptions: &self.peer.subscriptions,
            common: &self.shared.common,
            stalled: Weak::<BrokerShared>::new(),
        };
        registry.add(&pattern, group, 0, |number| Arc::new(Subscriber::new(number, packet, pattern.clone(), place))).0
    }
}
