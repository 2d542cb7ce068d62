//! Packet headers in both formats, and the meaning of operation numbers.
//!
//! ```text
//! Magic10   00 0f | id | op | length u32        Plain8   id | op | length u32
//! ```

use bytes::BufMut;

use crate::{Operation, ProtocolError};

/// The header format of a connection. The formats do not interoperate and are not negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderFormat {
    /// Ten bytes that start with the magic number `00 0f`: frisbee-go 0.11 and later.
    Magic10,
    /// Eight bytes without a magic number: frisbee-go up to 0.10.
    Plain8,
}

impl HeaderFormat {
    /// The format used when a choice or a byte count is needed before the peer has shown its format.
    pub const FALLBACK: Self = Self::Magic10;

    /// Returns the number of bytes in a header.
    pub const fn header_len(self) -> usize {
        match self {
            Self::Magic10 => 10,
            Self::Plain8 => 8,
        }
    }

    /// Returns the bytes this format takes from the longer layout.
    #[inline]
    pub(super) fn part(self, layout: &[u8; 10]) -> &[u8] {
        &layout[10 - self.header_len()..]
    }

    /// Detects the format from the first two bytes of a connection. An 8-byte header with id 15 in the first
    /// packet would be mistaken for the longer format; known peers start with id 0 or 1.
    pub(super) fn detect(first: [u8; 2]) -> Self {
        if first == MAGIC { Self::Magic10 } else { Self::Plain8 }
    }
}

/// The meaning of an operation number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A heartbeat. The peer answers it with a PONG.
    Ping,
    /// The answer to a PING. It needs no answer.
    Pong,
    /// Data of a stream, or its close if the content is empty.
    Stream,
    /// A frame about the connection, between extended peers.
    Control,
    /// An application packet for extended peers only.
    Extended,
    /// A piece of a content, between extended peers.
    Piece,
    /// Reserved for future versions of the protocol. Dropped.
    Reserved,
    /// A packet with an operation of the application.
    Application(Operation),
}

impl FrameKind {
    /// Returns the meaning of `number`.
    pub const fn of(number: u16) -> Self {
        match (number, Operation::new(number)) {
            (_, Some(operation)) => Self::Application(operation),
            (PING, _) => Self::Ping,
            (PONG, _) => Self::Pong,
            (STREAM, _) => Self::Stream,
            (CONTROL, _) => Self::Control,
            (EXTENDED, _) => Self::Extended,
            (PIECE, _) => Self::Piece,
            _ => Self::Reserved,
        }
    }
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The id of the packet or stream.
    pub id: u16,
    /// The operation number, possibly reserved.
    pub operation: u16,
    /// The number of content bytes after the header.
    pub len: u32,
}

impl Header {
    pub(super) const PING: Self = Self { id: 0, operation: PING, len: 0 };
    pub(super) const PONG: Self = Self { id: 0, operation: PONG, len: 0 };

    pub(super) const fn stream(id: u16, len: u32) -> Self {
        Self { id, operation: STREAM, len }
    }

    pub(super) const fn control(id: u16, len: u32) -> Self {
        Self { id, operation: CONTROL, len }
    }

    pub(super) const fn piece(id: u16, len: u32) -> Self {
        Self { id, operation: PIECE, len }
    }

    /// Encodes the header.
    pub fn encode(self, format: HeaderFormat, out: &mut impl BufMut) {
        out.put_slice(format.part(&self.layout()));
    }

    /// Returns the header in the longer format. The shorter one is its [last part](HeaderFormat::part).
    #[inline]
    pub(super) fn layout(self) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2..4].copy_from_slice(&self.id.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.operation.to_be_bytes());
        bytes[6..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Decodes the header at the start of `bytes`. Returns `None` if it is incomplete.
    ///
    /// A wrong magic number is an error after two bytes.
    pub fn decode(format: HeaderFormat, bytes: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let fields = match (format, bytes) {
            (HeaderFormat::Plain8, _) => bytes,
            (HeaderFormat::Magic10, [a, b, rest @ ..]) if [*a, *b] == MAGIC => rest,
            (HeaderFormat::Magic10, [a, b, ..]) => {
                return Err(ProtocolError::BadMagic { found: u16::from_be_bytes([*a, *b]) });
            }
            (HeaderFormat::Magic10, _) => return Ok(None),
        };
        let Some(&[i0, i1, o0, o1, l0, l1, l2, l3]) = fields.first_chunk::<8>() else { return Ok(None) };
        Ok(Some(Self {
            id: u16::from_be_bytes([i0, i1]),
            operation: u16::from_be_bytes([o0, o1]),
            len: u32::from_be_bytes([l0, l1, l2, l3]),
        }))
    }

    /// Returns the meaning of the operation number.
    pub const fn kind(self) -> FrameKind {
        FrameKind::of(self.operation)
    }
}

const MAGIC: [u8; 2] = [0x00, 0x0f];

const PING: u16 = 0;
const PONG: u16 = 1;
const STREAM: u16 = 2;
pub(super) const CONTROL: u16 = 3;
const EXTENDED: u16 = Operation::EXTENDED.number();
const PIECE: u16 = 5;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::proto) fn encoded(header: Header, format: HeaderFormat) -> Vec<u8> {
        let mut out = Vec::new();
        header.encode(format, &mut out);
        out
    }

    #[test]
    fn headers_are_laid_out_as_in_the_specification() {
        let header = Header { id: 7, operation: 20, len: 2 };
        assert_eq!(encoded(header, HeaderFormat::Magic10), [0, 0x0f, 0, 7, 0, 20, 0, 0, 0, 2]);
        assert_eq!(encoded(header, HeaderFormat::Plain8), [0, 7, 0, 20, 0, 0, 0, 2]);
        assert_eq!(encoded(Header::PING, HeaderFormat::Plain8), [0; 8]);
        assert_eq!(encoded(Header::PONG, HeaderFormat::Magic10), [0, 0x0f, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(encoded(Header::stream(3, 0), HeaderFormat::Plain8), [0, 3, 0, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn every_header_decodes_as_it_was_encoded() {
        let lens = (0..32).flat_map(|bit| [(1_u32 << bit) - 1, 1 << bit]).chain([u32::MAX]);
        let of_numbers = (0..=u16::MAX).map(|number| Header { id: number, operation: !number, len: number.into() });
        let of_lens = lens.map(|len| Header { id: 1, operation: 10, len });
        for header in of_numbers.chain(of_lens) {
            for format in [HeaderFormat::Magic10, HeaderFormat::Plain8] {
                let bytes = encoded(header, format);
                assert_eq!(Header::decode(format, &bytes), Ok(Some(header)));
                assert_eq!(Header::decode(format, &bytes[..bytes.len() - 1]), Ok(None));
            }
        }
    }

    #[test]
    fn a_wrong_magic_number_is_detected_at_its_second_byte() {
        assert_eq!(Header::decode(HeaderFormat::Magic10, &[0x47]), Ok(None));
        let found = Header::decode(HeaderFormat::Magic10, b"GE");
        assert_eq!(found, Err(ProtocolError::BadMagic { found: 0x4745 }));
    }

    #[test]
    fn every_operation_number_has_one_kind() {
        assert_eq!(FrameKind::of(0), FrameKind::Ping);
        assert_eq!(FrameKind::of(1), FrameKind::Pong);
        assert_eq!(FrameKind::of(2), FrameKind::Stream);
        assert_eq!(FrameKind::of(3), FrameKind::Control);
        assert_eq!(FrameKind::of(4), FrameKind::Extended);
        assert_eq!(FrameKind::of(5), FrameKind::Piece);
        for number in 6..10 {
            assert_eq!(FrameKind::of(number), FrameKind::Reserved);
        }
        assert!(matches!(FrameKind::of(10), FrameKind::Application(operation) if operation.number() == 10));
        assert!(matches!(FrameKind::of(u16::MAX), FrameKind::Application(_)));
    }
}
