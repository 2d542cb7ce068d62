//! What decoding allocates is bounded by the input, whatever the input claims.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use awkward::{
    names::shapes::{Choices, Lists, choices::All},
    vectors::{Choice, MapValues, Repeated, Text, Tree, Wrapper},
};
use bytes::Bytes;
use frpc::codec::{self, DecodeErrorKind, Message};

use crate::{read, unhex};

#[global_allocator]
static COUNTING: Counting = Counting;

/// An error with its path.
const ERROR_LEN_MAX: usize = 128;

#[test]
fn claims_of_four_gigabytes_allocate_nothing() {
    let claim = "affffffff0f";
    check_claim::<Text>(&format!("0800050{claim}"));
    check_claim::<Text>(&format!("06050{claim}"));
    check_claim::<Choice>(&format!("0800050a000c00050a00040{claim}"));
    check_claim::<Tree>(&format!("0800050a0001030{claim}"));
    check_claim::<Tree>(&format!("0800050a0001030a00000205030{claim}"));
    check_claim::<Repeated>(&format!("0800010f0{claim}"));
    check_claim::<MapValues>(&format!("080002050f0{claim}"));
}

/// As it is, and in front of 64 KiB that do not help.
fn check_claim<M: Message>(head: &str) {
    let head = unhex(head);
    for filler in [0, 64 << 10] {
        let input = Bytes::from([&head[..], &vec![0xff; filler]].concat());
        let peak = peak_of(|| read::<M>(&input).map(drop).expect_err("nobody sends so much"));
        assert!(peak <= ERROR_LEN_MAX, "{} bytes of input, {peak} allocated", input.len());
    }
}

/// A count that the bytes could hold is believed for as many bytes as there are, and no more.
#[test]
fn a_count_without_its_elements_allocates_no_more_than_the_input() {
    let head = unhex("0800050a0001030a808004");
    let input = Bytes::from([&head[..], &vec![0xff; 64 << 10]].concat());
    let peak = peak_of(|| read::<Tree>(&input).map(drop).expect_err("0xff is no message"));
    assert!(peak <= input.len() + ERROR_LEN_MAX, "{} bytes of input, {peak} allocated", input.len());
}

/// Each is one byte of input and a whole message in memory.
#[test]
fn absent_messages_in_a_list_are_default_ones_up_to_a_limit() {
    let limit = |input: &Bytes| (1 << 20) + 16 * input.len();
    for count in [1, 1_000, 10_000] {
        let input = absent_children(count);
        let peak = peak_of(|| read::<Tree>(&input).map(drop).expect("absent messages are default ones"));
        assert!(peak <= 3 * limit(&input), "{count} absent messages, {peak} allocated");
    }
    let input = absent_children(5 << 20);
    let peak = peak_of(|| {
        let error = read::<Tree>(&input).map(drop).expect_err("too many");
        assert_eq!(*error.kind(), DecodeErrorKind::TooManyAbsent { limit: limit(&input) });
    });
    assert!(peak <= 3 * limit(&input), "{peak} allocated for {} bytes of input", input.len());
}

fn absent_children(count: usize) -> Bytes {
    let parts = [&unhex("0800050a0001030a")[..], &varint(count), &vec![0; count], &unhex("000205030a00")];
    Bytes::from(parts.concat())
}

/// The bytes that take the most memory and are not nil: short texts, empty messages inside of each other, keys of a map.
#[test]
fn small_values_take_their_size_in_memory() {
    let texts = Repeated { r_string: vec![String::new(); 20_000], ..Repeated::default() };
    check_ratio(&texts, 12);
    let leaves = Tree { children: vec![Tree::default(); 3_000], ..Tree::default() };
    check_ratio(&leaves, 12);
    let chains = Tree { children: vec![chain(90); 40], ..Tree::default() };
    check_ratio(&chains, 8);
    let empties = Lists { f_void: vec![(); 30_000], ..Lists::default() };
    check_ratio(&empties, 0);
    let keys = MapValues {
        v_map_keys: (0..1_000).map(|key| (key.to_string(), Default::default())).collect(),
        ..MapValues::default()
    };
    check_ratio(&keys, 32);
    check_ratio(&Wrapper { repeated_fields: Some(Repeated::default()), ..Wrapper::default() }, 1);
}

/// Also when there is a trailer, and the message is read twice.
#[test]
fn a_trailer_takes_its_size_in_memory() {
    let choice = Choices {
        all: Some(All::FChoices(Box::new(Choices { all: Some(All::FInt32(0)), single: None }))),
        single: None,
    };
    let bytes = codec::encode(&choice);
    let long = [&bytes[..bytes.len() - 3], &varint(30_000), &[0; 60_000]].concat();
    let input = Bytes::from(long);
    let peak = peak_of(|| read::<Choices>(&input).map(drop).expect("slots that do not come up are ignored"));
    assert!(peak <= 16 * input.len(), "{} bytes of input, {peak} allocated", input.len());
}

fn check_ratio<M: Message>(message: &M, times: usize) {
    let input = codec::encode(message);
    let peak = peak_of(|| read::<M>(&input).map(drop).expect("it was written just now"));
    assert!(peak <= times * input.len(), "{}: {} bytes of input, {peak} allocated", M::NAME, input.len());
}

fn chain(len: usize) -> Tree {
    (1..len).fold(Tree::default(), |tree, _| Tree { only: Some(Box::new(tree)), ..Tree::default() })
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

/// The most bytes that this thread held at once beyond what it held before.
fn peak_of<R>(work: impl FnOnce() -> R) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    drop(work());
    (PEAK.get() - before).cast_unsigned()
}

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts what each thread holds. Growing in place is not counted on: the old and the new memory are there together.
struct Counting;

// SAFETY: all memory comes from `System` and goes back there with the layout it came with; counting allocates nothing,
// because the cells are constants without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.get() + layout.size().cast_signed();
        LIVE.set(live);
        PEAK.set(PEAK.get().max(live));
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // Memory may come from another thread, so the count may pass below zero.
        LIVE.set(LIVE.get() - layout.size().cast_signed());
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}
