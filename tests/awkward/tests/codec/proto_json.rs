//! The JSON of proto3, as its specification has it.

use std::fmt::Debug;

use awkward::golden::json::json::{self as golden, Color, Leaf, order::Payment};
use bytes::Bytes;
use frpc::{
    codec::{CodecError, Format, Message, json},
    prost_types::{Any, Timestamp, Value, value::Kind},
};

/// Checks that a message is this text, and this text the message.
fn check<M: Message + json::Message + PartialEq + Debug>(message: &M, text: &str) {
    assert_eq!(json::to_string(message).as_deref(), Ok(text), "{message:?}");
    assert_eq!(json::from_str(text).as_ref(), Ok(message), "{text}");
    let content = Format::Json.encode(message).expect("it has JSON").into_bytes();
    assert_eq!(content, text);
    assert_eq!(Format::Json.decode(&content).as_ref(), Ok(message));
}

/// Checks that a text is read as this message.
fn reads<M: json::Message + PartialEq + Debug>(text: &str, message: &M) {
    assert_eq!(json::from_str(text).as_ref(), Ok(message), "{text}");
}

/// Checks that a text is refused, with this error.
fn refuses<M: json::Message + Debug>(text: &str, error: &str) {
    match json::from_str::<M>(text) {
        Ok(message) => panic!("{text} was read as {message:?}"),
        Err(found) => assert_eq!(found.to_string(), error, "{text}"),
    }
}

#[test]
fn an_order_has_every_kind_of_field() {
    let order = golden::Order {
        order_id: -5,
        is_paid: Some(false),
        price: 1.5,
        signature: b"\xfb\xff".to_vec(),
        color: Color::Red.into(),
        colors: vec![0, -1, 10, 7],
        tags: vec!["a\"\\\n\u{1}\u{e4}".into(), String::new()],
        leaves: [("k".into(), Leaf { label: "l".into(), child: Some(Box::default()) })].into(),
        colors_by_number: [(-3, 10)].into(),
        created_at: Some(Timestamp { seconds: 1, nanos: 500_000_000 }),
        note: Some(String::new()),
        extra: Some(Value { kind: Some(Kind::NullValue(0)) }),
        null: 0,
        details: vec![
            Any { type_url: "type.googleapis.com/json.Leaf".into(), value: b"\x0a\x01x".to_vec() },
            Any { type_url: "type.googleapis.com/google.protobuf.Duration".into(), value: b"\x08\x02".to_vec() },
            Any { type_url: "type.googleapis.com/google.protobuf.Empty".into(), value: Vec::new() },
            Any { type_url: "type.googleapis.com/json.Nothing".into(), value: Vec::new() },
            Any::default(),
        ],
        payment: Some(Payment::ColorOfMoney(0)),
    };
    check(
        &order,
        r#"{"orderId":"-5","isPaid":false,"cost":1.5,"signature":"+/8=","color":"COLOR_RED","colors":["COLOR_UNSPECIFIED","COLOR_BLUE","COLOR_RED",7],"tags":["a\"\\\n\u0001ä",""],"leaves":{"k":{"label":"l","child":{}}},"colorsByNumber":{"-3":"COLOR_RED"},"createdAt":"1970-01-01T00:00:01.500Z","note":"","extra":null,"details":[{"@type":"type.googleapis.com/json.Leaf","label":"x"},{"@type":"type.googleapis.com/google.protobuf.Duration","value":"2s"},{"@type":"type.googleapis.com/google.protobuf.Empty","value":{}},{"@type":"type.googleapis.com/json.Nothing"},{}],"colorOfMoney":"COLOR_UNSPECIFIED"}"#,
    );
    check(&golden::Order::default(), "{}");
}

#[test]
fn fields_may_have_the_name_of_the_proto_file() {
    let order = golden::Order { order_id: 7, price: 2.0, ..Default::default() };
    reads(r#" { "order_id" : "7" , "cost" : 2 } "#, &order);
    reads(r#"{"orderId": 7.0, "price": "2e0"}"#, &order);
    reads(r#"{"\u006frderId": 70e-1, "c\u006fst": 2.0}"#, &order);
}

#[test]
fn what_is_unknown_is_ignored() {
    let text = r#"{"x": [1, {"y": null}, "\n"], "color": "COLOR_GREEN", "colors": ["COLOR_BLUE", "?", 5], "colorsByNumber": {"1": "?", "2": 3}, "isPaid": true, "": {}}"#;
    let order = golden::Order {
        is_paid: Some(true),
        colors: vec![-1, 5],
        colors_by_number: [(2, 3)].into(),
        ..Default::default()
    };
    reads(text, &order);
    reads(r#"{"colorOfMoney": "COLOR_GREEN", "x": 1, "x": 2}"#, &golden::Order::default());
}

#[test]
fn an_error_says_where_and_why() {
    let table = [
        ("", "json.Order: the JSON ends here (at byte 0)"),
        ("[]", "json.Order: expected an object, found a list (at byte 0)"),
        (r#"{"orderId": "x"}"#, "json.Order.orderId: not a number (at byte 15)"),
        (
            r#"{"leaves": {"a": {"child": {"label": 5}}}}"#,
            r#"json.Order.leaves["a"].child.label: expected text, found a number (at byte 37)"#,
        ),
        (r#"{"tags": ["a", null]}"#, "json.Order.tags[1]: expected text, found null (at byte 15)"),
        (r#"{"tags": ["a"], "tags": []}"#, "json.Order.tags: occurs twice (at byte 23)"),
        (
            r#"{"cardNumber": "1", "account": {}}"#,
            "json.Order.account: another member of the same oneof is set already (at byte 31)",
        ),
        (r#"{} {}"#, "the message ends here, but the JSON does not (at byte 3)"),
    ];
    for (text, error) in table {
        refuses::<golden::Order>(text, error);
    }
    let status = Format::Json.decode::<golden::Order>(&Bytes::from_static(b"{\"x\": \xff}"));
    assert!(matches!(&status, Err(CodecError::Json(error)) if error.position() == Some(6)), "{status:?}");
}
