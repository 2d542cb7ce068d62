//! The wire format of streaming calls in frpc-go, and the time to close their frisbee streams.
//!
//! ```text
//! caller                                         server
//!   open        kind u16, operation        ─▶
//!   [message]   the request                ─▶    server streaming
//!   message …                              ─▶    client streaming, bidirectional
//!               ◀─  message …                    any time
//!   end         the error "EOF"            ─▶    client streaming, bidirectional
//!               ◀─  [error]  end                 once or twice
//! ```
//!
//! Go peers never close a stream, so its id would stay in use. If this side closes a stream too early, they lose unread
//! data. So the caller closes it after both end markers. The server does the same for a call with a request stream.
//!
//! Closing a stream late makes a Go peer hang. While frisbee-go closes a connection, it waits for its reading task, and
//! that task waits forever if it reads anything about a stream in the meantime. So no frame follows the last end
//! marker, which callers wait for: the server [defers](frisbee::Stream::defer_close) its close until it has more data
//! for the caller. Some callers wait only for the answer. For these, an end marker is sent together with the frame
//! before it.

use bytes::Bytes;

use super::{compressed::PeerCompression, envelope};
use crate::{
    call::{metadata::Metadata, status::Status},
    codec::{Reader, Writer, decode_error, short_error},
};

/// Encodes the first data of the stream of a call.
pub(crate) fn encode_open(operation: u16) -> Bytes {
    let mut out = Writer::new(Vec::with_capacity(OPEN_LEN_MAX));
    out.u16(operation);
    out.finish().into()
}

/// Returns the called operation from the first data of a stream. `None` if the stream is no call.
pub(crate) fn parse_open(content: &Bytes) -> Option<u16> {
    Reader::new(content).u16().ok()
}

/// The end marker of one direction of a call.
pub(crate) const END: Bytes = Bytes::from_static(&END_BYTES);

const END_BYTES: [u8; 7] = short_error("EOF");
const OPEN_LEN_MAX: usize = 4;

pub(crate) fn is_end(content: &Bytes) -> bool {
    content.starts_with(&END_BYTES)
}

/// Separates a message from an encoded status in its place. Layers have to see a status as an error.
#[inline]
pub(crate) fn message_or_status(content: Bytes) -> Result<Bytes, Status> {
    match decode_error(&content) {
        None => Ok(content),
        Some(failure) => Err(failure?.into()),
    }
}

/// Encodes a status for a stream. A status with the text of the end marker gets a different text.
pub(crate) fn failure(status: &Status) -> Bytes {
    let content = status.encode();
    if is_end(&content) { Status::new(status.code(), status.to_string()).encode() } else { content }
}

/// The framing of messages on the stream of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFraming {
    /// One message per frame, as in frpc-go.
    Plain,
    /// As in docs/protocol.md. `metadata_max` is the caller's limit on the metadata of the answer.
    Extended { metadata_max: usize, deflating: Option<PeerCompression> },
}

impl StreamFraming {
    /// Returns the end marker, with trailers if the framing supports them.
    pub(crate) fn end(self, trailers: &Metadata) -> Bytes {
        match self {
            Self::Plain => END,
            Self::Extended { .. } => envelope::end(trailers),
        }
    }

    pub(crate) fn is_end(self, content: &Bytes) -> bool {
        match self {
            Self::Plain => is_end(content),
            Self::Extended { .. } => envelope::is_end(content),
        }
    }
}

/// Returns a status with a short text, to replace one whose text exceeds the size limit.
pub(crate) fn without_text(status: &Status) -> Status {
    Status::new(status.code(), "the error message is too large")
}
