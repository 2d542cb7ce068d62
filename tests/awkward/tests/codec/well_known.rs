//! The well-known types: alone, and as fields, list elements, map values and members of a oneof.

use std::fmt::Debug;

use awkward::{
    names::shapes::{Choices, Lists, Maps, WellKnown, choices::All},
    well_known::names::shapes as generated,
};
use bytes::Bytes;
use frpc::{
    codec::Message,
    prost_types::{Any, Duration, FieldMask, ListValue, Struct, Timestamp, Value, value::Kind},
};

use crate::{hex, plain, read, round_trip};

#[test]
fn timestamps_and_durations_are_two_integers() {
    check(&Timestamp { seconds: 1, nanos: -1 }, "08000d020c01");
    check(&Duration { seconds: -1, nanos: 1 }, "08000d010c02");
    round_trip(&Timestamp { seconds: i64::MIN, nanos: i32::MAX });
    round_trip(&Duration { seconds: i64::MAX, nanos: i32::MIN });
}

#[test]
fn an_any_is_its_url_and_its_bytes() {
    check(&Any { type_url: "t".into(), value: vec![1, 2] }, "0800050a0174040a020102");
}

#[test]
fn a_field_mask_is_a_list_of_paths() {
    check(&FieldMask { paths: vec!["a".into(), "b.c".into()] }, "080001050a02050a0161050a03622e63");
}

#[test]
fn an_empty_message_is_only_its_flags() {
    check(&(), "0800");
}

#[test]
fn wrappers_are_messages_with_one_field() {
    check(&true, "08000701");
    check(&-1_i32, "08000c01");
    check(&-1_i64, "08000d01");
    check(&1_u32, "08000a01");
    check(&1_u64, "08000b01");
    check(&1_f32, "08000e3f800000");
    check(&1_f64, "08000f3ff0000000000000");
    check(&"hi".to_owned(), "0800050a026869");
    check(&vec![1_u8, 2], "0800040a020102");
    check(&Bytes::from_static(&[1, 2]), "0800040a020102");
    check(&String::new(), "0800050a00");
}

fn check<M: Message + PartialEq + Debug>(message: &M, bytes: &str) {
    assert_eq!(hex(&round_trip(message)), bytes);
}

#[test]
fn struct_values_nest() {
    let kinds = [
        Kind::NullValue(0),
        Kind::NumberValue(0.0),
        Kind::NumberValue(-1.5),
        Kind::StringValue(String::new()),
        Kind::StringValue("text".into()),
        Kind::BoolValue(false),
        Kind::BoolValue(true),
        Kind::StructValue(Struct::default()),
        Kind::ListValue(ListValue::default()),
        Kind::NullValue(7),
        Kind::NullValue(-7),
    ];
    let mut values: Vec<_> = kinds.into_iter().map(|kind| Value { kind: Some(kind) }).collect();
    values.push(Value { kind: None });
    values.iter().for_each(|value| drop(round_trip(value)));

    for _ in 0..3 {
        let list = ListValue { values: values.clone() };
        let fields = (0..9).map(|name| (name.to_string(), values[name % values.len()].clone())).collect();
        let fields = Struct { fields };
        round_trip(&list);
        round_trip(&fields);
        let kinds = [Kind::ListValue(list), Kind::StructValue(fields), Kind::NullValue(0)];
        values = kinds.into_iter().map(|kind| Value { kind: Some(kind) }).collect();
    }
}

#[test]
fn well_known_type_fields_are_optional() {
    assert_eq!(round_trip(&WellKnown::default()), plain(&WellKnown::default()));
    let all_default = WellKnown {
        timestamp: Some(Timestamp::default()),
        duration: Some(Duration::default()),
        any: Some(Any::default()),
        empty: Some(()),
        fields: Some(Struct::default()),
        value: Some(Value::default()),
        list: Some(ListValue::default()),
        null: 0,
        mask: Some(FieldMask::default()),
        f_double: Some(0.0),
        f_float: Some(0.0),
        f_int64: Some(0),
        f_uint64: Some(0),
        f_int32: Some(0),
        f_uint32: Some(0),
        f_bool: Some(false),
        f_string: Some(String::new()),
        f_bytes: Some(Vec::new()),
        anys: vec![Any::default(); 2],
    };
    assert_eq!(round_trip(&all_default), plain(&all_default), "wrappers are messages, which nil can be told from");
    round_trip(&WellKnown { null: 3, value: Some(Value { kind: Some(Kind::NullValue(0)) }), ..all_default });
}

#[test]
fn lists_maps_and_oneofs_may_contain_them() {
    round_trip(&Lists { f_void: vec![(); 4], f_wrapped: vec![0, i64::MIN, i64::MAX], ..Lists::default() });
    round_trip(&Maps {
        k: [(true, Timestamp { seconds: 5, nanos: 0 }), (false, Timestamp::default())].into(),
        l: [("empty".into(), String::new()), ("full".into(), "text".into())].into(),
        m: [("void".into(), ())].into(),
        ..Maps::default()
    });
    for member in [All::FTimestamp(Timestamp { seconds: 1, nanos: 2 }), All::FText("t".into()), All::FVoid(())] {
        round_trip(&Choices { all: Some(member), single: None });
    }
}

#[test]
fn compiled_well_known_types_have_the_same_bytes() {
    let kind = Some(Kind::StringValue("text".into()));
    let ours = WellKnown {
        timestamp: Some(Timestamp { seconds: 1, nanos: 2 }),
        any: Some(Any { type_url: "t".into(), value: vec![3] }),
        empty: Some(()),
        fields: Some(Struct { fields: [("name".into(), Value { kind: kind.clone() })].into() }),
        value: Some(Value { kind: Some(Kind::NullValue(0)) }),
        list: Some(ListValue { values: vec![Value { kind }, Value { kind: Some(Kind::BoolValue(false)) }] }),
        mask: Some(FieldMask { paths: vec!["a.b".into()] }),
        f_bool: Some(true),
        f_bytes: Some(vec![9]),
        f_double: Some(2.5),
        f_string: Some(String::new()),
        ..WellKnown::default()
    };
    let bytes = round_trip(&ours);
    let theirs: generated::WellKnown = read(&bytes).expect("the same layout");
    assert_eq!(round_trip(&theirs), bytes);
}
