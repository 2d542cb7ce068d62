//! Groups of proto2, and messages with the feature DELIMITED of editions.

use awkward::{
    editions::vectors::editions as vectors,
    schemas::accepted::groups::{Order, order},
};
use bytes::Bytes;
use frpc::{
    codec::{Format, Message, json},
    prost::Message as _,
};

fn order() -> Order {
    let item = |name: &str| order::Item { name: Some(name.to_owned()), sizes: vec![1, 2] };
    let inner = Order { seal: order::Seal { is_closed: true }, item: vec![item("inner")], ..Order::default() };
    Order {
        item: vec![item("a"), item("b")],
        parent: Some(Box::new(order::Parent {
            order: Some(inner.clone()),
            parent: Some(Box::new(order::Parent::default())),
        })),
        seal: order::Seal { is_closed: false },
        payment: Some(order::Payment::Exchange(Box::new(order::Exchange {
            r#for: Some(inner),
            again: Some(Box::new(order::Exchange::default())),
        }))),
    }
}

fn round_trips<M: Message + json::Message + PartialEq + std::fmt::Debug>(message: &M) {
    for format in [Format::Polyglot, Format::Proto, Format::Json] {
        let bytes: Bytes = format.encode(message).expect("it can be encoded").into_bytes();
        assert_eq!(&format.decode::<M>(&bytes).expect("it can be decoded"), message, "{format}");
    }
}

#[test]
fn groups_round_trip_in_every_format() {
    round_trips(&order());
    round_trips(&Order::default());
    let text = json::to_string(&order()).unwrap();
    assert!(text.contains(r#""item":[{"name":"a","sizes":[1,2]}"#), "{text}");
    assert!(text.contains(r#""exchange":{"for":{"#), "{text}");
}

#[test]
fn files_of_an_edition_round_trip_in_every_format() {
    let line = vectors::Line { text: Some("one".to_owned()), inner: None };
    let order = vectors::Order {
        count: Some(0),
        customer: "Ada".to_owned(),
        sizes: vec![1, 2],
        packed: vec![1, 2],
        line: Some(line.clone()),
        lines: vec![line.clone(), vectors::Line::default()],
        by_name: [("a".to_owned(), line.clone())].into(),
        payment: Some(vectors::order::Payment::Voucher(line)),
        parent: Some(Box::default()),
        ..vectors::Order::default()
    };
    round_trips(&order);
    assert_eq!((vectors::Order::default().count(), order.count()), (7, 0));
    assert_eq!(vectors::Order::default().state(), vectors::State::Open);
}

/// The bytes were written by protobuf for Python.
#[test]
fn the_bytes_of_an_edition_are_those_of_protobuf() {
    let line = vectors::Line { text: Some("x".to_owned()), inner: None };
    let order = vectors::Order {
        customer: "A".to_owned(),
        sizes: vec![1, 2],
        packed: vec![1, 2],
        line: Some(line.clone()),
        by_name: [("k".to_owned(), line)].into(),
        ..vectors::Order::default()
    };
    let expected = b"\x22\x01A\x28\x01\x28\x02\x32\x02\x01\x02\x43\x0a\x01x\x44\x52\x08\x0a\x01k\x12\x03\x0a\x01x";
    assert_eq!(order.encode_to_vec(), expected);
}
