//! The requests of unary calls, encoded before or while they are sent.

use std::sync::atomic::{AtomicUsize, Ordering};

use frisbee::{Connection, Packet, PacketName, SendPosition, TrySendError};

use crate::{
    call::status::Status,
    codec::{self, EncodedMessage, Format, Message, json::Types},
};

/// The request of a unary call. It can be sent again on another connection.
pub(crate) trait UnaryRequest: Sync {
    /// Returns the encoded message.
    fn encode(&self, format: Format) -> Result<EncodedMessage, Status>;

    /// Sends the message in a plain packet with this name, unless the outbox is full.
    fn try_send(&self, connection: &Connection, name: PacketName) -> Result<SendPosition, TrySendError>;
}

/// A request encoded at the moment of sending. A small message needs no allocation.
pub(crate) struct UnencodedRequest<'a, M> {
    message: &'a M,
    /// Where the length of the message is noted when it is encoded.
    len: &'a AtomicUsize,
}

impl<'a, M> UnencodedRequest<'a, M> {
    #[inline]
    pub(crate) fn new(message: &'a M, len: &'a AtomicUsize) -> Self {
        Self { message, len }
    }

    #[inline]
    fn noted(&self, message: EncodedMessage) -> EncodedMessage {
        self.len.store(message.len(), Ordering::Relaxed);
        message
    }
}

impl<M: Message> UnaryRequest for UnencodedRequest<'_, M> {
    fn encode(&self, format: Format) -> Result<EncodedMessage, Status> {
        Ok(self.noted(format.encode_briefly(self.message, Types::WELL_KNOWN)?))
    }

    #[inline]
    fn try_send(&self, connection: &Connection, name: PacketName) -> Result<SendPosition, TrySendError> {
        try_send(self.noted(codec::encode_small(self.message)), connection, name)
    }
}

/// A message that is already encoded.
impl UnaryRequest for EncodedMessage {
    fn encode(&self, _: Format) -> Result<EncodedMessage, Status> {
        Ok(self.clone())
    }

    fn try_send(&self, connection: &Connection, name: PacketName) -> Result<SendPosition, TrySendError> {
        try_send(self.clone(), connection, name)
    }
}

#[inline]
fn try_send(message: EncodedMessage, connection: &Connection, name: PacketName) -> Result<SendPosition, TrySendError> {
    let PacketName { id, operation } = name;
    match message {
        EncodedMessage::Small(message) => connection.try_send_copied(name, &message).map_err(|error| match error {
            TrySendError::Full(()) => TrySendError::Full(Packet::new(id, operation, message.to_vec())),
            TrySendError::Failed(error) => TrySendError::Failed(error),
        }),
        pieces => connection.try_send(Packet { id, operation, content: pieces.into() }),
    }
}

/// The request of one attempt.
pub(crate) enum OutgoingRequest<'a> {
    Encoded(EncodedMessage),
    Message(&'a dyn UnaryRequest),
}

impl OutgoingRequest<'_> {
    /// Sends the request in a packet with this name, unless the outbox is full.
    pub(super) fn try_send(self, connection: &Connection, name: PacketName) -> Result<SendPosition, TrySendError> {
        match self {
            Self::Encoded(content) => try_send(content, connection, name),
            Self::Message(message) => message.try_send(connection, name),
        }
    }
}
