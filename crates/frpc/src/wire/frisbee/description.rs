//! The description that extended peers give each other of the messages of a method.
//!
//! ```text
//!   DESCRIPTION = field…       field = tag u8 | length u32 | value
//! ```

use std::ptr;

use bytes::{Buf, BufMut, Bytes};
use frpc_schema::{
    compat::{Declarations, Declared, Part, Peer, misfit},
    excerpt,
    prost_types::FileDescriptorSet,
};
use prost::Message as _;

use super::remote::{put_head, take_field};
use crate::call::method::{Method, MethodTypes};

/// The messages of a method as a peer describes them.
#[derive(Debug)]
pub(crate) struct Description {
    request: String,
    response: String,
    declared: FileDescriptorSet,
}

/// Returns what this side tells of the messages of a method. `None` if it knows nothing of them, or if it would be too much.
pub(crate) fn describe(method: &Method) -> Option<Bytes> {
    let MethodTypes { request, response } = method.types?;
    let own = FileDescriptorSet::decode(request.descriptors).ok()?;
    let declared = if ptr::eq(request.descriptors, response.descriptors) {
        excerpt(&own, &[request.name, response.name])
    } else {
        let mut both = excerpt(&own, &[request.name]);
        both.file.extend(excerpt(&FileDescriptorSet::decode(response.descriptors).ok()?, &[response.name]).file);
        both
    };
    let mut out = Vec::new();
    let values = [request.name.as_bytes(), response.name.as_bytes(), &declared.encode_to_vec()];
    for (tag, value) in [REQUEST, RESPONSE, DESCRIPTORS].into_iter().zip(values) {
        put_head(&mut out, tag, value.len());
        out.put_slice(value);
    }
    (out.len() <= DESCRIPTION_LEN_MAX).then(|| out.into())
}

impl Description {
    /// Reads what a peer tells. `None` if it tells nothing that could be compared.
    pub(crate) fn decode(mut input: Bytes) -> Option<Self> {
        // Descriptors in memory take many times their bytes.
        if input.len() > DESCRIPTION_LEN_MAX {
            return None;
        }
        let (mut request, mut response, mut declared) = (None, None, None);
        while input.has_remaining() {
            let (tag, value) = take_field(&mut input)?;
            match tag {
                REQUEST => request = Some(String::from_utf8_lossy(&value).into_owned()),
                RESPONSE => response = Some(String::from_utf8_lossy(&value).into_owned()),
                DESCRIPTORS => declared = Some(FileDescriptorSet::decode(value).ok()?),
                _ => {}
            }
        }
        Some(Self { request: request?, response: response?, declared: declared? })
    }

    /// Returns why the messages of a method of a server, which this describes, do not fit those of this side, if they do not.
    pub(crate) fn misfit(&self, method: &Method) -> Option<String> {
        let MethodTypes { request, response } = method.types?;
        let theirs = Declarations::of(&self.declared);
        let messages = [
            ("request", Part::Request, request, &self.request),
            ("response", Part::Response, response, &self.response),
        ];
        messages.into_iter().find_map(|(which, part, own, name)| {
            let set = FileDescriptorSet::decode(own.descriptors).ok()?;
            let ours = Declarations::of(&set);
            let here = Declared { declarations: &ours, name: own.name };
            let there = Declared { declarations: &theirs, name };
            let misfit = misfit(here, there, Peer::Server, part)?;
            Some(format!("the {which} of {method} does not fit that of the server, at {}: {misfit}", misfit.path))
        })
    }
}

const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const DESCRIPTORS: u8 = 3;

/// The bytes of a description. Methods that need more are not described, and longer descriptions not read.
pub(crate) const DESCRIPTION_LEN_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use frpc_schema::prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};

    use super::*;
    use crate::call::method::MessageType;

    /// Returns descriptors of a message `t.M` with this many fields, whose names have 20 bytes.
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
    fn a_description_comes_back_and_fits_itself() {
        let method = method(descriptors(3));
        let description = Description::decode(describe(&method).unwrap()).unwrap();
        assert_eq!((&*description.request, &*description.response), ("t.M", "t.M"));
        assert_eq!(description.declared.file[0].message_type[0].field.len(), 3);
        assert_eq!(description.misfit(&method), None);
    }

    #[test]
    fn a_description_at_the_limit_is_made_and_read_and_a_longer_one_is_neither() {
        // 26 bytes for a field, 27 with a number above 15 and 28 with one above 127: so they grow by 28 or 29.
        let longest = (2000..3000).rev().find(|&fields| describe(&method(descriptors(fields))).is_some()).unwrap();
        let len = describe(&method(descriptors(longest))).unwrap().len();
        assert!((DESCRIPTION_LEN_MAX - 40..=DESCRIPTION_LEN_MAX).contains(&len), "{len}");
        assert!(describe(&method(descriptors(longest + 1))).is_none());
        let padded = |len: usize| {
            let mut out = describe(&method(descriptors(1))).unwrap().to_vec();
            let padding = len - out.len() - 5;
            put_head(&mut out, 99, padding);
            out.resize(len, 0);
            Bytes::from(out)
        };
        assert!(Description::decode(padded(DESCRIPTION_LEN_MAX)).is_some());
        assert!(Description::decode(padded(DESCRIPTION_LEN_MAX + 1)).is_none());
    }

    #[test]
    fn a_method_without_usable_descriptors_is_not_described_and_nothing_is_compared_with_it() {
        assert!(describe(&Method::unary("t.T", "Do", 10)).is_none());
        assert!(describe(&method(b"no descriptors")).is_none());
        let description = Description::decode(describe(&method(descriptors(1))).unwrap()).unwrap();
        assert_eq!(description.misfit(&method(b"no descriptors")), None);
        assert_eq!(description.misfit(&Method::unary("t.T", "Do", 10)), None);
    }

    #[test]
    fn bytes_that_are_no_description_are_none() {
        let whole = describe(&method(descriptors(1))).unwrap();
        for len in 0..whole.len() {
            assert!(Description::decode(whole.slice(..len)).is_none(), "{len}");
        }
    }
}
