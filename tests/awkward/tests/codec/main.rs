//! The codec with generated code, compared with the bytes of the Go implementation and with its own guarantees.

mod any_types;
mod dynamic;
mod enums;
mod errors;
mod formats;
mod groups;
mod json;
mod json_hostile;
mod json_oracle;
mod lossless;
mod masks;
mod memory;
mod paged;
mod polyglot;
mod properties;
mod proto_json;
mod proto_memory;
mod required;
mod services;
mod slices;
mod stack;
mod vectors;
mod well_known;

use std::fmt::Debug;

use bytes::Bytes;
use frpc::codec::{self, CountingSink, DecodeError, DecodedContent, Message, Writer};

/// Encodes a message. Asserts that its length equals the computed one and that decoding restores it.
fn round_trip<M: Message + PartialEq + Debug>(message: &M) -> Bytes {
    let mut counter = Writer::new(CountingSink::default());
    counter.root(message);
    let bytes = codec::encode(message);
    assert_eq!(counter.finish().len(), bytes.len(), "{message:?}");
    assert_eq!(read::<M>(&bytes).as_ref(), Ok(message), "{}", hex(&bytes));
    bytes
}

/// Encodes a message without the trailer, like a Go peer.
fn plain<M: Message>(message: &M) -> Bytes {
    let mut out = Writer::new(Vec::new());
    out.message(message);
    out.finish().into()
}

fn read<M: Message>(bytes: &Bytes) -> Result<M, DecodeError> {
    codec::decode(bytes).map(|content| match content {
        DecodedContent::Message(message) => message,
        DecodedContent::Error(failure) => panic!("an error instead of a message: {}", failure.text),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Bytes {
    text.as_bytes()
        .chunks(2)
        .map(|digits| {
            let digits = std::str::from_utf8(digits).expect("hexadecimal is ASCII");
            u8::from_str_radix(digits, 16).expect("two digits for each byte")
        })
        .collect()
}
