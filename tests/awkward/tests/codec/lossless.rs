//! Peers in Rust lose nothing. A peer that ignores the trailer sees the same values.

use std::{collections::HashMap, fmt::Debug};

use awkward::{
    golden::fields::fields,
    names::{
        many::ManyFields,
        old::Old,
        shapes::{Choices, Empty, Forest, Lists, Maps, Optionals, Sparse, Tree, choices, tree::Either},
    },
    vectors,
};
use frpc::codec::{self, Message};

use crate::{plain, read, round_trip};

#[test]
fn optional_fields_set_to_their_default_stay_set() {
    let set = Optionals {
        f_double: Some(0.0),
        f_float: Some(0.0),
        f_int32: Some(0),
        f_int64: Some(0),
        f_uint32: Some(0),
        f_uint64: Some(0),
        f_bool: Some(false),
        f_string: Some(String::new()),
        f_bytes: Some(Vec::new()),
        f_aliased: Some(0),
        f_sparse: Some(0),
        f_empty: None,
    };
    check_trailer(&set, &Optionals::default());

    let one_of_them = [
        Optionals { f_double: Some(0.0), ..Optionals::default() },
        Optionals { f_int64: Some(0), ..Optionals::default() },
        Optionals { f_bool: Some(false), f_string: Some("text".into()), ..Optionals::default() },
        Optionals { f_bytes: Some(Vec::new()), f_empty: Some(Empty {}), ..Optionals::default() },
        Optionals { f_sparse: Some(0), f_aliased: Some(1), ..Optionals::default() },
    ];
    one_of_them.iter().for_each(check_needs_trailer);
}

#[test]
fn oneof_members_set_to_their_default_stay_set() {
    use choices::All::*;
    let members =
        [FDouble(0.0), FFloat(0.0), FInt32(0), FInt64(0), FUint32(0), FUint64(0), FBool(false), FString(String::new())];
    for member in members.into_iter().chain([FBytes(Vec::new()), FAliased(0), FSparse(0)]) {
        check_trailer(&Choices { all: Some(member), single: None }, &Choices::default());
    }
    let single = Some(choices::Single::Only(String::new()));
    check_trailer(&Choices { all: None, single: single.clone() }, &Choices::default());
    check_needs_trailer(&Choices { all: Some(FInt32(0)), single });
}

#[test]
fn representable_values_need_no_trailer() {
    use choices::All::*;
    let members = [FDouble(1.0), FFloat(-1.0), FInt32(-1), FInt64(1), FUint32(1), FUint64(1), FBool(true)]
        .into_iter()
        .chain([FString("t".into()), FBytes(vec![0]), FAliased(1), FSparse(i32::MAX), FSparse(-1), FSparse(i32::MIN)])
        .chain([FEmpty(Empty {}), FChoices(Box::default()), FTimestamp(Default::default())])
        .chain([FText(String::new()), FVoid(())]);
    for member in members {
        check_plain(&Choices { all: Some(member), single: None });
    }
    check_plain(&Choices::default());
    check_plain(&Optionals::default());
    check_plain(&Optionals {
        f_double: Some(-0.0),
        f_float: Some(-0.0),
        f_empty: Some(Empty {}),
        ..Optionals::default()
    });
    check_plain(&Tree { right: Some(Box::default()), either: Some(Either::Forest(Box::default())), ..Tree::default() });
    check_plain(&ManyFields::default());
    check_plain(&Lists { f_empty: vec![Empty {}; 3], f_void: vec![(); 3], f_wrapped: vec![0, -1], ..Lists::default() });
}

#[test]
fn oneof_members_are_distinguished_in_any_nesting() {
    let empty_text = Tree { either: Some(Either::Text(String::new())), ..Tree::default() };
    let nested = |tree: &Tree| Tree {
        left: Some(Box::new(tree.clone())),
        right: Some(Box::default()),
        children: vec![Tree::default(), tree.clone(), Tree::default(), tree.clone()],
        by_name: HashMap::from(["a", "b", "c"].map(|name| (name.into(), tree.clone()))),
        either: Some(Either::Forest(Box::new(Forest { tree: Some(Box::new(tree.clone())), branch: None }))),
    };
    check_needs_trailer(&nested(&empty_text));
    check_needs_trailer(&nested(&nested(&empty_text)));
    check_needs_trailer(&nested(&nested(&nested(&empty_text))));

    let choice = |value| Choices { all: value, single: None };
    let chain = [Some(0), None, Some(5), Some(0)].into_iter().fold(choice(None), |inner, single| Choices {
        all: Some(choices::All::FChoices(Box::new(inner))),
        single: single.map(|len: usize| choices::Single::Only("x".repeat(len))),
    });
    check_needs_trailer(&chain);
}

#[test]
fn the_trailer_may_have_many_entries() {
    let both = fields::Choice { before: Some(0), favourite: Some(0), ..Default::default() };
    check_trailer(&both, &fields::Choice::default());
    check_needs_trailer(&fields::Choice { value: Some(fields::choice::Value::Text(String::new())), ..both });
    let tree = Tree { either: Some(Either::Text(String::new())), ..Tree::default() };
    check_needs_trailer(&Tree { children: vec![tree; 1_000], ..Tree::default() });
}

#[test]
fn unknown_enum_numbers_round_trip() {
    let numbers = (-20..=210).chain([i32::MIN, i32::MIN + 1, i32::MIN + 5, i32::MIN + 10, i32::MIN + 100, -101]);
    for number in numbers.chain([1 << 30, i32::MAX - 1, i32::MAX]) {
        round_trip(&vectors::Enums {
            color: number,
            sparse: number,
            aliased: number,
            level: number,
            ..Default::default()
        });
        round_trip(&Optionals { f_sparse: Some(number), f_aliased: Some(number), ..Optionals::default() });
        round_trip(&Choices { all: Some(choices::All::FSparse(number)), single: None });
        round_trip(&Choices { all: Some(choices::All::FAliased(number)), single: None });
        let list = vec![number, 0, number, Sparse::Last.into(), number];
        round_trip(&Lists { f_aliased: list.clone(), f_sparse: list, ..Lists::default() });
        let map = |keys: std::ops::Range<u8>| keys.map(|key| (key.into(), number)).collect();
        let maps = Maps { c: map(0..9), d: (0..9).map(|key| (key, number)).collect(), ..Maps::default() };
        round_trip(&maps);
        round_trip(&Maps { j: (0..3).map(|key| (key, maps.clone())).collect(), ..maps });
    }
}

#[test]
fn plain_readers_never_misread_unknown_numbers() {
    const SPARSE: [i32; 5] = [0, 100, 10, -1, i32::MAX];
    for number in (-20..=210).chain([i32::MIN, i32::MIN + 100]).filter(|number| !SPARSE.contains(number)) {
        let enums = vectors::Enums { sparse: number, ..Default::default() };
        let seen: vectors::Enums = read(&plain(&enums)).expect("the same layout");
        assert_eq!(seen.sparse, number, "it has a position of its own");
    }
    // Names of aliases take up positions, so some numbers have no position here.
    for number in 3..100 {
        let enums = vectors::Enums { aliased: number, ..Default::default() };
        let seen: vectors::Enums = read(&plain(&enums)).expect("the same layout");
        assert!(!(0..3).contains(&seen.aliased), "{number} became {}", seen.aliased);
    }
}

#[test]
fn signs_of_zero_and_payloads_of_nan_stay() {
    let doubles = [0x8000_0000_0000_0000, 0x7ff8_0000_0000_0001, 0xfff8_dead_beef_0000, 0x7ff0_0000_0000_0001, 1];
    for bits in doubles {
        let message = Optionals { f_double: Some(f64::from_bits(bits)), ..Optionals::default() };
        let seen: Optionals = read(&codec::encode(&message)).expect("written just now");
        assert_eq!(seen.f_double.map(f64::to_bits), Some(bits));
        let message = Lists { f_double: vec![f64::from_bits(bits)], ..Lists::default() };
        let seen: Lists = read(&codec::encode(&message)).expect("written just now");
        assert_eq!(seen.f_double[0].to_bits(), bits);
    }
    for bits in [0x8000_0000, 0x7fc0_0001, 0xffc0_beef, 0x7f80_0001] {
        let message = Optionals { f_float: Some(f32::from_bits(bits)), ..Optionals::default() };
        let seen: Optionals = read(&codec::encode(&message)).expect("written just now");
        assert_eq!(seen.f_float.map(f32::to_bits), Some(bits));
    }
}

#[test]
fn unset_fields_of_proto2_stay_unset() {
    round_trip(&Old::default());
    round_trip(&Old { note: Some(String::new()), count: Some(0), maybe_level: Some(2), ..Old::default() });
    round_trip(&Old { maybe_level: Some(1), data: Some(Vec::new()), ..Old::default() });
}

/// Asserts that the trailer preserves everything, and that the values are the same without it.
fn check_trailer<M: Message + PartialEq + Debug>(message: &M, seen_without: &M) {
    check_needs_trailer(message);
    assert_eq!(read::<M>(&plain(message)).as_ref(), Ok(seen_without), "{message:?}");
    assert_eq!(plain(message), plain(seen_without), "{message:?}");
}

fn check_needs_trailer<M: Message + PartialEq + Debug>(message: &M) {
    let (bytes, plain) = (round_trip(message), plain(message));
    assert!(bytes.starts_with(&plain) && bytes[plain.len()..].starts_with(&[0x1f, 1]), "{message:?}");
    assert!(read::<M>(&plain).is_ok_and(|seen| seen != *message), "{message:?}");
}

fn check_plain<M: Message + PartialEq + Debug>(message: &M) {
    assert_eq!(round_trip(message), plain(message), "{message:?}");
}
