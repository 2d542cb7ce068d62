//! proto3 JSON, according to its specification.

use std::fmt::Debug;

use awkward::{
    codec::hostile,
    golden::json::json::{self as golden, Color, Leaf, order::Payment},
    names::{
        old::{Old, old::Inner},
        shapes::{Choices, Lists, Maps, Optionals, WellKnown, choices::All},
    },
    schemas::accepted::{
        json_names::JsonNames,
        old_defaults::{Defaults as OptionalDefaults, RequiredDefaults},
    },
    well_known::google::protobuf as generated,
};
use bytes::Bytes;
use frpc::{
    codec::{CodecError, Format, Message, json},
    prost_types::{Any, Duration, FieldMask, ListValue, Struct, Timestamp, Value, value::Kind},
};

/// Asserts that a message is written as this text, and read from it.
fn check<M: Message + json::Message + PartialEq + Debug>(message: &M, text: &str) {
    assert_eq!(json::to_string(message).as_deref(), Ok(text), "{message:?}");
    assert_eq!(json::from_str(text).as_ref(), Ok(message), "{text}");
    let content = Format::Json.encode(message).expect("it has JSON").into_bytes();
    assert_eq!(content, text);
    assert_eq!(Format::Json.decode(&content).as_ref(), Ok(message));
}

/// Asserts that a text is read as this message.
fn reads<M: json::Message + PartialEq + Debug>(text: &str, message: &M) {
    assert_eq!(json::from_str(text).as_ref(), Ok(message), "{text}");
}

/// Asserts that a text is refused with this error.
fn refuses<M: json::Message + Debug>(text: &str, error: &str) {
    match json::from_str::<M>(text) {
        Ok(message) => panic!("{text} was read as {message:?}"),
        Err(found) => assert_eq!(found.to_string(), error, "{text}"),
    }
}

#[test]
fn an_order_uses_every_kind_of_field() {
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
fn required_fields_are_always_written() {
    let zero = RequiredDefaults { yes: false, ..Default::default() };
    let zero =
        RequiredDefaults { text: String::new(), data: Vec::new(), third: 0.0, nan: 0.0, number: 0, level: 0, ..zero };
    check(&zero, r#"{"text":"","data":"","third":0,"nan":0,"number":0,"level":"LOW","yes":false}"#);
    let old = Old { inner: Inner::default(), ..Default::default() };
    check(&old, r#"{"name":"","inner":{"flag":false},"level":"LOW"}"#);
    check(&OptionalDefaults::default(), "{}");
    check(&OptionalDefaults { text: Some(String::new()), ..Default::default() }, r#"{"text":""}"#);
}

#[test]
fn missing_required_fields_are_rejected() {
    refuses::<Old>("{}", "names.old.Old.name is required (at byte 2)");
    refuses::<Old>(r#"{"name":null}"#, "names.old.Old.name is required (at byte 8)");
    refuses::<Old>(r#"{"name":"","inner":{}}"#, "names.old.Old.inner.flag is required (at byte 21)");
    refuses::<Old>(
        r#"{"level":"NO_SUCH","name":"","inner":{"flag":true}}"#,
        "names.old.Old.level is required (at byte 18)",
    );
    let optional = r#"{"name":"a","inner":{"flag":true},"level":"HIGH","note":null}"#;
    reads(optional, &Old { name: "a".into(), inner: Inner { flag: true }, level: 2, ..Default::default() });
}

#[test]
fn unknown_fields_are_ignored() {
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
fn errors_have_a_path_and_a_reason() {
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

#[test]
fn names_may_be_any_text() {
    let names = JsonNames { a: "1".into(), b: "2".into(), c: "3".into(), d: "4".into() };
    check(&names, r#"{"not an identifier":"1","quote\"and\\slash":"2","type":"3","öäü":"4"}"#);
    reads(r#"{"a":"1","b":"2","c":"3","\u00f6\u00e4\u00fc":"4"}"#, &names);
}

#[test]
fn numbers_have_many_forms() {
    let numbers = |f_int32, f_uint64| Optionals { f_int32, f_uint64, ..Optionals::default() };
    for (text, number) in [
        ("0", 0),
        ("-0", 0),
        ("-0.0", 0),
        ("1.0", 1),
        ("1e2", 100),
        ("\"1e2\"", 100),
        ("\"-7\"", -7),
        ("100e-2", 1),
        ("2147483647", i32::MAX),
        ("-2147483648", i32::MIN),
        ("2.147483647E+9", i32::MAX),
        ("\"\\u0031\"", 1),
    ] {
        reads(&format!("{{\"fInt32\":{text}}}"), &numbers(Some(number), None));
    }
    reads("{\"fUint64\":18446744073709551615}", &numbers(None, Some(u64::MAX)));
    reads("{\"fUint64\":\"-0\"}", &numbers(None, Some(0)));
    check(&numbers(None, Some(u64::MAX)), "{\"fUint64\":\"18446744073709551615\"}");
    check(&numbers(Some(0), None), "{\"fInt32\":0}");
    for text in [
        "1.5",
        "\"\"",
        "\" 1\"",
        "\"1 \"",
        "\"+1\"",
        "+1",
        "01",
        "\"01\"",
        "0x1",
        "1.",
        ".5",
        "1e",
        "true",
        "[]",
        "{}",
        "\"x\"",
        "NaN",
        "\"NaN\"",
        "\"Infinity\"",
        "2147483648",
        "-2147483649",
        "1e10",
        "99999999999999999999",
        "1 2",
        "--1",
        "\"1",
    ] {
        let text = format!("{{\"fInt32\":{text}}}");
        assert!(json::from_str::<Optionals>(&text).is_err(), "{text}");
    }
    for text in ["-1", "\"-1\"", "18446744073709551616", "1e20"] {
        let text = format!("{{\"fUint64\":{text}}}");
        assert!(json::from_str::<Optionals>(&text).is_err(), "{text}");
    }
}

#[test]
fn non_finite_numbers_are_strings() {
    let check_both = |f_double: f64, f_float: f32, text: &str| {
        check(&Optionals { f_double: Some(f_double), f_float: Some(f_float), ..Optionals::default() }, text);
    };
    check_both(f64::INFINITY, f32::NEG_INFINITY, r#"{"fDouble":"Infinity","fFloat":"-Infinity"}"#);
    check_both(0.1, 0.1, r#"{"fDouble":0.1,"fFloat":0.1}"#);
    check_both(-0.0, 1.0, r#"{"fDouble":-0,"fFloat":1}"#);
    check_both(1e300, 3.4028235e38, r#"{"fDouble":1e300,"fFloat":3.4028235e38}"#);
    let nan = json::from_str::<Optionals>(r#"{"fDouble":"NaN","fFloat":"NaN"}"#).expect("a word for it");
    assert!(nan.f_double.is_some_and(f64::is_nan) && nan.f_float.is_some_and(f32::is_nan));
    assert_eq!(json::to_string(&nan).as_deref(), Ok(r#"{"fDouble":"NaN","fFloat":"NaN"}"#));
    reads(r#"{"fDouble":"1.5e0"}"#, &Optionals { f_double: Some(1.5), ..Optionals::default() });
    for text in [
        "NaN",
        "Infinity",
        "1e999",
        "-1e999",
        "\"nan\"",
        "\"inf\"",
        "\"+Infinity\"",
        "\"1e999\"",
        "\"0x1\"",
        "\"\"",
        "true",
    ] {
        let text = format!("{{\"fDouble\":{text}}}");
        assert!(json::from_str::<Optionals>(&text).is_err(), "{text}");
    }
    for text in ["3.502823e+38", "-1e39"] {
        refuses::<Optionals>(
            &format!("{{\"fFloat\":{text}}}"),
            &format!("names.shapes.Optionals.fFloat: out of the range of an f32 (at byte {})", 10 + text.len()),
        );
    }
}

#[test]
fn texts_have_escapes_and_no_control_characters() {
    let texts = |text: &str| Lists { f_string: vec![text.to_owned()], ..Lists::default() };
    check(
        &texts("\u{0}\u{1f}\u{7f}\u{2028}\u{1f600}/<>'"),
        "{\"fString\":[\"\\u0000\\u001f\u{7f}\u{2028}\u{1f600}/<>'\"]}",
    );
    reads(r#"{"fString":["\ud83d\ude00\/\b\f\n\r\t\"\\\u0000"]}"#, &texts("\u{1f600}/\u{8}\u{c}\n\r\t\"\\\0"));
    for text in ["\\ud83d", "\\ude00\\ud83d", "\\x41", "\\u12", "\n", "\u{0}", "\u{1f}", "\\", "'"] {
        let text = format!("{{\"fString\":[\"{text}]}}");
        assert!(json::from_str::<Lists>(&text).is_err(), "{text}");
        let text = text.replace(']', "\"]");
        assert!(text.contains('\'') || json::from_str::<Lists>(&text).is_err(), "{text}");
    }
    for bytes in
        [&b"{\"fString\":[\"\xff\"]}"[..], b"{\"fString\":[\"\xed\xa0\x80\"]}", b"{\"fString\":[\"\xc0\x80\"]}"]
    {
        let error = json::from_slice::<Lists>(bytes).expect_err("not UTF-8");
        assert_eq!(error.to_string(), "not UTF-8 (at byte 13)");
    }
}

#[test]
fn bytes_are_base64_in_either_alphabet() {
    let bytes = |bytes: &[u8]| Optionals { f_bytes: Some(bytes.to_vec()), ..Optionals::default() };
    check(&bytes(b"\xfb\xef\xff"), r#"{"fBytes":"++//"}"#);
    check(&bytes(b""), r#"{"fBytes":""}"#);
    check(&bytes(b"a"), r#"{"fBytes":"YQ=="}"#);
    reads(r#"{"fBytes":"--__"}"#, &bytes(b"\xfb\xef\xff"));
    reads(r#"{"fBytes":"YQ"}"#, &bytes(b"a"));
    reads(r#"{"fBytes":"-_"}"#, &bytes(b"\xfb"));
    refuses::<Optionals>(r#"{"fBytes":"Y"}"#, "names.shapes.Optionals.fBytes: not base64 (at byte 13)");
    refuses::<Optionals>(r#"{"fBytes":"YQ= "}"#, "names.shapes.Optionals.fBytes: not base64 (at byte 16)");
    refuses::<Optionals>(
        r#"{"fBytes":[1]}"#,
        "names.shapes.Optionals.fBytes: expected base64 in quotes, found a list (at byte 10)",
    );
}

#[test]
fn enums_are_names_or_numbers() {
    let aliased = |number| Optionals { f_aliased: Some(number), ..Optionals::default() };
    check(&aliased(1), r#"{"fAliased":"ALIASED_STARTED"}"#);
    check(&aliased(0), r#"{"fAliased":"ALIASED_UNKNOWN"}"#);
    check(&aliased(-77), r#"{"fAliased":-77}"#);
    reads(r#"{"fAliased":"ALIASED_RUNNING"}"#, &aliased(1));
    reads(r#"{"fAliased":1}"#, &aliased(1));
    reads(r#"{"fAliased":1.0}"#, &aliased(1));
    for text in ["1.5", "2147483648", "true", "{}"] {
        assert!(json::from_str::<Optionals>(&format!("{{\"fAliased\":{text}}}")).is_err(), "{text}");
    }
    check(
        &Lists { f_sparse: vec![i32::MAX, i32::MIN, -1, 0, 5], ..Lists::default() },
        r#"{"fSparse":["SPARSE_LAST","SPARSE_FIRST","SPARSE_MINUS","SPARSE_ZERO",5]}"#,
    );
}

#[test]
fn map_keys_are_quoted() {
    check(&Maps { i: [(-1, true)].into(), ..Maps::default() }, r#"{"i":{"-1":true}}"#);
    check(
        &Maps { d: [(u64::MAX, 1)].into(), ..Maps::default() },
        r#"{"d":{"18446744073709551615":"ALIASED_STARTED"}}"#,
    );
    let times = [(true, Timestamp::default())].into();
    check(&Maps { k: times, ..Maps::default() }, r#"{"k":{"true":"1970-01-01T00:00:00Z"}}"#);
    check(&Maps { l: [("a\"\n".into(), "b".into())].into(), ..Maps::default() }, r#"{"l":{"a\"\n":"b"}}"#);
    for text in [
        r#"{"i":{1:true}}"#,
        r#"{"i":{"":true}}"#,
        r#"{"i":{"x":true}}"#,
        r#"{"i":{"01":true}}"#,
        r#"{"i":{"1.5":true}}"#,
        r#"{"i":{"2147483648":true}}"#,
        r#"{"i":{"1":null}}"#,
        r#"{"i":{"1":true,"1":false}}"#,
        r#"{"i":{"1":true,"\u0031":false}}"#,
        r#"{"i":{"1":true,}}"#,
        r#"{"i":[]}"#,
        r#"{"k":{"True":"1970-01-01T00:00:00Z"}}"#,
        r#"{"k":{true:"1970-01-01T00:00:00Z"}}"#,
    ] {
        assert!(json::from_str::<Maps>(text).is_err(), "{text}");
    }
}

#[test]
fn null_is_an_absent_field_or_a_value() {
    let nulls = r#"{"orderId":null,"isPaid":null,"color":null,"colors":null,"leaves":null,"createdAt":null,"note":null,"cardNumber":null,"account":{}}"#;
    reads(nulls, &golden::Order { payment: Some(Payment::Account(Leaf::default())), ..golden::Order::default() });
    let null = Some(Value { kind: Some(Kind::NullValue(0)) });
    reads(r#"{"extra":null,"null":null}"#, &golden::Order { extra: null.clone(), ..golden::Order::default() });
    reads(r#"{"null":"NULL_VALUE"}"#, &golden::Order::default());
    reads(r#"{"null":0}"#, &golden::Order::default());
    reads::<Value>("null", &null.clone().unwrap_or_default());
    for text in [
        r#"{"tags":[null]}"#,
        r#"{"colors":[null]}"#,
        r#"{"leaves":{"a":null}}"#,
        r#"{"orderId":null,"orderId":"1"}"#,
        "null",
        "nul",
    ] {
        assert!(json::from_str::<golden::Order>(text).is_err(), "{text}");
    }
}

#[test]
fn the_grammar_is_strict_json() {
    for text in [
        "",
        " ",
        "{",
        "}",
        "{]",
        "{,}",
        "{\"x\"}",
        "{\"x\":}",
        "{\"x\":1,}",
        "{\"x\" 1}",
        "{x:1}",
        "{'x':1}",
        "{\"x\":1 \"y\":2}",
        "{\"x\":[1,]}",
        "{\"x\":[,1]}",
        "{\"x\":[1 2]}",
        "{\"x\":tru}",
        "{\"x\":True}",
        "{\"x\":nulL}",
        "{\"x\":01}",
        "{\"x\":-}",
        "{\"x\":\"\\x\"}",
        "{}x",
        "{}{}",
        "\u{feff}{}",
        "// c\n{}",
        "{\"x\":/**/1}",
        "{\"x\":\u{a0}1}",
        "{\"x\":\"\t\"}",
        "{\"x\":truefalse}",
    ] {
        assert!(json::from_str::<golden::Order>(text).is_err(), "{text}");
        assert!(serde_json::from_str::<serde_json::Value>(text).is_err(), "{text} is JSON");
    }
    reads(" \t\r\n{ } \n", &golden::Order::default());
}

#[test]
fn well_known_types_have_special_forms() {
    check(&Timestamp { seconds: -1, nanos: 1_000 }, "\"1969-12-31T23:59:59.000001Z\"");
    check(&Duration { seconds: 0, nanos: -500_000_000 }, "\"-0.500s\"");
    check(&FieldMask { paths: vec!["a.b_c".into(), "de_f1".into()] }, "\"a.bC,deF1\"");
    check(&FieldMask::default(), "\"\"");
    check(&(), "{}");
    check(&i64::MIN, "\"-9223372036854775808\"");
    check(&b"a".to_vec(), "\"YQ==\"");
    check(&Bytes::from_static(b"a"), "\"YQ==\"");
    check(&String::new(), "\"\"");
    check(&1.5_f32, "1.5");
    let kinds = [
        Kind::NullValue(0),
        Kind::BoolValue(false),
        Kind::NumberValue(-1.5),
        Kind::StringValue("x".into()),
        Kind::ListValue(ListValue::default()),
        Kind::StructValue(Struct { fields: [("k".into(), Value { kind: Some(Kind::NullValue(0)) })].into() }),
    ];
    let values = kinds.into_iter().map(|kind| Value { kind: Some(kind) }).collect();
    check(&ListValue { values }, r#"[null,false,-1.5,"x",[],{"k":null}]"#);
    for text in ["\"a_b\"", "\"a,,b\"", "\",\"", "\"a b\"", "[]"] {
        assert!(json::from_str::<FieldMask>(text).is_err(), "{text}");
    }
    for text in ["1", "\"1\"", "\"1m\"", "\"-1.5\"", "null"] {
        assert!(json::from_str::<Duration>(text).is_err(), "{text}");
    }
    for text in ["{\"k\":1,\"k\":2}", "[1e999]", "{\"k\":NaN}", "{\"k\":01}"] {
        assert!(json::from_str::<Value>(text).is_err(), "{text}");
    }
}

#[test]
fn compiled_well_known_types_have_the_same_forms() {
    check(&generated::Timestamp { seconds: 1, nanos: 0 }, "\"1970-01-01T00:00:01Z\"");
    check(&generated::Duration { seconds: 1, nanos: 0 }, "\"1s\"");
    check(&generated::FieldMask { paths: vec!["a_b".into()] }, "\"aB\"");
    check(&generated::Empty {}, "{}");
    check(&generated::StringValue { value: "x".into() }, "\"x\"");
    check(&generated::UInt64Value { value: 7 }, "\"7\"");
    check(&generated::BytesValue { value: b"a".to_vec() }, "\"YQ==\"");
    let any = generated::Any { type_url: "/google.protobuf.StringValue".into(), value: b"\x0a\x01x".to_vec() };
    check(&any, r#"{"@type":"/google.protobuf.StringValue","value":"x"}"#);
    let null = generated::Value { kind: Some(generated::value::Kind::NullValue(0)) };
    let list = generated::ListValue { values: vec![null] };
    let list = generated::Value { kind: Some(generated::value::Kind::ListValue(list)) };
    check(&generated::Struct { fields: [("k".into(), list)].into() }, r#"{"k":[null]}"#);
}

#[test]
fn unrepresentable_values_are_encoding_errors() {
    fn fails(message: &WellKnown, error: &str) {
        assert_eq!(json::to_string(message).map_err(|error| error.to_string()), Err(error.to_owned()));
    }
    let known = WellKnown::default;
    let time = Some(Timestamp { seconds: i64::MAX, nanos: 0 });
    fails(
        &WellKnown { timestamp: time, ..known() },
        "names.shapes.WellKnown.timestamp: out of the range of a timestamp",
    );
    let mixed = Some(Duration { seconds: 1, nanos: -1 });
    fails(&WellKnown { duration: mixed, ..known() }, "names.shapes.WellKnown.duration: out of the range of a duration");
    for path in ["aB", "a__b", "a_", "a_1", "a,b", "", "ä"] {
        let mask = Some(FieldMask { paths: vec![path.into()] });
        fails(
            &WellKnown { mask, ..known() },
            "names.shapes.WellKnown.mask: not a path of a field mask that JSON has a form for",
        );
    }
    let infinite = Value { kind: Some(Kind::NumberValue(f64::INFINITY)) };
    let fields = Some(Struct { fields: [("k".into(), infinite.clone())].into() });
    fails(
        &WellKnown { fields, ..known() },
        "names.shapes.WellKnown.fields[\"k\"]: not a number that a google.protobuf.Value can have in JSON",
    );
    let list = Some(ListValue { values: vec![Value::default(), infinite] });
    fails(
        &WellKnown { list, ..known() },
        "names.shapes.WellKnown.list[1]: not a number that a google.protobuf.Value can have in JSON",
    );
    let any = |type_url: &str, value: &[u8]| Any { type_url: type_url.into(), value: value.to_vec() };
    let unknown = "an Any holds 'x/y.Z', which is not among the types of this message's package: add those of its own package with \
                   `MessageSettings::any_types`";
    fails(
        &WellKnown { anys: vec![Any::default(), any("x/y.Z", b"")], ..known() },
        &format!("names.shapes.WellKnown.anys[1]: {unknown}"),
    );
    let error = json::to_string(&any("/google.protobuf.Duration", b"\x08")).expect_err("no duration");
    assert!(matches!(error.kind(), json::ErrorKind::InvalidAny(_)), "{error}");
    assert_eq!(
        Format::Json.encode(&any("x/y.Z", b"")),
        Err(CodecError::Json(json::to_string(&any("x/y.Z", b"")).unwrap_err()))
    );
}

#[test]
fn any_accepts_its_type_at_any_position() {
    let any = |type_url: &str, value: &[u8]| Any { type_url: type_url.into(), value: value.to_vec() };
    let url = "type.googleapis.com/google.protobuf.Duration";
    let duration = any(url, b"\x08\x02");
    reads(&format!(r#"{{"@type":"{url}","value":"2s"}}"#), &duration);
    reads(&format!(r#"{{"value":"2s","x":[{{}}],"@type":"{url}"}}"#), &duration);
    reads(
        &format!(r#"{{"@type":"/google.protobuf.Any","value":{{"value":"2s","@type":"{url}"}}}}"#),
        &any("/google.protobuf.Any", &frpc::prost::Message::encode_to_vec(&duration)),
    );
    reads(r#"{"@type":"a/b/google.protobuf.Empty"}"#, &any("a/b/google.protobuf.Empty", b""));
    reads(r#"{"@type":"a/b/google.protobuf.Empty","value":{}}"#, &any("a/b/google.protobuf.Empty", b""));
    reads(r#"{"@type":"/google.protobuf.Value","value":null}"#, &any("/google.protobuf.Value", b"\x08\x00"));
    reads(" { } ", &Any::default());
    for (text, error) in [
        (r#"{"value":1}"#, "an Any needs its type as \"@type\" (at byte 0)"),
        (r#"{"@type":1}"#, "expected a type in quotes, found a number (at byte 9)"),
        (r#"{"@type":"/google.protobuf.Duration"}"#, "an Any of this type needs its value as \"value\" (at byte 37)"),
        (
            r#"{"@type":"/google.protobuf.Duration","value":1}"#,
            "expected a duration in quotes, found a number (at byte 45)",
        ),
        (r#"{"@type":"/google.protobuf.Empty","@type":"/google.protobuf.Empty"}"#, "occurs twice (at byte 42)"),
        (r#"{"@type":"google.protobuf.Empty"}"#, "an Any holds 'google.protobuf.Empty', which"),
        (r#"{"@type":""}"#, "an Any holds '', which"),
    ] {
        let found = json::from_str::<Any>(text).expect_err(text).to_string();
        assert!(found.contains(error), "{found}");
    }
}

#[test]
fn any_holds_types_that_are_passed() {
    let any = Any { type_url: "/json.Leaf".into(), value: b"\x0a\x01x".to_vec() };
    let known = WellKnown { any: Some(any), ..WellKnown::default() };
    assert!(matches!(
        json::to_string(&known).expect_err("of another package").kind(),
        json::ErrorKind::UnknownType { .. }
    ));
    let text = r#"{"any":{"@type":"/json.Leaf","label":"x"}}"#;
    assert_eq!(json::to_string_with(&known, golden::json_types()).as_deref(), Ok(text));
    assert_eq!(json::from_str_with::<WellKnown>(text, golden::json_types()).as_ref(), Ok(&known));
    assert_eq!(json::from_slice_with::<WellKnown>(text.as_bytes(), golden::json_types()), Ok(known));
    let error = json::from_str::<WellKnown>(text).expect_err("of another package");
    assert!(matches!(error.kind(), json::ErrorKind::UnknownType { .. }), "{error}");
    const BOTH: &json::Types = &json::Types::of_packages(&[hostile::json_types, golden::json_types]);
    for text in [r#"{"@type":"/json.Leaf","label":"x"}"#, r#"{"@type":"/codec.hostile.Nest"}"#] {
        let any: Any = json::from_str_with(text, BOTH).expect("a type of one of the packages");
        assert_eq!(json::to_string_with(&any, BOTH).as_deref(), Ok(text));
    }
}

#[test]
fn oneof_members_are_written_even_if_default() {
    for (member, text) in [
        (All::FInt32(0), r#"{"fInt32":0}"#),
        (All::FString(String::new()), r#"{"fString":""}"#),
        (All::FText(String::new()), r#"{"fText":""}"#),
        (All::FVoid(()), r#"{"fVoid":{}}"#),
        (All::FAliased(0), r#"{"fAliased":"ALIASED_UNKNOWN"}"#),
        (All::FChoices(Box::default()), r#"{"fChoices":{}}"#),
    ] {
        check(&Choices { all: Some(member), single: None }, text);
    }
    refuses::<Choices>(
        r#"{"fInt32":0,"fBool":false}"#,
        "names.shapes.Choices.fBool: another member of the same oneof is set already (at byte 20)",
    );
    refuses::<Choices>(r#"{"fInt32":0,"f_int32":1}"#, "names.shapes.Choices.fInt32: occurs twice (at byte 22)");
}
