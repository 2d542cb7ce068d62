//! Frames of a call with streams, the payloads of its messages after the opening.
//!
//! ```text
//!   credit    1, bytes granted in total (8), data frames sent (4)
//!   data      2, flags (1), number (4), bytes of a message
//!   end       3, number (4)                   status and trailers are headers
//!   cancel    4
//!   metadata  5, number (4)                   the entries are headers
//! ```
//!
//! Numbers are big-endian. Data, end and metadata share one sequence per direction.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The bytes that the peer may send in total, and how many numbered frames this peer has sent.
    Credit { total: u64, sent: u32 },
    /// A message, or a piece of one.
    Data { number: u32, is_last: bool, bytes: Bytes },
    /// The end of a direction.
    End { number: u32 },
    /// The caller gives up.
    Cancel,
    /// The metadata before the first message of an answer.
    Metadata { number: u32 },
}

impl Frame {
    /// Reads a payload. Returns `None` for one that is no frame.
    pub(crate) fn read(mut payload: Bytes) -> Option<Self> {
        let kind = payload.try_get_u8().ok()?;
        let frame = match kind {
            CREDIT => Self::Credit { total: payload.try_get_u64().ok()?, sent: payload.try_get_u32().ok()? },
            DATA => {
                let flags = payload.try_get_u8().ok().filter(|flags| *flags <= LAST)?;
                let number = payload.try_get_u32().ok()?;
                return Some(Self::Data { number, is_last: flags == LAST, bytes: payload });
            }
            END => Self::End { number: payload.try_get_u32().ok()? },
            CANCEL => Self::Cancel,
            METADATA => Self::Metadata { number: payload.try_get_u32().ok()? },
            _ => return None,
        };
        payload.is_empty().then_some(frame)
    }

    /// Returns the payload.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(HEADER_LEN);
        match self {
            Self::Credit { total, sent } => {
                out.put_u8(CREDIT);
                out.put_u64(*total);
                out.put_u32(*sent);
            }
            Self::Data { number, is_last, bytes } => {
                out.reserve(bytes.len());
                out.put_u8(DATA);
                out.put_u8(if *is_last { LAST } else { 0 });
                out.put_u32(*number);
                out.put_slice(bytes);
            }
            Self::End { number } => {
                out.put_u8(END);
                out.put_u32(*number);
            }
            Self::Cancel => out.put_u8(CANCEL),
            Self::Metadata { number } => {
                out.put_u8(METADATA);
                out.put_u32(*number);
            }
        }
        out.freeze()
    }
}

const CREDIT: u8 = 1;
const DATA: u8 = 2;
const END: u8 = 3;
const CANCEL: u8 = 4;
const METADATA: u8 = 5;

/// The flag of the last piece of a message.
const LAST: u8 = 1;

/// More than the length of any frame without its bytes.
const HEADER_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_read_as_written() {
        for frame in [
            Frame::Credit { total: u64::MAX, sent: 7 },
            Frame::Data { number: 1, is_last: true, bytes: Bytes::from_static(b"abc") },
            Frame::Data { number: u32::MAX, is_last: false, bytes: Bytes::new() },
            Frame::End { number: 3 },
            Frame::Cancel,
            Frame::Metadata { number: 0 },
        ] {
            assert_eq!(Frame::read(frame.encode()), Some(frame));
        }
    }

    #[test]
    fn other_payloads_are_no_frames() {
        for payload in [&b""[..], b"\0", b"\x01\0", b"\x02\x02\0\0\0\0", b"\x03\0\0\0", b"\x04\0", b"{}"] {
            assert_eq!(Frame::read(Bytes::from_static(payload)), None, "{payload:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(payload: Vec<u8>) {
            if let Some(frame) = Frame::read(payload.clone().into()) {
                prop_assert_eq!(frame.encode(), payload);
            }
        }
    }
}
