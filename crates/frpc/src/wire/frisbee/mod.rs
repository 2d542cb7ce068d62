//! Calls as frisbee packets and streams, in the wire format of frpc-go.

pub(crate) mod answers;
pub(crate) mod call_table;
pub(crate) mod calls;
pub(crate) mod client;
pub(crate) mod compressed;
pub(crate) mod description;
pub(crate) mod envelope;
pub(crate) mod failures;
pub(crate) mod fit;
pub(crate) mod peer;
pub(crate) mod pending;
pub(crate) mod plain_call;
pub(crate) mod reconnect;
pub(crate) mod remote;
pub(crate) mod repeat;
pub(crate) mod sending;
pub(crate) mod serve;
pub(crate) mod serve_packets;
pub(crate) mod serve_streams;
pub(crate) mod session;
pub(crate) mod stream_calls;
pub(crate) mod stream_framing;
pub(crate) mod take_over;

use bytes::Bytes;
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
