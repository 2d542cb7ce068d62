//! All cases of `messages.json`.

use std::fmt::Debug;

use awkward::vectors::{
    Choice, Empty, Enums, Leaf, MapKeys, MapValues, Number, Ordering, Outer, Range, Repeated, Scalars, Text, Total,
    Tree, Wrapper,
    outer::{Middle, middle::Inner},
};
use bytes::Bytes;
use frpc::codec::{self, DecodedContent, Failure, Message};
use serde_json::Value;

use crate::{json::FromJson, plain, read, round_trip, unhex};

/// Calls a function for the message with this name.
macro_rules! for_message {
    ($name:expr, $function:ident($($argument:expr),*)) => {
        match $name {
            "vectors.Choice" => $function::<Choice>($($argument),*),
            "vectors.Empty" => $function::<Empty>($($argument),*),
            "vectors.Enums" => $function::<Enums>($($argument),*),
            "vectors.Leaf" => $function::<Leaf>($($argument),*),
            "vectors.MapKeys" => $function::<MapKeys>($($argument),*),
            "vectors.MapValues" => $function::<MapValues>($($argument),*),
            "vectors.Number" => $function::<Number>($($argument),*),
            "vectors.Ordering" => $function::<Ordering>($($argument),*),
            "vectors.Outer" => $function::<Outer>($($argument),*),
            "vectors.Outer.Middle" => $function::<Middle>($($argument),*),
            "vectors.Outer.Middle.Inner" => $function::<Inner>($($argument),*),
            "vectors.Range" => $function::<Range>($($argument),*),
            "vectors.Repeated" => $function::<Repeated>($($argument),*),
            "vectors.Scalars" => $function::<Scalars>($($argument),*),
            "vectors.Text" => $function::<Text>($($argument),*),
            "vectors.Total" => $function::<Total>($($argument),*),
            "vectors.Tree" => $function::<Tree>($($argument),*),
            "vectors.Wrapper" => $function::<Wrapper>($($argument),*),
            name => panic!("the vectors have a new message: {name}"),
        }
    };
}
pub(crate) use for_message;

#[test]
fn messages_match_the_bytes_of_go() {
    let cases = cases("encode");
    assert_eq!(cases.len(), 51);
    for case in &cases {
        for_message!(text(case, "message"), check_encode(case));
    }
}

fn check_encode<M: Message + FromJson + PartialEq + Debug>(case: &Value) {
    let (name, bytes) = (text(case, "name"), unhex(text(case, "hex")));
    let message = M::from_json(&case["json"]);
    assert_eq!(read::<M>(&bytes).as_ref(), Ok(&message), "{name}");
    let written = round_trip(&message);
    assert_eq!(written, plain(&message), "{name}: Go's messages need no trailer");
    // prost stores the number, so an alias is written as the first name.
    if name != "enums_alias_second_name" {
        assert_eq!(written, bytes, "{name}");
    }
}

#[test]
fn vectors_are_decoded_or_rejected_as_stated() {
    let cases = cases("decode");
    assert_eq!(cases.len(), 45);
    for case in &cases {
        for_message!(text(case, "message"), check_decode(case));
    }
}

fn check_decode<M: Message + FromJson + PartialEq + Debug>(case: &Value) {
    let (name, bytes) = (text(case, "name"), unhex(text(case, "hex")));
    let decoded = codec::decode::<M>(&bytes);
    match (text(case, "expect"), &decoded) {
        ("accept", Ok(_)) | ("either", Ok(_)) => {}
        ("reject", Err(_)) | ("either", Err(_)) => return,
        (expected, _) => panic!("{name}: {expected}, not {decoded:?}"),
    }
    if let Some(json) = case.get("json") {
        let expected = match case.get("error") {
            Some(text) => DecodedContent::Error(Failure { text: String::from_json(text), code: None }),
            None => DecodedContent::Message(M::from_json(json)),
        };
        assert_eq!(decoded, Ok(expected), "{name}");
    }
}

#[test]
fn ambiguous_vectors_are_rejected_with_two_exceptions() {
    let accepted: Vec<_> = cases("decode")
        .iter()
        .filter(|case| text(case, "expect") == "either")
        .filter(|case| for_message!(text(case, "message"), is_accepted(case)))
        .map(|case| text(case, "name").to_owned())
        .collect();
    assert_eq!(accepted, ["varint_excess_bits", "enum_out_of_range"]);
}

fn is_accepted<M: Message>(case: &Value) -> bool {
    codec::decode::<M>(&unhex(text(case, "hex"))).is_ok()
}

#[test]
fn unknown_positions_of_go_round_trip() {
    let bytes = unhex("08000a630a630a630a63020c0a0a010c020a63");
    let enums: Enums = read(&bytes).expect("accepted");
    assert_eq!(enums.color, 99);
    assert_eq!(codec::encode(&enums), bytes);
    // One value more than declared here. Its position equals the number of another value.
    let bytes = unhex("08000a000a0a0a000a07020c0a0a00");
    let enums: Enums = read(&bytes).expect("accepted");
    assert_eq!(codec::encode(&enums), bytes);
    assert_ne!((enums.sparse, enums.level), (10, 7));
}

#[test]
fn no_prefix_is_a_complete_message() {
    for case in &cases("encode") {
        for_message!(text(case, "message"), check_prefixes(case));
    }
}

fn check_prefixes<M: Message + Debug>(case: &Value) {
    let bytes = unhex(text(case, "hex"));
    for len in 0..bytes.len() {
        let decoded = codec::decode::<M>(&bytes.slice(..len));
        assert!(decoded.is_err(), "{}, {len} bytes: {decoded:?}", text(case, "name"));
    }
}

#[test]
fn bytes_after_a_message_are_ignored() {
    for case in &cases("encode") {
        for_message!(text(case, "message"), check_followed(case));
    }
}

fn check_followed<M: Message + PartialEq + Debug>(case: &Value) {
    let bytes = unhex(text(case, "hex"));
    // The last ones start like a trailer, but none of them is a valid trailer for this message.
    let followers =
        ["00", "deadbeef", "1f", "1f01", "1f0101", "1f01ffffffffffffffffffff7f", "1f010000", "1f0101ff7f00"];
    for follower in followers {
        let followed: Bytes = [bytes.clone(), unhex(follower)].concat().into();
        assert_eq!(read::<M>(&followed), read(&bytes), "{} and {follower}", text(case, "name"));
    }
}

pub(crate) fn cases(direction: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../../../vectors/messages.json")).expect("JSON");
    file[direction].as_array().expect("a list of cases").clone()
}

pub(crate) fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_else(|| panic!("{case} has no {name}"))
}
