//! The router of a client's connections: passes the broker's packets to the session.

use std::sync::Arc;

use frisbee::{Arrivals, Connection, Outcome, Packet, Router};
use tracing::debug;

use crate::{
    Event, PublishError, SubscriptionEnd,
    remote::session::{Session, Sink},
    wire::{EndReason, Ended, Kind, Malformed, read_message, read_missing, read_number, read_refused, read_welcome},
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
/// let inbox = Client::builder().inbox();
/// let client = inbox.client();
/// let connection = frisbee::Client::new(inbox).connect("tcp://localhost:7300").await?;
/// client.publish("greetings", "hello").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Inbox {
    pub(super) session: Arc<Session>,
    pub(super) wait_max: std::time::Duration,
}

impl Inbox {
    /// Returns the kind of a packet sent from a broker to a client.
    fn kind(&self, packet: &Packet) -> Option<Kind> {
        let kind = self.session.base.kind(packet.operation)?;
        let is_ours = !matches!(kind, Kind::Hello | Kind::Subscribe | Kind::Unsubscribe | Kind::Publish | Kind::Credit);
        is_ours.then_some(kind)
    }

    fn handle(&self, kind: Kind, packet: Packet, connection: &Connection) {
        if let Err(Malformed(why)) = self.read(kind, packet, connection) {
            // After a malformed packet, later ones cannot be trusted.
            debug!(?kind, why, "the broker violates the protocol");
            connection.close();
        }
    }

    fn read(&self, kind: Kind, packet: Packet, connection: &Connection) -> Result<(), Malformed> {
        let Packet { id, content, .. } = packet;
        let session = &*self.session;
        match kind {
            Kind::Message => {
                let (number, message) = read_message(&content.into_bytes())?;
                match session.sink(connection, number) {
                    Some(Sink::Feed(feed)) => feed.push(message),
                    Some(Sink::Replies) => session.replies.push(message),
                    // The subscription has ended on this side.
                    None => {}
                }
            }
            Kind::Missing => {
                let (number, count) = read_missing(&content)?;
                if let Some(Sink::Feed(feed)) = session.sink(connection, number) {
                    feed.push_event(Event::Missing(count));
                }
            }
            Kind::Welcome => {
                let (_, window) = read_welcome(&content)?;
                match id {
                    0 => session.welcome(connection, window),
                    id => drop(session.acknowledge(id, Ok(0))),
                }
            }
            Kind::Subscribed => session.subscribed(connection, id, read_number(&content)?),
            Kind::Ended => {
                let Ended { number, reason, missing, text } = Ended::read(&content)?;
                session.ended(
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
            Kind::Published => {
                session.acknowledge(id, Ok(read_number(&content)?));
            }
            Kind::Allow => session.allow(connection, read_number(&content)?),
            Kind::Refused => {
                let (refused, refusal) = read_refused(&content)?;
                match refused {
                    Some(Kind::Subscribe) => session.not_subscribed(connection, id, refusal),
                    Some(Kind::Publish) if id != 0 => {
                        session.acknowledge(id, Err(PublishError::Refused(refusal)));
                    }
                    Some(Kind::Publish) => session.note_refused(refusal),
                    refused => debug!(?refused, %refusal, "the broker refused a packet without a waiting caller"),
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Router for Inbox {
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
            frisbee::Event::Opened => self.session.greet(connection),
            frisbee::Event::Writable => self.session.go_on(),
            frisbee::Event::Closed(_) => self.session.lose(connection),
            _ => {}
        }
    }
}
