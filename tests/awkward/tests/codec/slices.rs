//! `Bytes` fields share the memory of the packet.

use awkward::{
    names::shapes as copied,
    other::names::shapes::{Choices, Lists, Maps, Optionals, choices::All},
};
use bytes::Bytes;

use crate::{read, round_trip};

const BLOB: &[u8] = b"seen in its packet";

#[test]
fn every_bytes_field_is_a_slice_of_the_packet() {
    let blob = Bytes::from_static(BLOB);
    check(&Optionals { f_bytes: Some(blob.clone()), ..Optionals::default() }, |message| {
        message.f_bytes.iter().collect()
    });
    check(&Lists { f_bytes: vec![blob.clone(); 3], ..Lists::default() }, |message| message.f_bytes.iter().collect());
    check(&Maps { e: [(1, blob.clone()), (2, blob.clone())].into(), ..Maps::default() }, |message| {
        message.e.values().collect()
    });
    check(&Choices { all: Some(All::FBytes(blob)), ..Choices::default() }, |message| match &message.all {
        Some(All::FBytes(blob)) => vec![blob],
        _ => Vec::new(),
    });
}

fn check<M>(message: &M, blobs: impl Fn(&M) -> Vec<&Bytes>)
where
    M: frpc::codec::Message + PartialEq + std::fmt::Debug,
{
    let packet = round_trip(message);
    let message: M = read(&packet).expect("it was read before");
    let blobs = blobs(&message);
    assert!(!blobs.is_empty());
    for blob in blobs {
        assert_eq!(blob, BLOB);
        assert!(packet.as_ptr_range().contains(&blob.as_ptr()), "a copy");
    }
}

#[test]
fn a_slice_outlives_the_packet_handle() {
    let packet = round_trip(&Optionals { f_bytes: Some(Bytes::from_static(BLOB)), ..Optionals::default() });
    let message: Optionals = read(&packet).expect("it was read before");
    drop(packet);
    assert_eq!(message.f_bytes.as_deref(), Some(BLOB));
}

#[test]
fn encoded_bytes_are_independent_of_the_rust_types() {
    let blob = || BLOB.to_vec();
    let lists = copied::Lists { f_bytes: vec![blob(), Vec::new()], f_sparse: vec![-1, 77], ..copied::Lists::default() };
    let sliced: Lists = read(&round_trip(&lists)).expect("the same layout");
    assert_eq!(sliced.f_bytes, lists.f_bytes);
    assert_eq!(round_trip(&sliced), round_trip(&lists));

    let maps =
        copied::Maps { e: [(1, blob())].into(), l: [("k".into(), "v".into())].into(), ..copied::Maps::default() };
    let sorted: Maps = read(&round_trip(&maps)).expect("the same layout");
    assert_eq!(round_trip(&sorted), round_trip(&maps));

    let choices = copied::Choices { all: Some(copied::choices::All::FBytes(Vec::new())), single: None };
    let sliced: Choices = read(&round_trip(&choices)).expect("the same layout");
    assert_eq!(sliced.all, Some(All::FBytes(Bytes::new())));
    assert_eq!(round_trip(&sliced), round_trip(&choices));
}
