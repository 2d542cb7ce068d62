//! Calls as frisbee packets and streams, in the wire format of frpc-go.

pub(crate) mod bytes;
pub(crate) mod calling;
pub(crate) mod dialer;
mod message_streams;
mod peer;
pub(crate) mod serving;

use ::bytes::Bytes;
use frisbee::Content;

use crate::codec::Pieces;

/// Converts a message to the content of a packet. Only small messages are copied.
impl From<Pieces> for Content {
    #[inline]
    fn from(message: Pieces) -> Self {
        match message {
            Pieces::One(bytes) => bytes.into(),
            Pieces::Small(bytes) => Bytes::copy_from_slice(&bytes).into(),
            Pieces::Several(pieces) => pieces.into(),
        }
    }
}
