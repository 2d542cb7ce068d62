//! The methods and limits of an extended peer, and how to call its methods.
//!
//! ```text
//!   part "frpc" of a HELLO = field…       field = tag u8 | length u32 | value
//!   METHOD = operation u16 | kind u8 | fingerprint of the request | of the response, 16 bytes each | path
//! ```

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};

use crate::{
    call::method::{MessageType, Method, MethodKind},
    codec::Format,
    service::table::{MethodEntry, MethodTable},
};

/// The frpc part of the HELLO of this side.
pub(crate) struct LocalHello<'a> {
    pub(crate) metadata_len_max: u32,
    /// The limit on concurrent unary calls of the peer, if there is one.
    pub(crate) calls_max: Option<u32>,
    /// The default timeout of its calls.
    pub(crate) timeout: Option<Duration>,
    /// The numbers of the supported compression algorithms.
    pub(crate) inflates: Vec<u8>,
    pub(crate) methods: &'a MethodTable,
}

/// The frpc part of the HELLO of an extended peer.
#[derive(Debug)]
pub(crate) struct PeerHello {
    /// The maximum size of the metadata that the peer accepts with a call or an answer.
    pub(crate) metadata_len_max: usize,
    /// The default timeout of its calls.
    pub(crate) timeout: Option<Duration>,
    /// Its limit on concurrent unary calls, if it has announced one.
    pub(crate) calls_max: Option<u32>,
    /// The numbers of the compression algorithms it supports.
    pub(crate) inflates: Bytes,
    /// False if the peer may have discarded the HELLO of this side, because of its limit on contents. It then takes
    /// this side for a plain peer, and drops extended packets from it.
    pub(crate) has_ours: bool,
    /// Sorted by path.
    methods: Vec<RemoteMethod>,
}

/// A method served by the peer.
#[derive(Debug)]
struct RemoteMethod {
    path: Bytes,
    operation: u16,
    kind: u8,
    request: u128,
    response: u128,
}

/// The route for calls of a method to this peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MethodRoute {
    /// In plain packets with the operation of this side. Used for plain peers. On an extended peer, no service has this
    /// operation.
    Plain,
    /// At this operation of the peer, in this format unless the caller has encoded the message in another one.
    Extended { operation: u16, format: Format },
    /// Not at all: the peer has this path with another kind of method, or this operation for another path.
    Missing,
}

impl MethodRoute {
    /// Returns the peer's operation for a call in this format.
    ///
    /// All extended peers accept protocol buffers and JSON. Polyglot requires equal messages on both sides.
    pub(crate) fn operation_in(self, format: Format) -> Option<u16> {
        match self {
            Self::Extended { operation, format: right } if right == format || format != Format::Polyglot => {
                Some(operation)
            }
            Self::Extended { .. } | Self::Plain | Self::Missing => None,
        }
    }
}

impl LocalHello<'_> {
    /// Encodes the part for a HELLO.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        put_head(&mut out, METADATA_LEN_MAX, 4);
        out.put_u32(self.metadata_len_max);
        if let Some(timeout) = self.timeout {
            put_head(&mut out, TIMEOUT, 8);
            out.put_u64(timeout.as_micros().try_into().unwrap_or(u64::MAX));
        }
        if let Some(calls_max) = self.calls_max {
            put_head(&mut out, CALLS_MAX, 4);
            out.put_u32(calls_max);
        }
        if !self.inflates.is_empty() {
            put_head(&mut out, INFLATES, self.inflates.len());
            out.put_slice(&self.inflates);
        }
        for MethodEntry { method, operation, .. } in self.methods.methods() {
            let path = method.path();
            put_head(&mut out, METHOD, METHOD_LEN_MIN + path.len());
            out.put_u16(operation);
            out.put_u8(kind_number(method.kind));
            let [request, response] = fingerprints(method);
            out.put_u128(request);
            out.put_u128(response);
            out.put_slice(path.as_bytes());
        }
        out.into()
    }
}

/// Returns whether a peer with this limit on contents certainly receives the HELLO of this side.
pub(crate) fn is_received(serves: &MethodTable, limit: u32) -> bool {
    let ours =
        LocalHello { metadata_len_max: 0, calls_max: None, timeout: None, inflates: Vec::new(), methods: serves };
    limit >= LIMIT_LARGE || ours.encode().len() + HELLO_LEN_REST <= limit as usize
}

impl PeerHello {
    /// Decodes the part. `None` if it is malformed. Unknown fields are skipped, so later versions can add some.
    pub(crate) fn decode(mut input: Bytes) -> Option<Self> {
        let mut hello = Self {
            metadata_len_max: 0,
            timeout: None,
            calls_max: None,
            inflates: Bytes::new(),
            has_ours: true,
            methods: Vec::new(),
        };
        while input.has_remaining() {
            let (tag, mut value) = take_field(&mut input)?;
            match tag {
                METADATA_LEN_MAX => {
                    let len_max = value.try_get_u32().ok()? as usize;
                    // A name's length field has two bytes, so more is impossible, whatever the peer announces.
                    hello.metadata_len_max = len_max.min(u16::MAX.into());
                }
                TIMEOUT => hello.timeout = Some(Duration::from_micros(value.try_get_u64().ok()?)),
                CALLS_MAX => hello.calls_max = Some(value.try_get_u32().ok()?),
                INFLATES => hello.inflates = value,
                METHOD if value.len() >= METHOD_LEN_MIN => hello.methods.push(RemoteMethod {
                    operation: value.get_u16(),
                    kind: value.get_u8(),
                    request: value.get_u128(),
                    response: value.get_u128(),
                    path: value,
                }),
                METHOD => return None,
                _ => {}
            }
        }
        hello.methods.sort_by(|one, other| one.path.cmp(&other.path));
        Some(hello)
    }

    /// Compares a method with those of the peer.
    pub(crate) fn find(&self, method: &Method) -> MethodRoute {
        let path = method.path();
        let Ok(index) = self.methods.binary_search_by(|served| served.path[..].cmp(path.as_bytes())) else {
            // The operation may belong to something other than a service, unless the peer has given it to another
            // method.
            let is_taken = self.methods.iter().any(|served| served.operation == method.operation);
            return if is_taken { MethodRoute::Missing } else { MethodRoute::Plain };
        };
        let served = &self.methods[index];
        if served.kind != kind_number(method.kind) {
            return MethodRoute::Missing;
        }
        let own = fingerprints(method);
        let agrees = |own, theirs| own == theirs || own == MessageType::UNKNOWN || theirs == MessageType::UNKNOWN;
        let format = match agrees(own[0], served.request) && agrees(own[1], served.response) {
            true => Format::Polyglot,
            false => Format::Proto,
        };
        MethodRoute::Extended { operation: served.operation, format }
    }
}

fn fingerprints(method: &Method) -> [u128; 2] {
    method.types.map_or([MessageType::UNKNOWN; 2], |types| [types.request.fingerprint, types.response.fingerprint])
}

fn kind_number(kind: MethodKind) -> u8 {
    match kind {
        MethodKind::Unary => 0,
        MethodKind::ServerStreaming => 1,
        MethodKind::ClientStreaming => 2,
        MethodKind::Bidirectional => 3,
    }
}

/// Writes the tag and length of a field.
pub(crate) fn put_head(out: &mut Vec<u8>, tag: u8, len: usize) {
    out.put_u8(tag);
    out.put_u32(len.try_into().expect("values are shorter than a packet"));
}

/// Takes a field off the input. `None` if it is truncated.
pub(crate) fn take_field(input: &mut Bytes) -> Option<(u8, Bytes)> {
    let tag = input.try_get_u8().ok()?;
    let len = input.try_get_u32().ok()? as usize;
    (len <= input.remaining()).then(|| (tag, input.split_to(len)))
}

/// The name of the frpc part in a HELLO.
pub(crate) const PART_NAME: &str = "frpc";

const METADATA_LEN_MAX: u8 = 1;
const TIMEOUT: u8 = 2;
const CALLS_MAX: u8 = 3;
const INFLATES: u8 = 4;
const METHOD: u8 = 16;

/// At most the length of a HELLO without the methods.
const HELLO_LEN_REST: usize = 256;
/// A limit on contents above the length of any HELLO: even 10,000 methods need less.
const LIMIT_LARGE: u32 = 1 << 20;
/// The number of bytes of a method before its path.
const METHOD_LEN_MIN: usize = 2 + 1 + 16 + 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_limits_of_peers_are_capped_by_the_protocol() {
        for (said, taken) in [(0, 0), (8192, 8192), (65_535, 65_535), (65_536, 65_535), (u32::MAX, 65_535)] {
            let mut part = Vec::new();
            put_head(&mut part, METADATA_LEN_MAX, 4);
            part.put_u32(said);
            let extended = PeerHello::decode(part.into()).expect("it is whole");
            assert_eq!(extended.metadata_len_max, taken, "{said}");
        }
    }
}
