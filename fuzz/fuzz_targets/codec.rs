//! Decodes any bytes as any message. Nothing panics or exceeds the time and memory limits of libFuzzer. Accepted input
//! has a single stable encoding.
#![no_main]

use bytes::Bytes;
use frisbee_fuzz::fuzz_target;
use frpc::codec::{self, DecodeErrorKind, DecodedContent, Message};

#[allow(dead_code, reason = "more is generated than is used here")]
mod vectors {
    frpc::include_proto!("vectors");
}

/// Messages with gaps between field numbers, all kinds of nesting, and hundreds of fields.
#[allow(dead_code, clippy::large_enum_variant, reason = "as above")]
mod hostile {
    frpc::include_proto!("codec.hostile");
}

use hostile::{Holder, Nest, Rows, Wide};
use vectors::{
    Choice, Empty, Enums, Leaf, MapKeys, MapValues, Number, Ordering, Outer, Range, Repeated, Scalars, Text, Total,
    Tree, Wrapper,
    outer::{Middle, middle::Inner},
};

fuzz_target!(|input: &[u8]| {
    let input = Bytes::copy_from_slice(input);
    check::<Choice>(&input);
    check::<Empty>(&input);
    check::<Enums>(&input);
    check::<Inner>(&input);
    check::<Leaf>(&input);
    check::<MapKeys>(&input);
    check::<MapValues>(&input);
    check::<Middle>(&input);
    check::<Number>(&input);
    check::<Ordering>(&input);
    check::<Outer>(&input);
    check::<Range>(&input);
    check::<Repeated>(&input);
    check::<Scalars>(&input);
    check::<Text>(&input);
    check::<Total>(&input);
    check::<Tree>(&input);
    check::<Wrapper>(&input);
    check::<Holder>(&input);
    check::<Nest>(&input);
    check::<Rows>(&input);
    check::<Wide>(&input);
});

fn check<M: Message>(input: &Bytes) {
    match codec::decode::<M>(input) {
        Ok(DecodedContent::Message(message)) => {
            let bytes = codec::encode(&message);
            match codec::decode::<M>(&bytes) {
                Ok(DecodedContent::Message(again)) => {
                    assert_eq!(codec::encode(&again), bytes, "{} comes back as another one", M::NAME);
                }
                // A shorter input may take less memory: ignored bytes are gone.
                Err(error) if matches!(error.kind(), DecodeErrorKind::TooMuchMemory { .. }) => {
                    assert!(bytes.len() < input.len(), "{error}");
                }
                other => panic!("{} does not read what it wrote: {:?}", M::NAME, other.map(drop)),
            }
        }
        Ok(DecodedContent::Error(failure)) => {
            let bytes = codec::encode_error(&failure.text, failure.code);
            assert!(matches!(codec::decode::<M>(&bytes), Ok(DecodedContent::Error(again)) if again == failure));
        }
        Err(error) => assert!(error.path().starts_with(M::NAME), "{error}"),
    }
}
