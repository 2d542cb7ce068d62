//! Parses any bytes as the JSON of any message. Nothing panics or exceeds the time and memory limits of libFuzzer.
//! Accepted input has a single stable text.
#![no_main]

use frisbee_fuzz::fuzz_target;
use frpc::codec::json::{self, ErrorKind, Message};

#[allow(dead_code, reason = "more is generated than is used here")]
mod vectors {
    frpc::include_proto!("vectors");
}

/// Messages with gaps between field numbers, all kinds of nesting, and hundreds of fields.
#[allow(dead_code, clippy::large_enum_variant, reason = "as above")]
mod hostile {
    frpc::include_proto!("codec.hostile");
}

/// Messages with every kind of field, and the well-known types.
#[allow(dead_code, reason = "as above")]
mod shapes {
    frpc::include_proto!("names.shapes");
}

use hostile::{Nest, Wide};
use shapes::{Choices, Lists, Maps, Optionals, Tree, WellKnown};
use vectors::{Enums, Ordering, Scalars};

fuzz_target!(|input: &[u8]| {
    check::<Scalars>(input);
    check::<Enums>(input);
    check::<Ordering>(input);
    check::<Optionals>(input);
    check::<Choices>(input);
    check::<Lists>(input);
    check::<Maps>(input);
    check::<Tree>(input);
    check::<WellKnown>(input);
    check::<Nest>(input);
    check::<Wide>(input);
});

fn check<M: Message>(input: &[u8]) {
    match json::from_slice::<M>(input) {
        Ok(message) => {
            let text = json::to_vec(&message).expect("what was read can be written");
            match json::from_slice::<M>(&text) {
                Ok(again) => {
                    let again = json::to_vec(&again).expect("as before");
                    // A `NullValue` is written as null whatever its number, and null is 0, as in protojson.
                    let without_null = text == br#"{"null":null}"# && again == b"{}"
                        || [&b",\"null\":null"[..], b"\"null\":null,"].iter().any(|null| without(&text, null) == again);
                    assert!(again == text || without_null, "{} comes back as another one", M::NAME);
                }
                // A shorter text may take less memory: ignored text is gone.
                Err(error) if matches!(error.kind(), ErrorKind::TooMuchMemory { .. }) => {
                    assert!(text.len() < input.len(), "{error}");
                }
                Err(error) => panic!("{} does not read what it wrote: {error}", M::NAME),
            }
        }
        Err(error) => assert!(error.position().is_some_and(|position| position <= input.len()), "{error}"),
    }
}

/// Returns a text without the first occurrence of a part.
fn without(text: &[u8], part: &[u8]) -> Vec<u8> {
    let at = text.windows(part.len()).position(|window| window == part);
    at.map_or_else(|| text.to_vec(), |at| [&text[..at], &text[at + part.len()..]].concat())
}
