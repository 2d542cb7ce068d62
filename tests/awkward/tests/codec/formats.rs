//! Formats of generated messages.

use std::{collections::HashMap, fmt::Debug};

use awkward::{golden, names::shapes, other};
use bytes::Bytes;
use frpc::{
    codec::{CodecError, Format, Message},
    prost::{self, Message as _},
};

/// Encodes a message in one of its formats.
fn encode(format: Format, message: &impl Message) -> Bytes {
    format.encode(message).expect("it has the format").into_bytes()
}

#[test]
fn generated_messages_support_protobuf() {
    let words = golden::echo::echo::Words { text: "polly".to_owned() };
    let content = encode(Format::Proto, &words);
    assert_eq!(&content[..], b"\x0a\x05polly");
    assert_eq!(Format::Proto.decode(&content), Ok(words));
}

#[test]
fn generated_messages_have_no_json_by_default() {
    let words = golden::echo::echo::Words { text: "polly".to_owned() };
    assert_eq!(Format::Json.encode(&words), Err(CodecError::Unsupported { message: "Words", format: Format::Json }));
}

#[test]
fn both_formats_are_independent_of_the_rust_types() {
    fn check<A, B>(message: &A)
    where
        A: Message + prost::Message + PartialEq + Debug,
        B: Message + prost::Message,
    {
        let other: B = Format::Proto.decode(&encode(Format::Proto, message)).expect("the fields are the same");
        for format in [Format::Polyglot, Format::Proto] {
            let again = format.decode(&encode(format, &other));
            assert_eq!(again.as_ref(), Ok(message), "{format}");
        }
    }
    let f = HashMap::from([(7, "seven".to_owned()), (-1, String::new())]);
    check::<_, other::names::shapes::Maps>(&shapes::Maps { f, ..shapes::Maps::default() });
    check::<_, other::names::shapes::Lists>(&shapes::Lists {
        f_bytes: vec![b"one".to_vec(), Vec::new(), b"two".to_vec()],
        f_string: vec![String::new()],
        ..shapes::Lists::default()
    });
    let inner = shapes::Choices { all: Some(shapes::choices::All::FEmpty(shapes::Empty {})), single: None };
    let all = Some(shapes::choices::All::FChoices(Box::new(inner)));
    check::<_, other::names::shapes::Choices>(&shapes::Choices { all, single: None });
}

#[test]
fn protobuf_bytes_fields_are_slices_of_the_content() {
    let lists = other::names::shapes::Lists { f_bytes: vec![Bytes::from_static(b"one")], ..Default::default() };
    let content = Bytes::from(lists.encode_to_vec());
    let lists: other::names::shapes::Lists = Format::Proto.decode(&content).expect("it was just written");
    assert!(content.as_ptr_range().contains(&lists.f_bytes[0].as_ptr()));
}
