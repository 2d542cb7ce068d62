//! The codec of `frisbee-rpc-dynamic` for messages known only by their descriptors. It reads and writes the same bytes
//! as generated code, and refuses the same bytes for the same reasons.

use std::{fmt::Debug, sync::LazyLock};

use awkward::{
    codec::hostile::{self, Nest, Rows},
    names::{
        many::{self, ManyFields},
        old::{self, Old},
        shapes::{self, Choices, Lists, Maps, Optionals, WellKnown},
    },
    other::names::many::ManyFields as ManyInOtherTypes,
    vectors::{
        self, Choice, Empty, Enums, Leaf, MapKeys, MapValues, Number, Ordering, Outer, Range, Repeated, Scalars, Text,
        Total, Tree, Wrapper,
        outer::{Middle, middle::Inner},
    },
};
use bytes::Bytes;
use frpc::{
    codec::{self, DecodeErrorKind, DecodedContent, MemoryBudget, Message, Reader, json},
    prost,
    prost_types::FileDescriptorSet,
};
use frpc_schema::SchemaOptions;
use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MessageDescriptor, Value};

use crate::{
    memory::{absent_children, peak_of},
    properties::{Damage, choice, choices, config, damage, enums, lists, maps, optionals, scalars, tree},
    unhex,
    vectors::{cases, for_message, text},
};
use frpc_dynamic::SchemaLayouts;

trait Tested: Message + json::Message + prost::Message + PartialEq + Clone + Debug {}
impl<M: Message + json::Message + prost::Message + PartialEq + Clone + Debug> Tested for M {}

macro_rules! properties {
    ($($name:ident: $message:ty;)*) => {$(
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(config())]

                #[test]
                fn encodes_and_decodes_like_generated_code(message in super::$name()) {
                    check::<$message>(&message);
                }

                #[test]
                fn rejects_damaged_bytes_like_generated_code(message in super::$name(), damage in damage()) {
                    check_damaged::<$message>(&message, &damage);
                }
            }
        }
    )*};
}

properties! {
    scalars: Scalars;
    enums: Enums;
    choice: Choice;
    optionals: Optionals;
    choices: Choices;
    lists: Lists;
    maps: Maps;
    tree: shapes::Tree;
    well_known: WellKnown;
}

use crate::json_oracle::well_known;

fn check<M: Tested>(message: &M) {
    let written = layouts::<M>().encode(&dynamic(message));
    assert_eq!(codec::decode(&written), Ok(DecodedContent::Message(message.clone())));
    let expected = codec::encode(message);
    assert_eq!(written.len(), expected.len(), "{message:?}");
    check_agrees::<M>(&expected);
}

fn check_damaged<M: Tested>(message: &M, damage: &[Damage]) {
    let mut bytes = codec::encode(message).to_vec();
    damage.iter().for_each(|damage| damage.apply(&mut bytes));
    check_agrees::<M>(&bytes.into());
}

/// Asserts that both codecs read the same message, or refuse the bytes at the same position for the same reason.
fn check_agrees<M: Tested>(bytes: &Bytes) {
    match (codec::decode::<M>(bytes), layouts::<M>().decode(&shape::<M>(), bytes, MemoryBudget::default())) {
        (Ok(DecodedContent::Message(expected)), Ok(DecodedContent::Message(read))) => {
            let read = M::decode(&read.encode_to_vec()[..]).expect("it was just written");
            // A message with a NaN does not equal itself.
            #[expect(clippy::eq_op, reason = "see above")]
            let is_itself = expected == expected;
            assert!(read == expected || !is_itself, "{read:?}\n{expected:?}");
        }
        (Ok(DecodedContent::Error(expected)), Ok(DecodedContent::Error(read))) => assert_eq!(read, expected),
        (Err(expected), Err(error)) => assert_eq!(error, expected),
        (expected, read) => panic!("{expected:?}, and not {read:?}"),
    }
}

#[test]
fn messages_match_the_bytes_of_go() {
    for case in &cases("encode") {
        for_message!(text(case, "message"), check_encode(case));
    }
}

fn check_encode<M: Tested>(case: &serde_json::Value) {
    let (name, bytes) = (text(case, "name"), unhex(text(case, "hex")));
    // The other reader considers the largest f32 too large.
    let message = DynamicMessage::deserialize(shape::<M>(), &case["json"])
        .unwrap_or_else(|_| dynamic(&json::from_str::<M>(&case["json"].to_string()).expect("it is one")));
    let Ok(DecodedContent::Message(read)) = layouts::<M>().decode(&shape::<M>(), &bytes, MemoryBudget::default())
    else {
        panic!("{name}: it is one")
    };
    assert_eq!(read, message, "{name}");
    // For an alias, the number stands for the first name.
    if name != "enums_alias_second_name" {
        assert_eq!(layouts::<M>().encode(&message), bytes, "{name}");
        assert_eq!(layouts::<M>().encode(&read), bytes, "{name}, read and written");
    }
    for len in 0..=bytes.len() {
        check_agrees::<M>(&bytes.slice(..len));
    }
}

#[test]
fn vectors_are_decoded_or_rejected_as_stated() {
    for case in &cases("decode") {
        for_message!(text(case, "message"), check_decode(case));
    }
}

fn check_decode<M: Tested>(case: &serde_json::Value) {
    let (name, bytes) = (text(case, "name"), unhex(text(case, "hex")));
    let read = layouts::<M>().decode(&shape::<M>(), &bytes, MemoryBudget::default());
    match text(case, "expect") {
        "accept" => assert!(read.is_ok(), "{name}: {read:?}"),
        "reject" => assert!(read.is_err(), "{name}: {read:?}"),
        _ => {}
    }
    check_agrees::<M>(&bytes);
}

#[test]
fn unknown_enum_positions_round_trip() {
    let bytes = unhex("08000a630a630a630a63020c0a0a010c020a63");
    let Ok(DecodedContent::Message(enums)) =
        layouts::<Enums>().decode(&shape::<Enums>(), &bytes, MemoryBudget::default())
    else {
        panic!("they are numbers")
    };
    assert_eq!(layouts::<Enums>().encode(&enums), bytes);
}

#[test]
fn proto2_required_fields_and_defaults_are_kept() {
    let set = Old { note: Some(String::new()), count: Some(0), maybe_level: Some(2), ..Old::default() };
    let inner = Old { maybe_level: Some(1), data: Some(Vec::new()), ..Old::default() };
    let chosen = Old { choice: Some(old::old::Choice::Old(Box::new(set.clone()))), ..Old::default() };
    for message in [Old::default(), set, inner, chosen] {
        check(&message);
    }
    // Like generated code for a message with all fields unset.
    let empty = DynamicMessage::new(shape::<Old>());
    assert_eq!(layouts::<Old>().encode(&empty), codec::encode(&Old::default()));
}

#[test]
fn messages_with_very_many_fields_round_trip() {
    check(&ManyFields::default());
    let filled = filled(&shape::<ManyFields>()).encode_to_vec();
    assert!(filled.len() > 1_000, "nearly all fields are set, and not {}", filled.len());
    let message = ManyFields::decode(&filled[..]).expect("it was just written");
    check(&message);
    let text = json::to_string(&message).expect("it has JSON");
    assert_eq!(json::from_str::<ManyFields>(&text).as_ref(), Ok(&message));
    let other = ManyInOtherTypes::decode(&filled[..]).expect("the fields are the same");
    assert_eq!(codec::encode(&other), codec::encode(&message));
    assert_eq!(json::to_string(&other), Ok(text));
}

#[test]
fn valid_messages_are_accepted() {
    let cells = (0..20_000).map(|x| hostile::Cell { x, y: String::new() }).collect();
    let row = hostile::rows::Row { cells, blobs: vec![vec![1]; 20_000], flags: vec![true; 20_000] };
    check(&Rows {
        rows: vec![row.clone(), row],
        by_number: (0..20_000).map(|key| (key, Default::default())).collect(),
        blobs: (0..20_000).map(|key| (key.to_string(), vec![0; 3])).collect(),
    });
    let leaf = Leaf { label: "a".to_owned(), weight: 1 };
    let numbers = (0..100_000).collect::<Vec<_>>();
    check(&Repeated {
        r_leaf: vec![leaf; 50_000],
        r_int32: numbers,
        r_string: vec!["a".into(); 50_000],
        ..Default::default()
    });
}

#[test]
fn operations_match_generated_code() {
    use vectors::{alpha_methods as alpha, beta_methods as beta};
    for method in [alpha::ECHO, alpha::FAIL, alpha::COUNT, alpha::SUM, alpha::CHAT, beta::NOTHING, beta::HANGUP] {
        assert_eq!(layouts::<Scalars>().operation(&method.path()), Some(method.operation), "{method}");
    }
    assert_eq!(layouts::<Scalars>().operation("vectors.Alpha/Sing"), None);
}

#[test]
fn claimed_lengths_of_4_gib_allocate_little() {
    for claim in ["0800050a0001030affffffff0f", "0800050a0001030a00000205030affffffff0f", "0800050affffffff0f"] {
        for filler in [0, 64 << 10] {
            let bytes = Bytes::from([&unhex(claim)[..], &vec![0xff; filler]].concat());
            let (layouts, shape) = (layouts::<Tree>(), shape::<Tree>());
            let peak = peak_of(|| {
                layouts.decode(&shape, &bytes, MemoryBudget::default()).map(drop).expect_err("nobody sends so much")
            });
            assert!(peak <= 4096, "{} bytes of input, {peak} allocated", bytes.len());
        }
    }
}

#[test]
fn absent_list_messages_are_defaults_up_to_a_limit() {
    let (layouts, shape) = (layouts::<Tree>(), shape::<Tree>());
    assert!(layouts.decode(&shape, &absent_children(10_000), MemoryBudget::default()).is_ok());
    let error = layouts.decode(&shape, &absent_children(5 << 20), MemoryBudget::default()).expect_err("too many");
    assert!(matches!(error.kind(), DecodeErrorKind::TooMuchMemory { .. }), "{error}");
}

/// A message takes hundreds of bytes in memory as soon as one field is set, however few bytes it has on the wire.
#[test]
fn memory_of_small_messages_is_bounded_by_their_length() {
    let children = vec![Leaf { weight: 1, ..Default::default() }; 10_000];
    let bytes = codec::encode(&Repeated { r_leaf: children, ..Default::default() });
    let (layouts, shape) = (layouts::<Repeated>(), shape::<Repeated>());
    let peak = peak_of(|| layouts.decode(&shape, &bytes, MemoryBudget::default()).expect("it was just written"));
    assert!(peak <= 256 * bytes.len(), "{} bytes of input, {peak} allocated", bytes.len());
}

#[test]
fn nested_messages_are_decoded_up_to_the_depth_limit() {
    // Without optimization, the stack overflows before the depth limit is reached.
    for (levels, is_read) in [(LEVELS_MIN, true), (Reader::DEPTH_MAX as usize + 1, false), (100_000, false)] {
        // Each message contains the next one in a list. The last list is empty.
        let (around, last) = (unhex("080001030a01").repeat(levels - 1), unhex("080001030a00").to_vec());
        let bytes = Bytes::from([around, last, vec![0; levels]].concat());
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
            let read = layouts::<Nest>().decode(&shape::<Nest>(), &bytes, MemoryBudget::default())?;
            let DecodedContent::Message(nest) = read else { panic!("it is no error") };
            assert_eq!(layouts::<Nest>().encode(&nest), bytes);
            Ok(())
        });
        match thread.expect("a thread").join().expect("no panic") {
            Ok(()) => assert!(is_read, "{levels}"),
            Err(error) => {
                let error: codec::DecodeError = error;
                assert!(!is_read && matches!(error.kind(), DecodeErrorKind::TooDeep { .. }), "{levels}: {error}");
            }
        }
    }
}

/// Number of levels that every build can read.
const LEVELS_MIN: usize = 50;

fn dynamic<M: Tested>(message: &M) -> DynamicMessage {
    DynamicMessage::decode(shape::<M>(), &message.encode_to_vec()[..]).expect("it is one")
}

/// Returns a message with a value in each field that holds no message, and one entry in each map.
fn filled(shape: &MessageDescriptor) -> DynamicMessage {
    let mut message = DynamicMessage::new(shape.clone());
    for (number, field) in (100_u16..).zip(shape.fields()) {
        let value = |kind| match kind {
            Kind::Double => Some(Value::F64(f64::from(number) + 0.5)),
            Kind::Float => Some(Value::F32(f32::from(number) + 0.5)),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Some(Value::I32(-i32::from(number))),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Some(Value::I64(-i64::from(number))),
            Kind::Uint32 | Kind::Fixed32 => Some(Value::U32(number.into())),
            Kind::Uint64 | Kind::Fixed64 => Some(Value::U64(number.into())),
            Kind::Bool => Some(Value::Bool(true)),
            Kind::String => Some(Value::String(number.to_string())),
            Kind::Bytes => Some(Value::Bytes(number.to_string().into())),
            Kind::Enum(_) => Some(Value::EnumNumber(1)),
            Kind::Message(_) => None,
        };
        let set = match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                let key = value(entry.map_entry_key_field().kind()).and_then(Value::into_map_key);
                let of = value(entry.map_entry_value_field().kind());
                key.zip(of).map(|entry| Value::Map([entry].into()))
            }
            kind if field.is_list() => value(kind).map(|item| Value::List(vec![item.clone(), item])),
            kind => value(kind),
        };
        if let Some(set) = set {
            message.set_field(&field, set);
        }
    }
    message
}

fn shape<M: Tested>() -> MessageDescriptor {
    let name = <M as json::Message>::NAME;
    known::<M>().0.get_message_by_name(name).unwrap_or_else(|| panic!("{name} is not declared"))
}

fn layouts<M: Tested>() -> &'static SchemaLayouts {
    &known::<M>().1
}

type Known = (DescriptorPool, SchemaLayouts);

fn known<M: Tested>() -> &'static Known {
    static VECTORS: LazyLock<Known> = LazyLock::new(|| read_set(vectors::FILE_DESCRIPTOR_SET));
    static SHAPES: LazyLock<Known> = LazyLock::new(|| read_set(shapes::FILE_DESCRIPTOR_SET));
    static OLD: LazyLock<Known> = LazyLock::new(|| read_set(old::FILE_DESCRIPTOR_SET));
    static MANY: LazyLock<Known> = LazyLock::new(|| read_set(many::FILE_DESCRIPTOR_SET));
    static HOSTILE: LazyLock<Known> = LazyLock::new(|| read_set(hostile::FILE_DESCRIPTOR_SET));
    match <M as json::Message>::NAME {
        name if name.starts_with("vectors.") => &VECTORS,
        name if name.starts_with("names.shapes.") => &SHAPES,
        name if name.starts_with("names.old.") => &OLD,
        name if name.starts_with("names.many.") => &MANY,
        _ => &HOSTILE,
    }
}

fn read_set(bytes: &[u8]) -> Known {
    let set = FileDescriptorSet::decode(bytes).expect("they are descriptors");
    let layouts = SchemaLayouts::read(&set, &SchemaOptions::default()).expect("they are those of proto files");
    (DescriptorPool::decode(bytes).expect("they are descriptors"), layouts)
}
