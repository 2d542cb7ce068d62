//! The reasons of closes.

use std::{error::Error, fmt, io};

use bytes::Bytes;

/// A close, as one side says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The code: 1000 if all is well.
    pub code: u16,
    /// Words for people.
    pub reason: String,
}

/// A connection that ended for another reason than a close of the peer.
#[derive(Debug)]
#[non_exhaustive]
pub enum WebSocketError {
    /// The peer broke the protocol or a limit, and was told so by this close.
    Refused(Close),
    /// The connection was lost, or ended without a close.
    Io(io::Error),
}

/// The code of a connection that has done what it was for.
pub const NORMAL: u16 = 1000;
/// The code of a side that goes away, such as a server that shuts down.
pub const GOING_AWAY: u16 = 1001;
/// The code for a peer that broke the protocol.
pub const PROTOCOL_ERROR: u16 = 1002;
/// The code for messages of a kind that is not understood.
pub const UNSUPPORTED: u16 = 1003;
/// The code for text that is not UTF-8.
pub const INVALID_TEXT: u16 = 1007;
/// The code for a peer that does what is not allowed.
pub const POLICY: u16 = 1008;
/// The code for a message that is too long.
pub const TOO_LONG: u16 = 1009;
/// The code of a side that failed.
pub const FAILED: u16 = 1011;

/// No frame says this: a close without a code.
pub(crate) const NO_CODE: u16 = 1005;

impl Close {
    /// Makes a close. A reason is cut to the 123 bytes that fit.
    pub fn new(code: u16, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        reason.truncate(reason.floor_char_boundary_of(REASON_LEN_MAX));
        Self { code, reason }
    }

    /// Reads the content of a close of the peer.
    pub(crate) fn read(content: &[u8]) -> Result<Self, Self> {
        let Some((code, reason)) = content.split_first_chunk() else {
            return match content {
                [] => Ok(Self { code: NO_CODE, reason: String::new() }),
                _ => Err(Self::new(PROTOCOL_ERROR, "a close has half a code")),
            };
        };
        let code = u16::from_be_bytes(*code);
        if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
            return Err(Self::new(PROTOCOL_ERROR, format!("a close has the code {code}, which no peer may say")));
        }
        match str::from_utf8(reason) {
            Ok(reason) => Ok(Self { code, reason: reason.to_owned() }),
            Err(_) => Err(Self::new(INVALID_TEXT, "the reason of a close is not UTF-8")),
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

/// A frame of control has 125 bytes, and the code two of them.
const REASON_LEN_MAX: usize = 123;

/// The last place to cut a text at.
trait Cut {
    fn floor_char_boundary_of(&self, len_max: usize) -> usize;
}

impl Cut for str {
    fn floor_char_boundary_of(&self, len_max: usize) -> usize {
        (0..=len_max.min(self.len())).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.reason {
            "" => write!(f, "{}", self.code),
            reason => write!(f, "{} ({reason})", self.code),
        }
    }
}

impl fmt::Display for WebSocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(close) => write!(f, "the peer was refused: {close}"),
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
    fn a_close_is_read_as_it_is_written() {
        for close in
            [Close::new(NORMAL, ""), Close::new(4999, "größer"), Close { code: NO_CODE, reason: String::new() }]
        {
            assert_eq!(Close::read(&close.content()), Ok(close));
        }
        let long = Close::new(POLICY, "ä".repeat(100));
        assert_eq!(long.reason.len(), 122);
        assert_eq!(Close::read(&long.content()), Ok(long));
    }

    #[test]
    fn codes_that_no_peer_may_say_are_refused() {
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2000, 2999, 5000, 65535_u16] {
            assert_eq!(Close::read(&code.to_be_bytes()).unwrap_err().code, PROTOCOL_ERROR, "{code}");
        }
        assert_eq!(Close::read(b"\x03").unwrap_err().code, PROTOCOL_ERROR);
        assert_eq!(Close::read(b"\x03\xe8\xff").unwrap_err().code, INVALID_TEXT);
    }
}
