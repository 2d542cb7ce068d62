//! The request of a unary call on its way into the outbox.

use frisbee::{Connection, Content, Packet, PacketName, Sent, TrySendError};

use crate::codec::{self, Message, Pieces};

/// A request that is sent once, or again on another connection.
pub(crate) trait Sending {
    /// Sends it in a packet of this name, unless the outbox is full.
    fn try_send(&self, connection: &Connection, name: PacketName) -> Result<Sent, TrySendError>;
}

/// A request that was encoded before.
impl Sending for Content {
    fn try_send(&self, connection: &Connection, name: PacketName) -> Result<Sent, TrySendError> {
        let PacketName { id, operation } = name;
        connection.try_send(Packet { id, operation, content: self.clone() })
    }
}

/// A request that is encoded where it is sent. A small one has no memory of its own.
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
