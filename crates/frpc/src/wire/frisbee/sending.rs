//! Requests of unary calls, before they are in the outbox.

use frisbee::{Connection, Content, Packet, PacketName, Sent, TrySendError};

use crate::codec::{self, Message, Pieces};

/// A request of any type. It can be sent again on another connection.
pub(crate) trait Sending {
    /// Sends the request in a packet with this name, unless the outbox is full.
    fn try_send(&self, connection: &Connection, name: PacketName) -> Result<Sent, TrySendError>;
}

/// The request of one attempt.
pub(crate) enum Outbound<'a> {
    Encoded(Content),
    Message(&'a (dyn Sending + Sync)),
}

impl Outbound<'_> {
    /// Sends the request in a packet with this name, unless the outbox is full.
    pub(super) fn try_send(self, connection: &Connection, name: PacketName) -> Result<Sent, TrySendError> {
        let PacketName { id, operation } = name;
        match self {
            Self::Encoded(content) => connection.try_send(Packet { id, operation, content }),
            Self::Message(message) => message.try_send(connection, name),
        }
    }
}

impl From<Content> for Outbound<'_> {
    fn from(content: Content) -> Self {
        Self::Encoded(content)
    }
}

/// A request encoded at the moment of sending. A small message needs no allocation.
pub(crate) struct Encoding<'a, M>(pub(crate) &'a M);

impl<M: Message> Sending for Encoding<'_, M> {
    #[inline]
    fn try_send(&self, connection: &Connection, name: PacketName) -> Result<Sent, TrySendError> {
        let PacketName { id, operation } = name;
        match codec::encode_small(self.0) {
            Pieces::Small(message) => connection.try_send_copied(name, &message).map_err(|error| match error {
                TrySendError::Full(()) => TrySendError::Full(Packet::new(id, operation, message.to_vec())),
                TrySendError::Failed(error) => TrySendError::Failed(error),
            }),
            pieces => connection.try_send(Packet { id, operation, content: pieces.into() }),
        }
    }
}
