//! Errors with their positions: the text of each, and the maximum depth of messages.

use std::fmt::Debug;

use awkward::{
    names::many::{ManyFields, Part},
    vectors::{
        Choice, Enums, Leaf, MapKeys, Ordering, Outer, Repeated, Text, Total, Tree,
        outer::{Middle, middle::Inner},
    },
};
use frpc::codec::{self, DecodeErrorKind, Kind, Message, Reader};

use crate::{plain, read, round_trip, unhex};

#[test]
fn truncated_bytes_are_reported() {
    check::<Leaf>("", "Leaf: the bytes end here");
    check::<Leaf>("08", "Leaf: the bytes end here");
    check::<Leaf>("0800", "Leaf.label: the bytes end here");
    check::<Leaf>("0800 05", "Leaf.label: the bytes end here");
    check::<Leaf>("0800 050a80", "Leaf.label: the bytes end here");
    check::<Leaf>("0800 050a00 0c80808080", "Leaf.weight: the bytes end here");
    check::<Repeated>("0800 010f0a01", "Repeated.r_double: claims a length of 1, 0 bytes are left");
    check::<Repeated>("0800 010f0a01 0f000000000000", "Repeated.r_double[0]: the bytes end here");
    check::<Outer>("0800 00 00", "Outer.named: the bytes end here");
    check::<Leaf>("06", "Leaf: the bytes end here");
}

#[test]
fn values_of_a_wrong_kind_are_reported() {
    check::<Leaf>("050a00 0c00", "Leaf: expected u8, found string");
    check::<Leaf>("0800 040a00 0c00", "Leaf.label: expected string, found bytes");
    check::<Leaf>("0800 050a00 0a01", "Leaf.weight: expected i32, found u32");
    check::<Leaf>("0800 050a00 63", "Leaf.weight: expected i32, found 0x63");
    check::<Text>("0800 050b00", "Text.text: expected u32, found u64");
    check::<Tree>("0800 050a00 01030a00 0d", "Tree.only: expected u8, found i64");
    check::<Tree>("0800 050a00 00", "Tree.children: expected list, found nil");
    check::<Tree>("0800 050a00 01030a00 00 01030a00", "Tree.named: expected map, found list");
    check::<Enums>("0800 0c00", "Enums.color: expected u32, found i32");
    check::<Leaf>("060a0161", "Leaf: expected string, found u32");
    check::<Inner>("0800 0c00", "Outer.Middle.Inner.value: expected i64, found i32");
    let error = read::<Leaf>(&unhex("0800050a000a01")).expect_err("another kind");
    assert_eq!(error.kind(), &DecodeErrorKind::WrongKind { expected: Kind::I32, found: 0x0a });
    assert_eq!(error.path(), "Leaf.weight");
}

#[test]
fn elements_of_a_wrong_kind_are_reported() {
    check::<Tree>("0800 050a00 010c0a00", "Tree.children: expected elements of kind message, found i32");
    check::<Tree>("0800 050a00 01ff0a00", "Tree.children: expected elements of kind message, found 0xff");
    check::<Tree>("0800 050a00 01", "Tree.children: the bytes end here");
    check::<Tree>("0800 050a00 01030a00 00 020c030a00", "Tree.named: expected elements of kind string, found i32");
    check::<Tree>("0800 050a00 01030a00 00 02050a0a00", "Tree.named: expected elements of kind message, found u32");
}

#[test]
fn paths_include_lists_and_maps() {
    let inner = |flag| format!("0800 0d00 07{flag}");
    let inners = format!("0800 0800 01030a02 {} {}", inner("01"), inner("02"));
    check::<Outer>("0800 0800 00", "Outer.middle.inners: expected list, found nil");
    check::<Outer>(&inners, "Outer.middle.inners[1].flag: 0x02 is no bool");
    let named = format!("0800 00 00 0205030a02 050a0161 {} 050a0162 {}", inner("00"), inner("ff"));
    check::<Outer>(&named, "Outer.named[1].flag: 0xff is no bool");
    check::<Outer>("0800 00 00 0205030a01 00 0000 00", "Outer.named[0]: expected string, found nil");
    let children = "0800 050a00 01030a03 00 00 0800 050a00 01030a01 0800 04";
    check::<Tree>(children, "Tree.children[2].children[0].name: expected string, found bytes");
    let lists = "0800 050a00 0a00 0700 040a00 0a00 010c0a03 0c00 0c00 0d00";
    check::<Ordering>(lists, "Ordering.first_list[2]: expected i32, found i64");
}

#[test]
fn overlong_integers_are_reported() {
    check::<Leaf>("0800 050a00 0c8280808080 00", "Leaf.weight: i32 is longer than its type allows");
    check::<Text>("0800 050a8280808080 00", "Text.text: u32 is longer than its type allows");
    check::<Total>("0800 0d80808080808080808080 00", "Total.sum: i64 is longer than its type allows");
    check::<Middle>("0800 01030a808080808080", "Outer.Middle.inners: u32 is longer than its type allows");
    let unsigned = "0800 010f0a00 010e0a00 010c0a00 010d0a00 010a0a00 010b0a01 0b8080808080808080808000";
    check::<Repeated>(unsigned, "Repeated.r_uint64[0]: u64 is longer than its type allows");
}

#[test]
fn invalid_utf8_is_reported() {
    check::<Text>("0800 050a02c328", "Text.text: string is not UTF-8");
    check::<Text>("0800 050a03eda080", "Text.text: string is not UTF-8");
    check::<Text>("06 050a01ff", "Text: string is not UTF-8");
    check::<MapKeys>(&format!("0800 {}", "020c050a010c00050a01ff"), "MapKeys.k_int32[0]: string is not UTF-8");
}

#[test]
fn lengths_and_counts_beyond_the_end_are_reported() {
    check::<Text>("0800 050a03 6161", "Text.text: claims a length of 3, 2 bytes are left");
    check::<Text>("0800 050affffffff0f 6161", "Text.text: claims a length of 4294967295, 2 bytes are left");
    let blob = "0800 050a00 0c00 050a00 040affffffff0f";
    check::<Choice>(blob, "Choice.blob: claims a length of 4294967295, 0 bytes are left");
    check::<Tree>("0800 050a00 01030a03 0000", "Tree.children: claims a length of 3, 2 bytes are left");
    let named = "0800 050a00 01030a00 00 0205030a02 050a0000 00";
    check::<Tree>(named, "Tree.named: claims a length of 2, 5 bytes are left");
    check::<Text>("06 050a05 61", "Text: claims a length of 5, 1 bytes are left");
}

#[test]
fn messages_may_be_nested_a_hundred_deep() {
    let limit = usize::try_from(Reader::DEPTH_MAX).expect("a hundred");
    assert_eq!(limit, 100);
    round_trip(&tree(limit));
    let error = read::<Tree>(&codec::encode(&tree(limit + 1))).expect_err("too deep");
    assert_eq!(error.kind(), &DecodeErrorKind::TooDeep { limit: 100 });
    assert_eq!(error.to_string(), format!("Tree{}: messages are nested deeper than 100", ".only".repeat(limit)));
}

#[test]
fn every_kind_of_nesting_counts() {
    let children = |tree| Tree { children: vec![tree], ..Tree::default() };
    let named = |tree| Tree { named: [(String::new(), tree)].into(), ..Tree::default() };
    for wrap in [children as fn(Tree) -> Tree, named] {
        let nested = |depth| (1..depth).fold(Tree::default(), |tree, _| wrap(tree));
        round_trip(&nested(100));
        let error = read::<Tree>(&codec::encode(&nested(101))).expect_err("too deep");
        assert_eq!(error.kind(), &DecodeErrorKind::TooDeep { limit: 100 });
    }
}

#[test]
fn siblings_do_not_count_as_nested() {
    round_trip(&Tree { children: vec![tree(99); 50], ..Tree::default() });
}

fn tree(depth: usize) -> Tree {
    (1..depth).fold(Tree::default(), |tree, _| Tree { only: Some(Box::new(tree)), ..Tree::default() })
}

/// Recursive messages with two hundred fields are larger than any realistic ones.
#[test]
fn the_deepest_messages_fit_the_stack_of_a_thread() {
    let nested = on_a_stack_of(64 << 20, || {
        codec::encode(&(0..49).fold(ManyFields::default(), |whole, _| ManyFields {
            f016: Some(Box::new(Part { whole: Some(Box::new(whole)) })),
            ..ManyFields::default()
        }))
    });
    on_a_stack_of(STACK_LEN, move || read::<ManyFields>(&nested).map(drop).expect("ninety-nine deep"));
}

fn on_a_stack_of<R: Send + 'static>(len: usize, work: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = std::thread::Builder::new().stack_size(len).spawn(work).expect("a thread");
    thread.join().expect("no panic")
}

/// The default stack size of a thread, also in tokio. Unoptimized builds need more.
const STACK_LEN: usize = if cfg!(debug_assertions) { 4 << 20 } else { 2 << 20 };

#[test]
fn a_prefix_is_refused_or_lacks_only_the_trailer() {
    let choice = Choice { value: Some(awkward::vectors::choice::Value::Number(0)), ..Choice::default() };
    let (bytes, plain) = (round_trip(&choice), plain(&choice));
    assert!(plain.len() < bytes.len());
    for len in 0..bytes.len() {
        let decoded = read::<Choice>(&bytes.slice(..len));
        let expected = (plain.len() <= len).then(Choice::default);
        assert_eq!(decoded.ok(), expected, "{len} bytes");
    }
}

fn check<M: Message + Debug>(bytes: &str, expected: &str) {
    let error = read::<M>(&unhex(&bytes.replace(' ', ""))).expect_err(expected);
    assert_eq!(error.to_string(), expected, "{bytes}");
}
