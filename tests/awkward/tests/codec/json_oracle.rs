//! Compares our JSON with prost-reflect, which works on descriptors and shares no code with ours. Each reads the
//! other's output, and both write the same.

use std::{fmt::Debug, sync::LazyLock};

use awkward::{
    names::shapes::{self, Choices, Lists, Maps, Optionals, Tree, WellKnown},
    other,
};
use frpc::{
    codec::json::{self, ErrorKind},
    prost,
    prost_types::{Any, Duration, FieldMask, ListValue, Struct, Value, value::Kind},
};
use proptest::{collection, option, prelude::*};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Value as Json;

use crate::properties::{Damage, choices, config, damage, lists, maps, maybe, optionals, timestamp, tree, value};

macro_rules! properties {
    ($($name:ident: $message:ty, $same:ty;)*) => {$(
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(config())]

                #[test]
                fn matches_prost_reflect(message in super::$name()) {
                    check::<$message>(&message);
                }

                #[test]
                fn is_independent_of_the_rust_types(message in super::$name()) {
                    check_other::<$message, $same>(&message);
                }

                #[test]
                fn damaged_json_causes_no_panic(message in super::$name(), damage in damage()) {
                    check_damaged::<$message>(&message, &damage);
                }
            }
        }
    )*};
}

properties! {
    optionals: Optionals, other::names::shapes::Optionals;
    choices: Choices, other::names::shapes::Choices;
    lists: Lists, other::names::shapes::Lists;
    maps: Maps, other::names::shapes::Maps;
    tree: Tree, other::names::shapes::Tree;
    well_known: WellKnown, awkward::well_known::names::shapes::WellKnown;
}

trait Tested: prost::Message + json::Message + PartialEq + Debug {}
impl<M: prost::Message + json::Message + PartialEq + Debug> Tested for M {}

fn check<M: Tested>(message: &M) {
    let Some(text) = written(message) else { return };
    let descriptor = descriptor(M::NAME);
    let of_proto = DynamicMessage::decode(descriptor.clone(), &message.encode_to_vec()[..]).expect("it is one");

    let theirs = serde_json::to_string(&of_proto).expect("it has JSON");
    assert_eq!(json::from_str::<M>(&theirs).as_ref(), Ok(message), "{theirs}");
    assert!(is_same(&parsed(&text), &parsed(&theirs)), "ours: {text}\ntheirs: {theirs}");

    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let read =
        DynamicMessage::deserialize(descriptor, &mut deserializer).unwrap_or_else(|error| panic!("{error}: {text}"));
    let read = M::decode(&prost::Message::encode_to_vec(&read)[..]).expect("it is one");
    assert_eq!(&read, message, "{text}");
    assert_eq!(json::from_str::<M>(&text).as_ref(), Ok(message), "{text}");
}

fn check_other<M: Tested, Other: Tested>(message: &M) {
    let other = Other::decode(&message.encode_to_vec()[..]).expect("the fields are the same");
    let Some(text) = written(message) else { return };
    let of_other = json::to_string(&other).expect("the other has JSON");
    assert!(is_same(&parsed(&of_other), &parsed(&text)), "{of_other}\n{text}");
    assert_eq!(json::from_str::<Other>(&text).as_ref(), Ok(&other), "{text}");
}

/// Asserts that an accepted damaged text has a canonical form that is read as the same message.
fn check_damaged<M: Tested>(message: &M, damage: &[Damage]) {
    let Some(text) = written(message) else { return };
    let mut bytes = text.into_bytes();
    damage.iter().for_each(|damage| damage.apply(&mut bytes));
    match json::from_slice::<M>(&bytes) {
        Ok(message) => {
            let text = json::to_string(&message).expect("what was read can be written");
            assert_eq!(json::from_str::<M>(&text).as_ref(), Ok(&message), "{text}");
            // A plain JSON reader must accept the text too.
            assert!(
                serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok(),
                "{}",
                String::from_utf8_lossy(&bytes)
            );
        }
        Err(error) => assert!(error.position().is_some_and(|position| position <= bytes.len()), "{error}"),
    }
}

/// Returns the JSON text, or `None` for a time without a JSON form.
fn written<M: Tested>(message: &M) -> Option<String> {
    match json::to_string(message) {
        Ok(text) => Some(text),
        Err(error) => {
            assert_eq!(*error.kind(), ErrorKind::OutOfRange { of: "a timestamp" }, "{error}");
            None
        }
    }
}

fn descriptor(name: &str) -> MessageDescriptor {
    static POOL: LazyLock<DescriptorPool> =
        LazyLock::new(|| DescriptorPool::decode(shapes::FILE_DESCRIPTOR_SET).expect("they are descriptors"));
    POOL.get_message_by_name(name).expect("it is declared")
}

fn parsed(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns `true` if two texts are equivalent: `1.0` equals `1`, and an f32 may have any of its shortest decimal forms.
fn is_same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        #[expect(clippy::cast_possible_truncation, reason = "it is the precision that is compared")]
        (Json::Number(a), Json::Number(b)) => {
            a.as_f64() == b.as_f64() || a.as_f64().map(|a| a as f32) == b.as_f64().map(|b| b as f32)
        }
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Json::Object(a), Json::Object(b)) => {
            let has_all = |(name, a): (&String, &Json)| b.get(name).is_some_and(|b| is_same(a, b));
            a.len() == b.len() && a.iter().all(has_all)
        }
        _ => a == b,
    }
}

pub(crate) fn well_known() -> impl Strategy<Value = WellKnown> {
    let times = (option::of(timestamp()), option::of(duration()), option::of(Just(())));
    let values = (option::of(fields()), option::of(any_value()), option::of(values()), option::of(mask()));
    let numbers = (maybe(), maybe(), maybe(), maybe(), maybe(), maybe());
    let others = (maybe(), maybe(), maybe(), option::of(any_message()), collection::vec(any_message(), 0..3));
    (times, values, numbers, others).prop_map(|(times, values, numbers, others)| WellKnown {
        timestamp: times.0,
        duration: times.1,
        any: others.3,
        empty: times.2,
        fields: values.0,
        value: values.1,
        list: values.2,
        null: 0,
        mask: values.3,
        f_double: numbers.0,
        f_float: numbers.1,
        f_int64: numbers.2,
        f_uint64: numbers.3,
        f_int32: numbers.4,
        f_uint32: numbers.5,
        f_bool: others.0,
        f_string: others.1,
        f_bytes: others.2,
        anys: others.4,
    })
}

fn duration() -> impl Strategy<Value = Duration> {
    let parts = (0..=315_576_000_000_i64, prop_oneof![Just(0), 0..1_000_000_000], any::<bool>());
    parts.prop_map(|(seconds, nanos, is_negative)| {
        let sign = if is_negative { -1 } else { 1 };
        Duration { seconds: seconds * i64::from(sign), nanos: nanos * sign }
    })
}

fn mask() -> impl Strategy<Value = FieldMask> {
    collection::vec("[a-z][a-z0-9]{0,3}(_[a-z][a-z0-9]{0,2}){0,2}(\\.[a-z]{1,3}){0,2}", 0..4)
        .prop_map(|paths| FieldMask { paths })
}

fn single_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Kind::NullValue(0)),
        value().prop_map(Kind::BoolValue),
        value().prop_map(Kind::StringValue),
        value::<f64>().prop_filter("JSON has no others", |number| number.is_finite()).prop_map(Kind::NumberValue),
    ];
    leaf.prop_map(|kind| Value { kind: Some(kind) })
}

fn any_value() -> impl Strategy<Value = Value> {
    single_value().prop_recursive(3, 12, 3, |inner| {
        let list = collection::vec(inner.clone(), 0..3).prop_map(|values| Kind::ListValue(ListValue { values }));
        let fields =
            collection::btree_map(any::<String>(), inner, 0..3).prop_map(|fields| Kind::StructValue(Struct { fields }));
        prop_oneof![list, fields].prop_map(|kind| Value { kind: Some(kind) })
    })
}

fn fields() -> impl Strategy<Value = Struct> {
    collection::btree_map(any::<String>(), any_value(), 0..3).prop_map(|fields| Struct { fields })
}

fn values() -> impl Strategy<Value = ListValue> {
    collection::vec(any_value(), 0..3).prop_map(|values| ListValue { values })
}

/// Returns messages with only one valid order of fields in their encoding.
fn any_message() -> impl Strategy<Value = Any> {
    fn packed(name: &str, message: &impl prost::Message) -> Any {
        Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
    }
    let leaf = prop_oneof![
        optionals().prop_map(|message| packed("names.shapes.Optionals", &message)),
        lists().prop_map(|message| packed("names.shapes.Lists", &message)),
        duration().prop_map(|message| packed("google.protobuf.Duration", &message)),
        mask().prop_map(|message| packed("google.protobuf.FieldMask", &message)),
        single_value().prop_map(|message| packed("google.protobuf.Value", &message)),
        Just(packed("google.protobuf.Empty", &())),
        any::<i64>().prop_map(|message| packed("google.protobuf.Int64Value", &message)),
        any::<String>().prop_map(|message| packed("google.protobuf.StringValue", &message)),
    ];
    leaf.prop_recursive(2, 2, 1, |inner| inner.prop_map(|inner| packed("google.protobuf.Any", &inner)))
}
