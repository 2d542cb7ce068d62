//! Calls as frisbee packets and streams, in the wire format of frpc-go.

pub(crate) mod bytes;
pub(crate) mod calling;
pub(crate) mod dialer;
mod message_streams;
mod peer;
pub(crate) mod serving;

use ::bytes::Bytes;
use frisbee::Content;

use crate::codec::EncodedMessage;

/// Converts a message to the content of a packet. Only small messages are copied.
impl From<EncodedMessage> for Content {
    #[inline]
    fn from(message: EncodedMessage) -> Self {
        match message {
            EncodedMessage::One(bytes) => bytes.into(),
            EncodedMessage::Small(bytes) => Bytes::copy_from_slice(&bytes).into(),
            EncodedMessage::Several(pieces) => pieces.into(),
        }
    }
}
