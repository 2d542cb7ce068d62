//! Every message survives a round trip, and arbitrary bytes do no harm.

use std::{fmt::Debug, hash::Hash};

use awkward::{
    names::shapes::{
        Choices, Empty, Forest, Lists, Maps, Optionals, Tree,
        choices::{All, Single},
        forest::Branch,
        tree::Either,
    },
    vectors::{self, Enums, Leaf, Scalars},
};
use bytes::Bytes;
use frpc::{
    codec::{self, DecodedContent, Format, Message},
    prost,
    prost_types::Timestamp,
};
use proptest::{collection, option, prelude::*, sample::Index};

use crate::{plain, read, round_trip};

macro_rules! properties {
    ($($name:ident)*) => {$(
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(config())]

                #[test]
                fn round_trips(message in super::$name()) {
                    round_trip(&message);
                    check_plain(&message);
                }

                #[test]
                fn is_the_same_in_every_format(message in super::$name()) {
                    check_formats(&message);
                }

                #[test]
                fn damaged_bytes_cause_no_panic(message in super::$name(), damage in damage()) {
                    check_damaged(&message, &damage);
                }
            }
        }
    )*};
}

properties! { scalars enums choice optionals choices lists maps tree }

/// A failure prints its smallest input. No regression file is written.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

/// Asserts that a reader without support for the trailer accepts the message and needs no trailer for its result.
fn check_plain<M: Message + PartialEq + Debug>(message: &M) {
    let bytes = plain(message);
    let seen: M = read(&bytes).expect("a message without its trailer is one");
    assert_eq!(round_trip(&seen).len(), bytes.len(), "{seen:?}");
}

/// Asserts that protobuf encodes as in prost, and that both formats restore the message.
fn check_formats<M: Message + prost::Message + PartialEq + Debug>(message: &M) {
    let proto = Format::Proto.encode(message).expect("generated messages have it").into_bytes();
    assert_eq!(proto, message.encode_to_vec(), "{message:?}");
    let polyglot = Format::Polyglot.encode(message).expect("every message has it").into_bytes();
    let of_proto: M = Format::Proto.decode(&proto).expect("it was just written");
    let of_polyglot: M = Format::Polyglot.decode(&polyglot).expect("it was just written");
    assert_eq!(&of_proto, message);
    assert_eq!(of_polyglot, of_proto);
}

fn check_damaged<M: Message + Debug>(message: &M, damage: &[Damage]) {
    let mut bytes = codec::encode(message).to_vec();
    damage.iter().for_each(|damage| damage.apply(&mut bytes));
    let bytes = Bytes::from(bytes);
    match codec::decode::<M>(&bytes) {
        Ok(DecodedContent::Message(message)) => assert!(read::<M>(&codec::encode(&message)).is_ok(), "{message:?}"),
        Ok(DecodedContent::Error(failure)) => {
            let bytes = codec::encode_error(&failure.text, failure.code);
            assert_eq!(codec::decode::<()>(&bytes), Ok(DecodedContent::Error(failure)));
        }
        Err(error) => assert!(error.path().starts_with(M::NAME), "{error}"),
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Damage {
    Flip(Index, u8),
    Insert(Index, u8),
    Delete(Index),
    Splice(Index, Index, usize),
    Cut(Index),
}

impl Damage {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        match self {
            Self::Insert(at, byte) => bytes.insert(at.index(len + 1), *byte),
            _ if len == 0 => {}
            Self::Flip(at, bits) => bytes[at.index(len)] ^= bits,
            Self::Delete(at) => drop(bytes.remove(at.index(len))),
            Self::Splice(from, to, count) => {
                let from = from.index(len);
                let piece = bytes[from..len.min(from + count)].to_vec();
                let to = to.index(len);
                bytes.splice(to..to, piece);
            }
            Self::Cut(at) => bytes.truncate(at.index(len)),
        }
    }
}

pub(crate) fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let damage = prop_oneof![
        4 => (any::<Index>(), 1..=255_u8).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        2 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        2 => any::<Index>().prop_map(Damage::Delete),
        2 => (any::<Index>(), any::<Index>(), 1..40_usize).prop_map(|(from, to, count)| Damage::Splice(from, to, count)),
        1 => any::<Index>().prop_map(Damage::Cut),
    ];
    collection::vec(damage, 1..4)
}

pub(crate) fn scalars() -> impl Strategy<Value = Scalars> {
    let floats = (value(), value());
    let varints = (value(), value(), value(), value(), value(), value());
    let fixed = (value(), value(), value(), value());
    let floats_and_ints = (floats, varints, fixed, (value(), value(), value()));
    floats_and_ints.prop_map(|(floats, varints, fixed, (f_bool, f_string, f_bytes))| Scalars {
        f_double: floats.0,
        f_float: floats.1,
        f_int32: varints.0,
        f_int64: varints.1,
        f_uint32: varints.2,
        f_uint64: varints.3,
        f_sint32: varints.4,
        f_sint64: varints.5,
        f_fixed32: fixed.0,
        f_fixed64: fixed.1,
        f_sfixed32: fixed.2,
        f_sfixed64: fixed.3,
        f_bool,
        f_string,
        f_bytes,
    })
}

pub(crate) fn enums() -> impl Strategy<Value = Enums> {
    let levels = collection::hash_map(value(), number(), 0..4);
    (number(), number(), number(), number(), levels).prop_map(|(color, sparse, aliased, level, levels)| Enums {
        color,
        sparse,
        aliased,
        level,
        levels,
    })
}

pub(crate) fn choice() -> impl Strategy<Value = vectors::Choice> {
    use vectors::choice::Value::{Blob, Color, Leaf as Branch, Number, Text};
    let leaf = (value(), value()).prop_map(|(label, weight)| Leaf { label, weight });
    let member = prop_oneof![
        value().prop_map(Number),
        value().prop_map(Text),
        leaf.prop_map(Branch),
        value().prop_map(Blob),
        number().prop_map(Color),
    ];
    (value(), option::of(member), value()).prop_map(|(before, value, after)| vectors::Choice { before, value, after })
}

pub(crate) fn optionals() -> impl Strategy<Value = Optionals> {
    let numbers = (maybe(), maybe(), maybe(), maybe(), maybe(), maybe());
    let others = (maybe(), maybe(), maybe(), option::of(number()), option::of(number()), any::<bool>());
    (numbers, others).prop_map(|(numbers, (f_bool, f_string, f_bytes, f_aliased, f_sparse, empty))| Optionals {
        f_double: numbers.0,
        f_float: numbers.1,
        f_int32: numbers.2,
        f_int64: numbers.3,
        f_uint32: numbers.4,
        f_uint64: numbers.5,
        f_bool,
        f_string,
        f_bytes,
        f_aliased,
        f_sparse,
        f_empty: empty.then_some(Empty {}),
    })
}

pub(crate) fn choices() -> impl Strategy<Value = Choices> {
    let scalars = prop_oneof![
        value().prop_map(All::FDouble),
        value().prop_map(All::FFloat),
        value().prop_map(All::FInt32),
        value().prop_map(All::FInt64),
        value().prop_map(All::FUint32),
        value().prop_map(All::FUint64),
        value().prop_map(All::FBool),
        value().prop_map(All::FString),
    ];
    let others = prop_oneof![
        value().prop_map(All::FBytes),
        number().prop_map(All::FAliased),
        number().prop_map(All::FSparse),
        Just(All::FEmpty(Empty {})),
        timestamp().prop_map(All::FTimestamp),
        value().prop_map(All::FText),
        Just(All::FVoid(())),
    ];
    let choices = |all| {
        let single = option::of(value().prop_map(Single::Only));
        (option::of(all), single).prop_map(|(all, single)| Choices { all, single })
    };
    choices(prop_oneof![scalars, others].boxed())
        .prop_recursive(4, 8, 1, move |inner| choices(inner.prop_map(|inner| All::FChoices(Box::new(inner))).boxed()))
}

pub(crate) fn lists() -> impl Strategy<Value = Lists> {
    let numbers = (list(), list(), list(), list(), list(), list());
    let texts = (list(), list(), list(), list());
    let enums = (collection::vec(number(), 0..6), collection::vec(number(), 0..6));
    (numbers, texts, enums, (0..4_usize, 0..4_usize)).prop_map(|(numbers, texts, enums, empty)| Lists {
        f_double: numbers.0,
        f_float: numbers.1,
        f_int32: numbers.2,
        f_int64: numbers.3,
        f_uint32: numbers.4,
        f_uint64: numbers.5,
        f_bool: texts.0,
        f_string: texts.1,
        f_bytes: texts.2,
        f_aliased: enums.0,
        f_sparse: enums.1,
        f_empty: vec![Empty {}; empty.0],
        f_void: vec![(); empty.1],
        f_wrapped: texts.3,
    })
}

pub(crate) fn maps() -> impl Strategy<Value = Maps> {
    let messages = (map(tree()), map(Just(Empty {})), map(timestamp()), map(value()), map(Just(())));
    let numbers = (map(number()), map(number()), map(value()), map(value()), map(value()));
    let texts = (map(value()), map(value()));
    let flat = (messages, numbers, texts).prop_map(|(messages, numbers, texts)| Maps {
        a: messages.0,
        b: messages.1,
        c: numbers.0,
        d: numbers.1,
        e: texts.0,
        f: texts.1,
        g: numbers.2,
        h: numbers.3,
        i: numbers.4,
        j: [].into(),
        k: messages.2,
        l: messages.3,
        m: messages.4,
    });
    flat.prop_recursive(2, 4, 2, |inner| (inner.clone(), map(inner)).prop_map(|(outer, j)| Maps { j, ..outer }))
}

pub(crate) fn tree() -> impl Strategy<Value = Tree> {
    let text = option::of(value().prop_map(Either::Text));
    let leaf = text.prop_map(|either| Tree { either, ..Tree::default() });
    leaf.prop_recursive(5, 24, 3, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        let forest =
            (option::of(boxed()), 0..3_u8).prop_map(|(tree, branches)| Forest { tree, branch: branch(branches) });
        let either = prop_oneof![
            boxed().prop_map(Either::One),
            value().prop_map(Either::Text),
            forest.prop_map(|forest| Either::Forest(Box::new(forest))),
        ];
        let children = collection::vec(inner.clone(), 0..3);
        (option::of(boxed()), option::of(boxed()), children, map(inner.clone()), option::of(either))
            .prop_map(|(left, right, children, by_name, either)| Tree { left, right, children, by_name, either })
    })
}

fn branch(depth: u8) -> Option<Box<Branch>> {
    let inner = depth.checked_sub(1)?;
    Some(Box::new(Branch { forest: Some(Box::default()), branch: branch(inner) }))
}

/// Generates mostly times with a JSON form.
pub(crate) fn timestamp() -> impl Strategy<Value = Timestamp> {
    let times = (-62_135_596_800..253_402_300_800_i64, prop_oneof![Just(0), 0..1_000_000_000]);
    prop_oneof![9 => times, 1 => (value(), value())].prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

/// Generates defaults often, because presence is lost there.
pub(crate) fn value<T: Arbitrary + Default + Clone + 'static>() -> impl Strategy<Value = T> {
    prop_oneof![1 => Just(T::default()), 3 => any::<T>()]
}

pub(crate) fn maybe<T: Arbitrary + Default + Clone + 'static>() -> impl Strategy<Value = Option<T>> {
    option::of(value())
}

fn list<T: Arbitrary + Default + Clone + 'static>() -> impl Strategy<Value = Vec<T>> {
    collection::vec(value(), 0..5)
}

fn map<K, V>(values: impl Strategy<Value = V>) -> impl Strategy<Value = std::collections::HashMap<K, V>>
where
    K: Arbitrary + Default + Clone + Eq + Hash + 'static,
    V: Debug,
{
    collection::hash_map(value(), values, 0..3)
}

/// Generates numbers of an enum: near its positions, of its values, and arbitrary ones.
fn number() -> impl Strategy<Value = i32> {
    prop_oneof![3 => -3..12_i32, 1 => Just(100), 1 => Just(i32::MIN), 1 => Just(i32::MAX), 2 => any::<i32>()]
}
