//! Control frames about the connection, between extended peers.
//!
//! ```text
//!   CONTROL = header with operation 3 | kind u8 | body
//! ```

use bytes::{Buf, BufMut, Bytes};

use super::{header::Header, hello::Hello};
use crate::{Operation, PacketName, ProtocolError};

/// A control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Control {
    /// The features and limits of the sender.
    Hello(Hello),
    /// More data of a stream may be sent to the sender of this frame.
    Credit {
        /// The id of the stream.
        id: u16,
        /// The additional credit in bytes.
        len: u32,
    },
    /// The sender asks for no new packets or streams on this connection.
    GoAway(GoAway),
    /// The sender no longer needs the answer to one of its packets.
    Cancel(PacketName),
    /// The packet was withdrawn, and no answer follows.
    Cancelled(PacketName),
    /// All later frames of the sender have checksums.
    Checksums,
}

/// The reason for accepting no new packets and streams on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// The kind of reason: one of the constants, or any other number without a defined meaning.
    pub code: u8,
    /// The reason as text.
    pub text: Box<str>,
}

impl GoAway {
    /// The server shuts down.
    pub const SHUTDOWN: u8 = 1;
    /// The connection has reached its age limit.
    pub const AGE: u8 = 2;
}

impl Control {
    /// Returns the header of the frame and its content: the kind and the body.
    pub(super) fn encode(&self) -> (Header, Vec<u8>) {
        let mut content = Vec::new();
        let mut id = 0;
        match self {
            Self::Hello(hello) => {
                content.put_u8(HELLO);
                hello.encode(&mut content);
            }
            Self::Credit { id: stream, len } => {
                id = *stream;
                content.put_u8(CREDIT);
                content.put_u32(*len);
            }
            Self::GoAway(goaway) => {
                content.extend([GOAWAY, goaway.code]);
                content.put_slice(goaway.text.as_bytes());
            }
            Self::Cancel(packet) | Self::Cancelled(packet) => {
                id = packet.id;
                content.put_u8(if let Self::Cancel(_) = self { CANCEL } else { CANCELLED });
                content.put_u16(packet.operation.number());
            }
            Self::Checksums => content.put_u8(CHECKSUMS),
        }
        (Header::control(id, content.len().try_into().expect("what this side says of itself is short")), content)
    }

    /// Decodes a frame. Returns `None` for an unknown kind.
    pub fn decode(id: u16, mut content: Bytes) -> Result<Option<Self>, ProtocolError> {
        let Ok(kind) = content.try_get_u8() else { return Ok(None) };
        Ok(Some(match kind {
            HELLO => Self::Hello(Hello::decode(content)?),
            CREDIT => Self::Credit { id, len: content.try_get_u32().map_err(|_| too_short("CREDIT"))? },
            GOAWAY => {
                let code = content.try_get_u8().map_err(|_| too_short("GOAWAY"))?;
                content.truncate(GOAWAY_TEXT_LEN_MAX);
                Self::GoAway(GoAway { code, text: String::from_utf8_lossy(&content).into() })
            }
            CANCEL | CANCELLED => {
                let (name, of): (_, fn(_) -> _) = match kind {
                    CANCEL => ("CANCEL", Self::Cancel),
                    _ => ("CANCELLED", Self::Cancelled),
                };
                let number = content.try_get_u16().map_err(|_| too_short(name))?;
                // Packets have no other operations, so there is none to withdraw.
                let Some(operation) = Operation::from_wire(number) else { return Ok(None) };
                of(PacketName { id, operation })
            }
            CHECKSUMS => Self::Checksums,
            _ => return Ok(None),
        }))
    }
}

fn too_short(kind: &'static str) -> ProtocolError {
    ProtocolError::BadControl { kind, why: "is too short" }
}

const HELLO: u8 = 1;
const CREDIT: u8 = 2;
const GOAWAY: u8 = 3;
const CANCEL: u8 = 4;
const CANCELLED: u8 = 5;
const CHECKSUMS: u8 = 6;

/// The number of bytes kept of a GOAWAY text.
const GOAWAY_TEXT_LEN_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn check_round_trip(control: Control) {
        let (header, content) = control.encode();
        assert_eq!(header.len as usize, content.len());
        assert_eq!(Control::decode(header.id, content.into()), Ok(Some(control)));
    }

    #[test]
    fn control_frames_round_trip() {
        check_round_trip(Control::Hello(Hello::new(&Config::default())));
        check_round_trip(Control::Credit { id: 7, len: u32::MAX });
        check_round_trip(Control::GoAway(GoAway { code: GoAway::AGE, text: "an hour old".into() }));
        let packet = PacketName { id: 7, operation: Operation::new(20).unwrap() };
        check_round_trip(Control::Cancel(packet));
        check_round_trip(Control::Checksums);
        check_round_trip(Control::Cancelled(PacketName { operation: Operation::EXTENDED, ..packet }));
    }

    #[test]
    fn unknown_kinds_and_empty_frames_are_ignored() {
        assert_eq!(Control::decode(0, Bytes::new()), Ok(None));
        assert_eq!(Control::decode(0, Bytes::from_static(&[200, 1, 2])), Ok(None));
    }

    #[test]
    fn trailing_bytes_are_ignored_and_short_bodies_rejected() {
        let cancel = Control::decode(7, Bytes::from_static(&[CANCEL, 0, 20, 99])).unwrap();
        assert_eq!(cancel, Some(Control::Cancel(PacketName { id: 7, operation: Operation::new(20).unwrap() })));
        for content in [&[CANCEL, 0][..], &[CREDIT, 0, 0, 1], &[CANCELLED], &[GOAWAY], &[HELLO]] {
            assert!(Control::decode(7, Bytes::copy_from_slice(content)).is_err(), "{content:?}");
        }
    }

    #[test]
    fn protocol_packets_cannot_be_cancelled() {
        assert_eq!(Control::decode(7, Bytes::from_static(&[CANCEL, 0, 2])), Ok(None));
    }
}
