//! Required fields: the same bytes as without the option, and an error with the path of a missing field.

use std::fmt::Debug;

use awkward::{golden::required::required as checked, optional::required as plain, strict};
use bytes::Bytes;
use frpc::{
    codec::{Format, Message},
    prost::Message as _,
    prost_types::{Timestamp, Value, value},
};

const FORMATS: [Format; 3] = [Format::Polyglot, Format::Proto, Format::Json];

fn encode<M: Message>(format: Format, message: &M) -> Bytes {
    format.encode(message).expect("it has the format").into_bytes()
}

/// Checks that a message is decoded from the bytes of a peer without required fields, and encoded to the same.
fn same<A: Message + Debug, B: Message>(from: &A) -> B {
    let mut decoded = None;
    for format in FORMATS {
        let bytes = encode(format, from);
        let message: B = format.decode(&bytes).expect("the bytes are complete");
        assert_eq!(encode(format, &message), bytes, "{format}: {from:?}");
        decoded = Some(message);
    }
    decoded.expect("there are formats")
}

/// Checks the error in every format.
fn refused<A: Message, B: Message + Debug>(from: &A, path: &str) {
    for format in FORMATS {
        let error = format.decode::<B>(&encode(format, from)).expect_err("a field is missing").to_string();
        let expected = match format {
            // Names in JSON are in camel case, as in the text.
            Format::Json => format!("required.{} is required (at byte", path.replace("created_at", "createdAt")),
            _ => format!("{path} is required"),
        };
        assert!(error.starts_with(&expected), "{format}: {error}, not {expected}");
    }
}

fn customer() -> plain::Customer {
    let address = Some(plain::Address { city: "Oslo".to_owned() });
    plain::Customer { name: "Ada".to_owned(), address, parent: None }
}

fn order() -> plain::Order {
    plain::Order {
        customer: Some(customer()),
        created_at: Some(Timestamp { seconds: 1, nanos: 0 }),
        note: Some(String::new()),
        priority: Some(0),
        ..plain::Order::default()
    }
}

#[test]
fn bytes_are_the_same_as_without_required_fields() {
    let decoded: checked::Order = same(&order());
    assert_eq!(decoded.customer.address.city, "Oslo");
    let parent = Some(Box::new(customer()));
    let full = plain::Order {
        receiver: Some(plain::Customer { parent, ..customer() }),
        partners: [("a".to_owned(), customer())].into(),
        items: vec![plain::Item { name: "i".to_owned() }, plain::Item::default()],
        gift: Some(plain::Item::default()),
        priority: Some(7),
        payment: Some(plain::order::Payment::Card(plain::Card { owner: Some(customer()) })),
        ..order()
    };
    let decoded: checked::Order = same(&full);
    let again: plain::Order = same(&decoded);
    assert_eq!(again, full);
}

#[test]
fn a_missing_field_is_an_error_with_its_path() {
    use plain::{Card, Customer, Order, order::Payment};
    let lost = || Customer { address: None, ..customer() };
    for (from, path) in [
        (Order { customer: None, ..order() }, "Order.customer"),
        (Order { customer: Some(lost()), ..order() }, "Order.customer.address"),
        (Order { created_at: None, ..order() }, "Order.created_at"),
        (Order { note: None, ..order() }, "Order.note"),
        (Order { priority: None, ..order() }, "Order.priority"),
        (Order { receiver: Some(lost()), ..order() }, "Order.receiver.address"),
        (
            Order { receiver: Some(Customer { parent: Some(Box::new(lost())), ..customer() }), ..order() },
            "Order.receiver.parent.address",
        ),
        (Order { payment: Some(Payment::Card(Card { owner: None })), ..order() }, "Order.card.owner"),
        (Order { payment: Some(Payment::Card(Card { owner: Some(lost()) })), ..order() }, "Order.card.owner.address"),
    ] {
        refused::<_, checked::Order>(&from, path);
    }
    let from = Order { partners: [("a".to_owned(), lost())].into(), ..order() };
    for (format, path) in FORMATS.into_iter().zip(["[0]", "[0]", "[\"a\"]"]) {
        let error = format.decode::<checked::Order>(&encode(format, &from)).unwrap_err().to_string();
        assert!(error.contains(&format!("Order.partners{path}.address is required")), "{error}");
    }
}

#[test]
fn an_absent_message_lacks_its_required_fields() {
    // Nil in place of the message, as an absent one arrives from peers in Go.
    let error = Format::Polyglot.decode::<checked::Customer>(&Bytes::from_static(b"\x00")).unwrap_err();
    assert_eq!(error.to_string(), "Customer.address is required");
    assert!(Format::Polyglot.decode::<checked::Address>(&Bytes::from_static(b"\x00")).is_ok());
    let error = Format::Json.decode::<checked::Customer>(&Bytes::from_static(b"{\"address\": null}")).unwrap_err();
    assert_eq!(error.to_string(), "required.Customer.address is required (at byte 12)");
}

#[test]
fn required_fields_of_proto2_are_checked() {
    use strict::names::old::{Level, Old, old::Inner};
    let old = Old { inner: Box::new(Inner { flag: false }), level: Level::High.into(), ..Old::default() };
    for format in FORMATS {
        assert_eq!(format.decode::<Old>(&encode(format, &old)).as_ref(), Ok(&old));
    }
    for (bytes, path) in [
        (&b""[..], "Old.name"),
        (b"\x0a\x00\x38\x01", "Old.inner"),
        (b"\x0a\x00\x2a\x00\x38\x01", "Old.inner.flag"),
        (b"\x0a\x00\x2a\x02\x08\x00", "Old.level"),
    ] {
        let error = Format::Proto.decode::<Old>(&Bytes::from_static(bytes)).unwrap_err();
        assert_eq!(error.to_string(), format!("{path} is required"));
    }
    // By default they are filled in, as before.
    assert!(Format::Proto.decode::<awkward::names::old::Old>(&Bytes::new()).is_ok());
}

#[test]
fn all_types_can_be_required() {
    use strict::marks::{Marks, Option, Result, marks};
    let marks = Marks {
        data: Bytes::from_static(b"d"),
        value: Value { kind: Some(value::Kind::NullValue(0)) },
        option: Option { result: Box::new(Result { option: Some(Box::default()) }) },
        inner: vec![marks::Inner { some: marks::Some { x: 1 } }],
        ..Marks::default()
    };
    for format in [Format::Polyglot, Format::Proto] {
        assert_eq!(format.decode::<Marks>(&encode(format, &marks)).as_ref(), Ok(&marks), "{format}");
    }
    let error = Format::Proto.decode::<Marks>(&marks.encode_to_vec()[3..].to_vec().into()).unwrap_err();
    assert_eq!(error.to_string(), "Marks.data is required");
}
