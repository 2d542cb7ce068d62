//! Close frames and their codes.

use std::{error::Error, fmt, io};

use bytes::Bytes;
use frpc::shown;

/// A close frame with its code and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseFrame {
    /// The close code: 1000 for a normal closure.
    pub code: u16,
    /// An explanation for people.
    pub reason: String,
}

/// An error that ended the connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum WebSocketError {
    /// The peer violated the protocol or a limit. It was sent this close frame.
    Refused(CloseFrame),
    /// The connection was lost, or it ended without a closing handshake.
    Io(io::Error),
}

/// The close code for a connection that has served its purpose.
pub const NORMAL: u16 = 1000;
/// The close code for an endpoint that goes away, such as a server shutting down.
pub const GOING_AWAY: u16 = 1001;
/// The close code for a protocol violation.
pub const PROTOCOL_ERROR: u16 = 1002;
/// The close code for an unsupported type of message.
pub const UNSUPPORTED: u16 = 1003;
/// The close code for text that is not UTF-8.
pub const INVALID_TEXT: u16 = 1007;
/// The close code for a policy violation.
pub const POLICY: u16 = 1008;
/// The close code for a message that is too long.
pub const TOO_LONG: u16 = 1009;
/// The close code for an internal error.
pub const FAILED: u16 = 1011;
/// The close code for a peer that may succeed later, because a resource is used up now.
pub const TRY_AGAIN_LATER: u16 = 1013;

/// The placeholder for a close frame without code. It is never sent.
pub(crate) const NO_CODE: u16 = 1005;

impl CloseFrame {
    /// Creates a close frame. The reason is truncated to 123 bytes.
    pub fn new(code: u16, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        let end = (0..=REASON_LEN_MAX.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
        reason.truncate(end.unwrap_or(0));
        Self { code, reason }
    }

    /// Reads the content of a received close frame.
    pub(crate) fn read(content: &[u8]) -> Result<Self, Self> {
        let Some((code, reason)) = content.split_first_chunk() else {
            return match content {
                [] => Ok(Self { code: NO_CODE, reason: String::new() }),
                _ => Err(Self::new(PROTOCOL_ERROR, "the close code is incomplete")),
            };
        };
        let code = u16::from_be_bytes(*code);
        if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
            return Err(Self::new(PROTOCOL_ERROR, format!("the close code {code} must not be sent")));
        }
        match str::from_utf8(reason) {
            Ok(reason) => Ok(Self { code, reason: reason.to_owned() }),
            Err(_) => Err(Self::new(INVALID_TEXT, "the close reason is not UTF-8")),
        }
    }

    /// Returns the content of the frame.
    pub(crate) fn content(&self) -> Bytes {
        if self.code == NO_CODE {
            return Bytes::new();
        }
        [&self.code.to_be_bytes(), self.reason.as_bytes()].concat().into()
    }
}

/// The maximum length of a reason: a control frame has 125 bytes, and the code takes two.
const REASON_LEN_MAX: usize = 123;

impl fmt::Display for CloseFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.reason {
            "" => write!(f, "{}", self.code),
            reason => write!(f, "{} ({})", self.code, shown(reason)),
        }
    }
}

impl fmt::Display for WebSocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(close) => write!(f, "the peer violated the protocol or a limit: {close}"),
            Self::Io(error) => write!(f, "the connection was lost: {error}"),
        }
    }
}

impl Error for WebSocketError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(_) => None,
            Self::Io(error) => Some(error),
        }
    }
}

impl From<WebSocketError> for io::Error {
    fn from(error: WebSocketError) -> Self {
        match error {
            WebSocketError::Io(error) => error,
            refused @ WebSocketError::Refused(_) => Self::new(io::ErrorKind::InvalidData, refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_frames_round_trip() {
        for close in [
            CloseFrame::new(NORMAL, ""),
            CloseFrame::new(4999, "größer"),
            CloseFrame { code: NO_CODE, reason: String::new() },
        ] {
            assert_eq!(CloseFrame::read(&close.content()), Ok(close));
        }
        assert_eq!(CloseFrame::new(POLICY, "\x1b[2J\n").to_string(), "1008 (\\u{1b}[2J\\n)");
        let long = CloseFrame::new(POLICY, "ä".repeat(100));
        assert_eq!(long.reason.len(), 122);
        assert_eq!(CloseFrame::read(&long.content()), Ok(long));
    }
}
