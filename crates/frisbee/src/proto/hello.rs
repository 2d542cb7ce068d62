//! HELLO, the first frame between extended peers: version, features and limits.
//!
//! ```text
//!   HELLO = 01 | version u8 | field…        field = tag u8 | length u32 | value
//! ```

use std::{fmt, sync::Arc};

use bytes::{Buf, BufMut, Bytes};

use super::credit::initial_window;
use crate::{Config, ProtocolError};

/// The features and limits announced by one side of a connection.
///
/// An application can add a named part, for example a table of its methods.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hello {
    /// The supported features.
    pub features: Features,
    /// The largest accepted content in bytes.
    pub content_len_max: u32,
    /// The maximum number of streams, if announced.
    pub streams_max: Option<u32>,
    /// The initial credit of a stream, if the side gives credit.
    pub window: Option<u32>,
    /// The size of an accepted burst of CANCEL frames, if any are accepted.
    pub cancel_burst: Option<u32>,
    parts: Vec<(Bytes, Bytes)>,
}

/// A set of features. A connection uses the features supported by both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u32);

/// The protocol of the peer, as far as known.
///
/// ```text
///   connecting side: Unknown ──HELLO──▶ Extended,  Unknown ──PONG──▶ Plain
///   accepting side:  Unknown ──first frame, a HELLO──▶ Extended,  Unknown ──any other──▶ Plain
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerProtocol {
    /// Not known yet.
    Unknown,
    /// The plain protocol, like frisbee-go.
    Plain,
    /// The extended protocol, with this HELLO.
    Extended(Arc<Hello>),
}

impl PeerProtocol {
    /// Returns the HELLO of an extended peer.
    pub fn hello(&self) -> Option<&Arc<Hello>> {
        match self {
            Self::Extended(hello) => Some(hello),
            Self::Unknown | Self::Plain => None,
        }
    }
}

impl Features {
    /// Streams have credit, so a slow reader delays only its own sender.
    pub const CREDIT: Self = Self(1 << 0);
    /// A packet can be withdrawn before its answer.
    pub const CANCEL: Self = Self(1 << 1);
    /// A side can ask for no new packets and streams.
    pub const GOAWAY: Self = Self(1 << 2);
    /// Large contents can arrive in pieces, with other frames in between.
    pub const PIECES: Self = Self(1 << 3);
    /// Frames have checksums. Announced only if configured.
    pub const CHECKSUMS: Self = Self(1 << 4);
    /// A PONG carries the number of handlers in progress on the side of its sender.
    pub const LOAD: Self = Self(1 << 5);
    /// The side closes the connection after a GOAWAY, once it awaits no more answers. Valid even if only one side
    /// announces it.
    pub const LEAVES: Self = Self(1 << 8);

    const ALL: Self = Self(Self::CREDIT.0 | Self::CANCEL.0 | Self::GOAWAY.0 | Self::PIECES.0 | Self::LOAD.0);

    /// Returns `true` if the set contains all of these features.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the union of both sets.
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

impl Hello {
    /// Returns the HELLO for this configuration, without a part of the application.
    pub fn new(config: &Config) -> Self {
        let features = if config.checksums { Features::ALL.with(Features::CHECKSUMS) } else { Features::ALL };
        Self {
            features,
            content_len_max: config.content_len_max,
            streams_max: Some(config.streams_max.try_into().unwrap_or(u32::MAX)),
            window: Some(initial_window(config)),
            cancel_burst: Some(config.cancel_burst),
            parts: Vec::new(),
        }
    }

    /// Adds the part of an application, under a name of at most 255 bytes.
    ///
    /// # Panics
    ///
    /// If the name is longer.
    pub fn with_part(mut self, name: &'static str, part: Bytes) -> Self {
        assert!(name.len() <= u8::MAX.into(), "the name of an application has at most 255 bytes");
        self.parts.push((Bytes::from_static(name.as_bytes()), part));
        self
    }

    /// Returns the part of the application with this name.
    pub fn part(&self, name: &str) -> Option<&Bytes> {
        self.parts.iter().find(|(of, _)| of == name).map(|(_, part)| part)
    }

    /// Encodes the version and all fields.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u8(VERSION);
        let mut numbers = vec![(FEATURES, Some(self.features.0)), (CONTENT_LEN_MAX, Some(self.content_len_max))];
        numbers.extend([(STREAMS_MAX, self.streams_max), (WINDOW, self.window), (CANCEL_BURST, self.cancel_burst)]);
        for (tag, number) in numbers {
            if let Some(number) = number {
                put_head(out, tag, size_of::<u32>());
                out.put_u32(number);
            }
        }
        for (name, part) in &self.parts {
            put_head(out, PART, 1 + name.len() + part.len());
            out.put_u8(name.len().try_into().expect("it was checked when it was added"));
            out.put_slice(name);
            out.put_slice(part);
        }
    }

    /// Decodes the version and all fields. Skips unknown fields in any version.
    pub fn decode(mut input: Bytes) -> Result<Self, ProtocolError> {
        let mut seen = [None; 1 + LAST_NUMBER as usize];
        let mut parts = Vec::new();
        input.try_get_u8().map_err(|_| malformed("has no version"))?;
        while input.has_remaining() {
            let tag = input.get_u8();
            let len = input.try_get_u32().map_err(|_| malformed("ends in the head of a field"))? as usize;
            if input.remaining() < len {
                return Err(malformed("announces a field that is longer than itself"));
            }
            let mut value = input.split_to(len);
            match tag {
                PART => {
                    let name_len = value.try_get_u8().map_err(|_| malformed("has an application without a name"))?;
                    if value.remaining() < name_len.into() {
                        return Err(malformed("has an application whose name is cut off"));
                    }
                    let name = value.split_to(name_len.into());
                    if parts.len() < PARTS_MAX && !parts.iter().any(|(of, _)| *of == name) {
                        // Copied, because they are kept for the life of the connection and would pin a larger
                        // buffer.
                        parts.push((Bytes::copy_from_slice(&name), Bytes::copy_from_slice(&value)));
                    }
                }
                1..=LAST_NUMBER => {
                    let number = value.try_get_u32().map_err(|_| malformed("has a number that is too short"))?;
                    seen[usize::from(tag)].get_or_insert(number);
                }
                _ => {}
            }
        }
        let number = |tag: u8| seen[usize::from(tag)];
        Ok(Self {
            features: Features(number(FEATURES).unwrap_or(0)),
            content_len_max: number(CONTENT_LEN_MAX).unwrap_or(CONTENT_LEN_MAX_UNSAID),
            streams_max: number(STREAMS_MAX),
            window: number(WINDOW),
            cancel_burst: number(CANCEL_BURST),
            parts,
        })
    }
}

/// Shows only the lengths of application parts, which may be large.
impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.parts.iter().map(|(name, part)| (name, part.len())).collect();
        f.debug_struct("Hello")
            .field("features", &self.features)
            .field("content_len_max", &self.content_len_max)
            .field("streams_max", &self.streams_max)
            .field("window", &self.window)
            .field("cancel_burst", &self.cancel_burst)
            .field("parts", &parts)
            .finish()
    }
}

fn put_head(out: &mut impl BufMut, tag: u8, len: usize) {
    out.put_u8(tag);
    out.put_u32(len.try_into().expect("a field is shorter than the frame around it"));
}

fn malformed(why: &'static str) -> ProtocolError {
    ProtocolError::BadControl { kind: "HELLO", why }
}

const VERSION: u8 = 1;

const FEATURES: u8 = 1;
const CONTENT_LEN_MAX: u8 = 2;
const STREAMS_MAX: u8 = 3;
const WINDOW: u8 = 4;
const CANCEL_BURST: u8 = 5;
/// The last tag with a numeric value.
const LAST_NUMBER: u8 = 5;
const PART: u8 = 16;

/// The content limit of a side that announces none.
const CONTENT_LEN_MAX_UNSAID: u32 = 5 * 1024 * 1024;
/// The maximum number of application parts. Further ones are ignored.
const PARTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello::new(&Config::default()).with_part("frpc", Bytes::from_static(b"table"))
    }

    fn encoded(hello: &Hello) -> Vec<u8> {
        let mut out = Vec::new();
        hello.encode(&mut out);
        out
    }

    fn decoded(bytes: impl AsRef<[u8]>) -> Result<Hello, ProtocolError> {
        Hello::decode(Bytes::copy_from_slice(bytes.as_ref()))
    }

    #[test]
    fn hello_round_trips() {
        assert_eq!(decoded(encoded(&hello())), Ok(hello()));
        assert_eq!(hello().part("frpc").unwrap(), "table");
        assert_eq!(hello().part("other"), None);
    }

    #[test]
    fn decoded_parts_do_not_retain_the_read_buffer() {
        let read = decoded(encoded(&hello())).unwrap();
        assert!(read.part("frpc").unwrap().is_unique());
    }

    #[test]
    fn unknown_fields_versions_and_longer_values_are_skipped() {
        let mut bytes = encoded(&hello());
        bytes[0] = 9;
        bytes.extend([77, 0, 0, 0, 2, 1, 2]);
        assert_eq!(decoded(&bytes), Ok(hello()));
        let longer = decoded([1, STREAMS_MAX, 0, 0, 0, 6, 0, 0, 0, 7, 8, 9]).unwrap();
        assert_eq!(longer.streams_max, Some(7));
    }

    #[test]
    fn the_first_of_duplicate_fields_counts() {
        let mut bytes = encoded(&hello());
        bytes.extend([CANCEL_BURST, 0, 0, 0, 4, 0, 0, 0, 1]);
        bytes.extend([PART, 0, 0, 0, 5]);
        bytes.extend(b"\x04frpc");
        assert_eq!(decoded(&bytes), Ok(hello()));
    }

    #[test]
    fn an_empty_hello_has_the_limits_of_a_plain_peer() {
        let hello = decoded([1]).unwrap();
        assert_eq!((hello.content_len_max, hello.streams_max, hello.cancel_burst), (5_242_880, None, None));
        assert!(!hello.features.contains(Features::CANCEL));
    }

    #[test]
    fn a_truncated_hello_is_an_error_or_ends_with_a_field() {
        let bytes = encoded(&hello());
        let whole = (1..bytes.len()).filter(|&len| decoded(&bytes[..len]).is_ok()).collect::<Vec<_>>();
        assert_eq!(whole, [1, 10, 19, 28, 37, 46], "where a field ends");
        assert!(decoded(b"").is_err());
    }
}
