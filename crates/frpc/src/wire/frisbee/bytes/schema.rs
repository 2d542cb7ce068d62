//! Descriptions of a method's messages, exchanged by extended peers.
//!
//! ```text
//!   DESCRIPTION = field…       field = tag u8 | length u32 | value
//! ```

use std::ptr;

use bytes::{Buf, BufMut, Bytes};
use frpc_schema::{
    compat::{Declarations, DeclaredMessage, MessageMismatch, MessageRole, PeerRole, find_mismatch, narrowing},
    decode_descriptors, excerpt,
    prost_types::FileDescriptorSet,
};
use prost::Message as _;

use super::hello::{put_head, take_field};
use crate::call::method::{Method, MethodTypes};

/// The messages of a method as described by a peer.
#[derive(Debug)]
pub(crate) struct MethodDescription {
    request: String,
    response: String,
    declared: FileDescriptorSet,
    /// True if requests may lose values at the peer.
    accepts_narrowing: bool,
}

/// A reportable difference between the messages of two peers.
#[derive(Debug, PartialEq)]
pub(crate) struct MessageDifference {
    pub(crate) text: String,
    /// True if calls are made despite the difference.
    pub(crate) is_accepted: bool,
}

/// Describes the messages of a method. `None` if their types are unknown or the description is too long.
pub(crate) fn describe(method: &Method, accepts_narrowing: bool) -> Option<Bytes> {
    let MethodTypes { request, response } = method.types?;
    let own = decode_descriptors(request.descriptors).ok()?;
    let declared = if ptr::eq(request.descriptors, response.descriptors) {
        excerpt(&own, &[request.name, response.name])
    } else {
        let mut both = excerpt(&own, &[request.name]);
        both.file.extend(excerpt(&decode_descriptors(response.descriptors).ok()?, &[response.name]).file);
        both
    };
    let mut out = Vec::new();
    let values = [request.name.as_bytes(), response.name.as_bytes(), &declared.encode_to_vec()];
    for (tag, value) in [REQUEST, RESPONSE, DESCRIPTORS].into_iter().zip(values) {
        put_head(&mut out, tag, value.len());
        out.put_slice(value);
    }
    if accepts_narrowing {
        put_head(&mut out, ACCEPTS_NARROWING, 1);
        out.put_u8(1);
    }
    (out.len() <= DESCRIPTION_LEN_MAX).then(|| out.into())
}

impl MethodDescription {
    /// Decodes a description. `None` if it contains nothing to compare.
    pub(crate) fn decode(mut input: Bytes) -> Option<Self> {
        // Decoded descriptors take many times the memory of their bytes.
        if input.len() > DESCRIPTION_LEN_MAX {
            return None;
        }
        let (mut request, mut response, mut declared) = (None, None, None);
        let mut accepts_narrowing = false;
        while input.has_remaining() {
            let (tag, value) = take_field(&mut input)?;
            match tag {
                REQUEST => request = Some(String::from_utf8_lossy(&value).into_owned()),
                RESPONSE => response = Some(String::from_utf8_lossy(&value).into_owned()),
                ACCEPTS_NARROWING => accepts_narrowing = value[..] == [1],
                DESCRIPTORS => declared = Some(FileDescriptorSet::decode(value).ok()?),
                _ => {}
            }
        }
        Some(Self { request: request?, response: response?, declared: declared?, accepts_narrowing })
    }

    /// Compares the messages of a server's method with those of this side.
    ///
    /// Returns a difference if they do not fit or lose values. A difference that refuses calls takes precedence.
    pub(crate) fn difference(&self, method: &Method, accepts_narrowing: bool) -> Option<MessageDifference> {
        let MethodTypes { request, response } = method.types?;
        let theirs = Declarations::of(&self.declared);
        let messages = [
            ("request", MessageRole::Request, request, &self.request, self.accepts_narrowing, "the server"),
            ("response", MessageRole::Response, response, &self.response, accepts_narrowing, "this side"),
        ];
        let differences = messages.into_iter().filter_map(|(which, part, own, name, is_accepted, reader)| {
            let set = decode_descriptors(own.descriptors).ok()?;
            let ours = Declarations::of(&set);
            let here = DeclaredMessage { declarations: &ours, name: own.name };
            let there = DeclaredMessage { declarations: &theirs, name };
            let describe = |found: MessageMismatch| {
                format!("the {which} of {method} does not fit that of the server, at {}: {found}", found.path)
            };
            if let Some(misfit) = find_mismatch(here, there, PeerRole::Server, part) {
                return Some(MessageDifference { text: describe(misfit), is_accepted: false });
            }
            let text = describe(narrowing(here, there, PeerRole::Server, part)?);
            let advice = format!(", unless {reader} sets `accept_narrowing(true)`");
            Some(MessageDifference { text: if is_accepted { text } else { text + &advice }, is_accepted })
        });
        differences.min_by_key(|difference| difference.is_accepted)
    }
}

const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const DESCRIPTORS: u8 = 3;
const ACCEPTS_NARROWING: u8 = 4;

/// The maximum length of a description. Methods that need more are not described, and longer descriptions are not read.
pub(crate) const DESCRIPTION_LEN_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use frpc_schema::prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};

    use super::*;
    use crate::call::method::MessageType;

    /// Returns descriptors of a message `t.M` with this many fields. Field names have 20 bytes.
    fn descriptors(fields: i32) -> &'static [u8] {
        let field = |number| FieldDescriptorProto {
            name: Some(format!("a_field_{number:012}")),
            number: Some(number),
            r#type: Some(9),
            ..FieldDescriptorProto::default()
        };
        let message = DescriptorProto {
            name: Some("M".to_owned()),
            field: (1..=fields).map(field).collect(),
            ..DescriptorProto::default()
        };
        let package = Some("t".to_owned());
        let file = FileDescriptorProto { package, message_type: vec![message], ..FileDescriptorProto::default() };
        FileDescriptorSet { file: vec![file] }.encode_to_vec().leak()
    }

    fn method(descriptors: &'static [u8]) -> Method {
        let message = Box::leak(Box::new(MessageType::new("t.M", 1, descriptors)));
        Method::unary("t.T", "Do", 10).with_types(message, message)
    }

    #[test]
    fn a_description_round_trips_and_matches_itself() {
        let method = method(descriptors(3));
        let description = MethodDescription::decode(describe(&method, false).unwrap()).unwrap();
        assert_eq!((&*description.request, &*description.response), ("t.M", "t.M"));
        assert_eq!(description.declared.file[0].message_type[0].field.len(), 3);
        assert_eq!(description.difference(&method, false), None);
    }

    #[test]
    fn descriptions_are_limited_in_length() {
        // 26 bytes per field, 27 with a number above 15, 28 with a number above 127. So lengths grow in steps of 28 or
        // 29.
        let longest =
            (2000..3000).rev().find(|&fields| describe(&method(descriptors(fields)), false).is_some()).unwrap();
        let len = describe(&method(descriptors(longest)), false).unwrap().len();
        assert!((DESCRIPTION_LEN_MAX - 40..=DESCRIPTION_LEN_MAX).contains(&len), "{len}");
        assert!(describe(&method(descriptors(longest + 1)), false).is_none());
        let padded = |len: usize| {
            let mut out = describe(&method(descriptors(1)), false).unwrap().to_vec();
            let padding = len - out.len() - 5;
            put_head(&mut out, 99, padding);
            out.resize(len, 0);
            Bytes::from(out)
        };
        assert!(MethodDescription::decode(padded(DESCRIPTION_LEN_MAX)).is_some());
        assert!(MethodDescription::decode(padded(DESCRIPTION_LEN_MAX + 1)).is_none());
    }

    #[test]
    fn a_method_without_descriptors_is_never_compared() {
        assert!(describe(&Method::unary("t.T", "Do", 10), false).is_none());
        assert!(describe(&method(b"no descriptors"), false).is_none());
        let description = MethodDescription::decode(describe(&method(descriptors(1)), false).unwrap()).unwrap();
        assert_eq!(description.difference(&method(b"no descriptors"), false), None);
        assert_eq!(description.difference(&Method::unary("t.T", "Do", 10), false), None);
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let whole = describe(&method(descriptors(1)), false).unwrap();
        for len in 0..whole.len() {
            assert!(MethodDescription::decode(whole.slice(..len)).is_none(), "{len}");
        }
    }
}
