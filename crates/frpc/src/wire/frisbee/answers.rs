//! The router for the connection of a channel.

use std::{collections::VecDeque, error::Error, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use frisbee::{CloseReason, Connection, GoAway, Operation, Outcome, Packet, PacketName, Peer, Refused, Router, Stream};

use super::{pending::PendingCalls, remote::PART_NAME};
use crate::service::{services::Services, set::ServiceSet};

/// The router for the connection of a channel: completes calls with answers, and passes the rest to the offered
/// services.
pub(crate) struct AnswerRouter<S, R> {
    pub(crate) calls: Arc<PendingCalls>,
    pub(crate) services: Arc<Services<S, R>>,
    /// The frpc part of the HELLO of this side.
    pub(crate) said: Bytes,
}

impl<S: ServiceSet, R: Router> Router for AnswerRouter<S, R> {
    fn intercept(&self, packet: Packet, connection: &Connection) -> Option<Packet> {
        if self.services.is_request(&packet) {
            return Some(packet);
        }
        let is_extended = packet.operation == Operation::EXTENDED;
        let packet = self.calls.complete(packet).filter(|_| !is_extended)?;
        self.services.fallback.intercept(packet, connection)
    }

    fn intercept_more(&self, packets: &mut VecDeque<Packet>, connection: &Connection) -> usize {
        self.services.take_more(Some(&self.calls), packets, connection)
    }

    #[inline]
    fn received(&self, connection: &Connection) {
        self.services.received(connection);
    }

    fn writable(&self, connection: &Connection) {
        self.services.writable(connection);
    }

    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send {
        self.services.route(packet, connection)
    }

    fn refuse(&self, refused: Refused, connection: &Connection) -> Outcome {
        self.services.refuse(refused, connection)
    }

    fn awaited(&self, connection: &Connection) -> usize {
        self.services.awaited(connection)
    }

    fn packet_timeout(&self, packet: &Packet, connection: &Connection) -> Option<Duration> {
        self.services.packet_timeout(packet, connection)
    }

    async fn stream(&self, stream: Stream, connection: &Connection) {
        self.services.stream(stream, connection).await;
    }

    async fn refuse_stream(&self, stream: Stream, connection: &Connection) {
        self.services.refuse_stream(stream, connection).await;
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Router::check(&*self.services)
    }

    /// The channel lets go of the connection, which closes with the last call.
    fn leaves(&self) -> bool {
        true
    }

    fn interleaves(&self) -> bool {
        self.services.interleaves()
    }

    fn part(&self) -> Option<(&'static str, Bytes)> {
        Some((PART_NAME, self.said.clone()))
    }

    fn recognized(&self, connection: &Connection, peer: &Peer) {
        self.services.recognized(connection, peer);
    }

    fn going_away(&self, connection: &Connection, why: &GoAway) {
        self.services.going_away(connection, why);
    }

    fn withdrawn(&self, packet: PacketName, connection: &Connection) {
        self.services.withdrawn(packet, connection);
    }

    fn opened(&self, connection: &Connection) {
        self.services.open_session(connection, self.calls.clone().into());
    }

    fn closed(&self, connection: &Connection, reason: &CloseReason) {
        self.services.closed(connection, reason);
    }
}
