//! The router of a client's connections: passes the broker's packets to the session.

use std::sync::Arc;

use frisbee::{Arrivals, Connection, Outcome, Packet, Router};
use tracing::debug;

use crate::{
    PublishError, SubscriptionEnd, SubscriptionEvent,
    remote::session::{ClientSession, MessageSink},
    wire::{
        EndReason, EndedPacket, MalformedPacket, PacketKind, read_message, read_missing, read_number, read_refused,
        read_welcome,
    },
};

/// A router for [`Client`](crate::Client)s on connections created by other code, such as a channel of frpc. It drops
/// all packets other than publish and subscribe.
///
/// Every new connection with this router replaces the client's previous one, and subscriptions resume on it.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use frisbee_pubsub::Client;
///
/// let inbox = Client::builder().router();
/// let client = inbox.client();
/// let connection = frisbee::Client::new(inbox).connect("tcp://localhost:7300").await?;
/// client.publish("greetings", "hello").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ClientRouter {
    pub(super) session: Arc<ClientSession>,
    pub(super) wait_max: std::time::Duration,
    pub(super) answer_max: std::time::Duration,
}

impl ClientRouter {
    /// Returns the kind of a packet sent from a broker to a client.
    fn kind(&self, packet: &Packet) -> Option<PacketKind> {
        let kind = self.session.base.kind(packet.operation)?;
        (!kind.is_for_broker()).then_some(kind)
    }

    fn handle(&self, kind: PacketKind, packet: Packet, connection: &Connection) {
        if let Err(MalformedPacket(why)) = self.read(kind, packet, connection) {
            // After a malformed packet, later ones cannot be trusted.
            debug!(?kind, why, "the broker violates the protocol");
            connection.close();
        }
    }

    fn read(&self, kind: PacketKind, packet: Packet, connection: &Connection) -> Result<(), MalformedPacket> {
        let Packet { id, content, .. } = packet;
        let session = &*self.session;
        match kind {
            PacketKind::Message => {
                let (number, message) = read_message(&content.into_bytes())?;
                match session.sink(connection, number) {
                    Some(MessageSink::Feed(feed)) => feed.push(message),
                    Some(MessageSink::Replies) => session.replies.push(message),
                    // The subscription has ended on this side.
                    None => {}
                }
            }
            PacketKind::Missing => {
                let (number, count) = read_missing(&content)?;
                if let Some(MessageSink::Feed(feed)) = session.sink(connection, number) {
                    feed.push_event(SubscriptionEvent::Missing(count));
                }
            }
            PacketKind::Welcome => {
                let (_, window) = read_welcome(&content)?;
                match id {
                    0 => session.complete_handshake(connection, window),
                    id => drop(session.acknowledge(id, Ok(0))),
                }
            }
            PacketKind::Subscribed => session.subscribed(connection, id, read_number(&content)?)?,
            PacketKind::Ended => {
                let EndedPacket { number, reason, missing, text } = EndedPacket::read(&content)?;
                session.handle_subscription_end(
                    connection,
                    number,
                    match reason {
                        EndReason::TooSlow => SubscriptionEnd::TooSlow { missing },
                        EndReason::Unsubscribed => SubscriptionEnd::Unsubscribed,
                        EndReason::Unknown => {
                            SubscriptionEnd::Refused(crate::Refusal::new(crate::RefusalCode::Unknown, text))
                        }
                    },
                );
            }
            PacketKind::Published => {
                session.acknowledge(id, Ok(read_number(&content)?));
            }
            PacketKind::Allow => session.allow(connection, read_number(&content)?),
            PacketKind::Refused => {
                let (refused, refusal) = read_refused(&content)?;
                match refused {
                    Some(PacketKind::Subscribe) => session.handle_refusal(connection, id, refusal)?,
                    Some(PacketKind::Publish) if id != 0 => {
                        session.acknowledge(id, Err(PublishError::Refused(refusal)));
                    }
                    Some(PacketKind::Publish) => session.note_refused(refusal),
                    refused => debug!(?refused, %refusal, "the broker refused a packet without a waiting caller"),
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Router for ClientRouter {
    fn intercept(&self, packets: &mut Arrivals<'_>, connection: &Connection) {
        while let Some(kind) = packets.peek().and_then(|packet| self.kind(packet)) {
            let Some(packet) = packets.next() else { return };
            self.handle(kind, packet, connection);
        }
    }

    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }

    fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
        match event {
            frisbee::Event::Opened => self.session.start_handshake(connection),
            frisbee::Event::Writable => self.session.resume_sending(),
            frisbee::Event::Closed(_) => self.session.handle_disconnect(connection),
            _ => {}
        }
    }
}
