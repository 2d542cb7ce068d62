//! Any bytes as any message: nothing panics, and what is accepted has one encoding that is stable.
#![no_main]

use bytes::Bytes;
use frpc::codec::{self, Content, Message};
use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "more is generated than is used here")]
mod vectors {
    frpc::include_proto!("vectors");
}

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
});

fn check<M: Message>(input: &Bytes) {
    match codec::decode::<M>(input) {
        Ok(Content::Message(message)) => {
            let bytes = codec::encode(&message);
            let Ok(Content::Message(again)) = codec::decode::<M>(&bytes) else {
                panic!("{} does not read what it wrote", M::NAME)
            };
            assert_eq!(codec::encode(&again), bytes, "{} comes back as another one", M::NAME);
        }
        Ok(Content::Error(failure)) => {
            let bytes = codec::encode_error(&failure.text, failure.code);
            assert!(matches!(codec::decode::<M>(&bytes), Ok(Content::Error(again)) if again == failure));
        }
        Err(error) => assert!(error.path().starts_with(M::NAME), "{error}"),
    }
}
