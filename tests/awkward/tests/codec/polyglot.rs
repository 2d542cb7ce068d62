//! All cases of `polyglot.json` that our writer and reader can express.
//!
//! They write and read the parts of messages. The header of a list or map always comes with its elements. Only headers
//! of size 0 can therefore be written alone, and reading a header without its elements is an error. The only u8 values
//! are flags, always 0. A u16 opens a stream, above the codec. Nil appears only in place of messages and maps.

use std::collections::HashMap;

use bytes::Bytes;
use frpc::codec::{DecodeError, DecodeErrorKind, DecodedContent, Kind, Reader, Writer};
use serde_json::Value;

use crate::{hex, unhex};

#[test]
fn values_match_the_bytes_of_go() {
    let mut left_out = HashMap::new();
    for case in cases("encode") {
        let [name, kind, value, bytes] = ["name", "type", "value", "hex"].map(|name| text(&case, name));
        let mut out = Writer::new(Vec::new());
        if write(&mut out, kind, value) {
            assert_eq!(hex(&out.finish()), bytes, "{name}");
        } else {
            *left_out.entry(kind.to_owned()).or_insert(0) += 1;
        }
    }
    assert_eq!(sorted(left_out), "map_header 22, slice_header 22, u16 12, u8 4");
}

fn write(out: &mut Writer<Vec<u8>>, kind: &str, value: &str) -> bool {
    match kind {
        "nil" => out.message_or_nil::<()>(None::<&()>),
        "bool" => out.bool(parse(value)),
        "u8" if value == "0" => out.message(&()),
        "u32" => out.u32(parse(value)),
        "u64" => out.u64(parse(value)),
        "i32" => out.i32(parse(value)),
        "i64" => out.i64(parse(value)),
        "f32" => out.f32(f32::from_bits(u32::try_from(bits(value)).expect("four bytes"))),
        "f64" => out.f64(f64::from_bits(bits(value))),
        "string" => out.string(value),
        "bytes" => out.bytes(&unhex(value)),
        "error" => out.error(value, None),
        "slice_header" if value == "u32:0" => out.list(Kind::U32, &[], |out, item| out.u32(*item)),
        "map_header" if value == "string:any:0" => out.map(
            (Kind::String, Kind::Any),
            HashMap::new().iter(),
            |out, key: &String| out.string(key),
            |out, value| out.message::<()>(value),
        ),
        "sequence" => {
            let mut values = value.split(' ').map(|value| value.split_once(':').expect("kind and value"));
            return values.all(|(kind, value)| write(out, kind, value));
        }
        _ => return false,
    }
    true
}

#[test]
fn vectors_are_decoded_as_stated() {
    let mut left_out = HashMap::new();
    for case in cases("decode") {
        let [name, kind, expect] = ["name", "type", "expect"].map(|name| text(&case, name));
        let bytes = unhex(text(&case, "hex"));
        let Some(result) = read(kind, &bytes) else {
            *left_out.entry(kind.to_owned()).or_insert(0) += 1;
            continue;
        };
        match (expect, result) {
            ("reject" | "either", Err(_)) => {}
            // The remaining input cannot contain that many elements.
            ("accept", Err(_)) if name == "slice_4g" => {}
            ("accept" | "either", Ok(value)) => {
                assert_eq!(value, case.get("value").map_or("", |value| value.as_str().expect("text")), "{name}");
                let rest = case["rest"].as_u64().expect("how many bytes are left");
                let taken = bytes.slice(..bytes.len() - usize::try_from(rest).expect("a few bytes"));
                assert_eq!(read(kind, &taken), Some(Ok(value)), "{name}: no more than these bytes are needed");
                let short = taken.slice(..taken.len() - 1);
                assert!(matches!(read(kind, &short), Some(Err(_))), "{name}: all of these bytes are needed");
            }
            (_, result) => panic!("{name}: {expect}, not {result:?}"),
        }
    }
    assert_eq!(sorted(left_out), "nil 3, u16 8, u8 3");
}

/// Returns the value in the notation of the vectors, or `None` if our reader cannot read this kind.
fn read(kind: &str, bytes: &Bytes) -> Option<Result<String, DecodeError>> {
    let mut input = Reader::new(bytes);
    Some(match kind {
        "bool" => one(&mut input, Reader::bool).map(|value| value.to_string()),
        "u32" => one(&mut input, Reader::u32).map(|value| value.to_string()),
        "u64" => one(&mut input, Reader::u64).map(|value| value.to_string()),
        "i32" => one(&mut input, Reader::i32).map(|value| value.to_string()),
        "i64" => one(&mut input, Reader::i64).map(|value| value.to_string()),
        "f32" => one(&mut input, Reader::f32).map(|value| format!("bits:{:08x}", value.to_bits())),
        "f64" => one(&mut input, Reader::f64).map(|value| format!("bits:{:016x}", value.to_bits())),
        "string" => one(&mut input, Reader::string).map(|value| format!("hex:{}", hex(value.as_bytes()))),
        "bytes" => one(&mut input, Reader::blob).map(|value: Vec<u8>| hex(&value)),
        "error" => match input.root::<()>() {
            Ok(DecodedContent::Error(failure)) => Ok(failure.text),
            Ok(DecodedContent::Message(())) => Err(wrong_kind()), // A nil or a message.
            Err(error) => Err(error),
        },
        "slice_header:u32" => one(&mut input, |input, list| input.list(Kind::U32, list, Reader::u32))
            .map(|list: Vec<u32>| list.len().to_string()),
        "map_header:string:any" => {
            let kinds = (Kind::String, Kind::Any);
            one(&mut input, |input, map| input.map(kinds, map, Reader::string, Reader::message_or_default)).and_then(
                |map: HashMap<String, ()>| match bytes.first() {
                    Some(0) => Err(wrong_kind()), // An unset map.
                    _ => Ok(map.len().to_string()),
                },
            )
        }
        _ => return None,
    })
}

/// Reads one value.
fn one<'a, T: Default>(
    input: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>, &mut T) -> Result<(), DecodeError>,
) -> Result<T, DecodeError> {
    let mut value = T::default();
    read(input, &mut value)?;
    Ok(value)
}

fn wrong_kind() -> DecodeError {
    DecodeErrorKind::WrongKind { expected: Kind::Error, found: 0 }.into()
}

fn cases(direction: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../../../vectors/polyglot.json")).expect("JSON");
    file[direction].as_array().expect("a list of cases").clone()
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_default()
}

fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("a value of this type")
}

fn bits(value: &str) -> u64 {
    let digits = value.strip_prefix("bits:").expect("IEEE bits");
    u64::from_str_radix(digits, 16).expect("hexadecimal")
}

fn sorted(counts: HashMap<String, u32>) -> String {
    let mut counts: Vec<_> = counts.into_iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    counts.sort();
    counts.join(", ")
}
