//! Decoded messages can be dropped, cloned, compared and encoded on an ordinary thread, also without optimization.

use awkward::codec::hostile::{Holder, Nest, Wide, wide::Choice};
use bytes::Bytes;
use frpc::codec::{self, DecodeErrorKind, Message, Reader};

use crate::read;

/// A name, and a function to nest a message with two hundred fields in another.
type Way = (&'static str, fn(Wide) -> Wide);

const WAYS: [Way; 7] = [
    ("a box", |wide| Wide { one: Some(Box::new(wide)), ..Wide::default() }),
    ("a list", |wide| Wide { many: vec![wide], ..Wide::default() }),
    ("a map", |wide| Wide { by_name: [(String::new(), wide)].into(), ..Wide::default() }),
    ("a oneof", |wide| Wide { choice: Some(Choice::Chosen(Box::new(wide))), ..Wide::default() }),
    ("a list in a message", |wide| Wide { holder: Some(holder(wide)), ..Wide::default() }),
    ("a list in a oneof", |wide| Wide { choice: Some(Choice::Held(holder(wide))), ..Wide::default() }),
    ("a list in a map", |wide| Wide {
        holder: Some(Holder { holders: [(0, holder(wide))].into(), ..Holder::default() }),
        ..Wide::default()
    }),
];

fn holder(wide: Wide) -> Holder {
    Holder { many: vec![wide], ..Holder::default() }
}

#[test]
fn large_nested_messages_are_decoded_or_too_deep() {
    for (way, wrap) in WAYS {
        let mut deepest = 0;
        for levels in [1, 2, 3, 5, 8, 12, 20, 30, 40, 50, 60, 70, 80, 90, 99] {
            let input = on_a_stack_of(256 << 20, move || {
                codec::encode(&(1..levels).fold(Wide::default(), |wide, _| wrap(wide)))
            });
            if on_a_stack_of(ORDINARY, move || use_all::<Wide>(&input)) {
                assert!(deepest == 0 || deepest < levels, "{way}: not {deepest}, but {levels}");
                deepest = levels;
            }
        }
        assert!(deepest >= LEVELS_MIN, "{way}: {deepest} levels");
    }
}

#[test]
fn small_messages_may_use_the_full_depth() {
    let boxed = |nest| Nest { nest: Some(Box::new(nest)), ..Nest::default() };
    let listed = |nest| Nest { nests: vec![nest], ..Nest::default() };
    for wrap in [boxed as fn(Nest) -> Nest, listed] {
        let nested = |levels| codec::encode(&(1..levels).fold(Nest::default(), |nest, _| wrap(nest)));
        let (deepest, deeper) = (nested(100), nested(101));
        assert!(on_a_stack_of(ORDINARY, move || use_all::<Nest>(&deepest)));
        assert!(!on_a_stack_of(ORDINARY, move || use_all::<Nest>(&deeper)));
    }
}

/// Performs all recursive operations on a value, if it can be decoded.
fn use_all<M: Message + Clone + PartialEq + std::fmt::Debug>(input: &Bytes) -> bool {
    match read::<M>(input) {
        Ok(value) => {
            let again = value.clone();
            assert!(again == value);
            assert_eq!(codec::encode(&again), input);
            assert_eq!(codec::encode_pieces(&again).into_bytes(), input);
            assert!(!format!("{again:?}").is_empty());
            true
        }
        Err(error) => {
            let DecodeErrorKind::TooDeep { limit } = *error.kind() else { panic!("{error}") };
            assert!((1..=Reader::DEPTH_MAX).contains(&limit), "{limit}");
            false
        }
    }
}

fn on_a_stack_of<R: Send + 'static>(len: usize, work: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = std::thread::Builder::new().stack_size(len).spawn(work).expect("a thread");
    thread.join().expect("no panic")
}

/// Default stack size of a thread, also in tokio.
const ORDINARY: usize = 2 << 20;

/// Minimum number of readable levels with two hundred fields.
const LEVELS_MIN: usize = if cfg!(debug_assertions) { 12 } else { 20 };
