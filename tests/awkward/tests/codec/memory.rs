//! Decoding allocates in proportion to the input, whatever lengths the input announces.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use awkward::{
    codec::hostile as hostile_plain,
    names::shapes::{Choices, Lists, choices::All},
    other::codec::hostile as hostile_other,
    vectors::{Choice, MapValues, Repeated, Text, Tree, Wrapper},
};
use bytes::Bytes;
use frpc::codec::{self, DecodeError, DecodeErrorKind, Message};

use crate::{read, unhex};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allowance for an error with its path.
const ERROR_LEN_MAX: usize = 128;

#[test]
fn claimed_lengths_of_4_gib_allocate_nothing() {
    let claim = "affffffff0f";
    check_claim::<Text>(&format!("0800050{claim}"));
    check_claim::<Text>(&format!("06050{claim}"));
    check_claim::<Choice>(&format!("0800050a000c00050a00040{claim}"));
    check_claim::<Tree>(&format!("0800050a0001030{claim}"));
    check_claim::<Tree>(&format!("0800050a0001030a00000205030{claim}"));
    check_claim::<Repeated>(&format!("0800010f0{claim}"));
    check_claim::<MapValues>(&format!("080002050f0{claim}"));
}

/// Decodes a prefix alone, and followed by 64 KiB of useless bytes.
fn check_claim<M: Message>(head: &str) {
    let head = unhex(head);
    for filler in [0, 64 << 10] {
        let input = Bytes::from([&head[..], &vec![0xff; filler]].concat());
        let peak = peak_of(|| read::<M>(&input).map(drop).expect_err("nobody sends so much"));
        assert!(peak <= ERROR_LEN_MAX, "{} bytes of input, {peak} allocated", input.len());
    }
}

/// A count is trusted as long as the remaining bytes could contain the elements and their memory is within the limit.
#[test]
fn a_count_without_elements_allocates_within_the_budget() {
    for count in ["8004", "808004"] {
        let head = unhex(&format!("0800050a0001030a{count}"));
        let input = Bytes::from([&head[..], &vec![0xff; 64 << 10]].concat());
        check_bound::<Tree>(&input).expect_err("0xff is no message");
    }
}

/// Each element is one byte of input and a whole message in memory.
#[test]
fn absent_list_messages_are_defaults_up_to_a_limit() {
    for count in [1, 1_000, 10_000] {
        assert!(check_bound::<Tree>(&absent_children(count)).is_ok(), "absent messages are default ones");
    }
    let input = absent_children(5 << 20);
    let error = check_bound::<Tree>(&input).expect_err("too many");
    assert_eq!(*error.kind(), DecodeErrorKind::TooMuchMemory { limit: limit(input.len()) });
    assert_eq!(error.path(), "Tree.children");
    let text = format!(
        "Tree.children: would take more than {} bytes of memory, which is 1 MiB and 16 times the encoded length",
        limit(input.len())
    );
    assert_eq!(error.to_string(), text);
}

pub(crate) fn absent_children(count: usize) -> Bytes {
    let parts = [&unhex("0800050a0001030a")[..], &varint(count), &vec![0; count], &unhex("000205030a00")];
    Bytes::from(parts.concat())
}

/// Any repetition in any message: its memory is bounded by the input.
#[test]
fn hostile_messages_stay_within_the_budget() {
    for len in [0, 1, 2, 3, 7, 8, 14, 15, 100, 1_000, 30_000] {
        hostile::<hostile_plain::Wide, hostile_plain::Holder, hostile_plain::Rows, hostile_plain::Nest>(len);
        hostile::<hostile_other::Wide, hostile_other::Holder, hostile_other::Rows, hostile_other::Nest>(len);
    }
}

/// The encodings are the same for all Rust types of the fields.
fn hostile<Wide: Message, Holder: Message, Rows: Message, Nest: Message>(len: usize) {
    let nils =
        |key: fn(usize) -> Vec<u8>| (0..len).flat_map(|index| [key(index), vec![0]].concat()).collect::<Vec<_>>();
    let list = |items: &[u8]| [&[1, 3, 0x0a][..], &varint(len), items].concat();
    let map = |kind: u8, entries: &[u8]| [&[2, kind, 3, 0x0a][..], &varint(len), entries].concat();
    let holder = |many: &[u8], holders: &[u8]| [&unhex("0800")[..], many, holders].concat();
    let (no_list, no_map) = (unhex("01030a00"), unhex("00"));

    // Absent large messages: in a list, in maps with distinct keys, and in maps with equal keys.
    let absent = list(&vec![0; len]);
    attack::<Holder>(&holder(&absent, &no_map).into());
    attack::<Holder>(&holder(&no_list, &map(0x0c, &nils(int_key))).into());
    attack::<Holder>(&holder(&no_list, &map(0x0c, &nils(|_| int_key(7)))).into());

    // Small messages with lists and maps of absent messages, and empty small messages.
    let small_list = holder(&unhex("01030a020000"), &no_map);
    let entries: Vec<u8> = (0..len).flat_map(|index| [int_key(index), small_list.clone()].concat()).collect();
    attack::<Holder>(&holder(&no_list, &map(0x0c, &entries)).into());
    let small_map = holder(&no_list, &unhex("020c030a010c0000"));
    let entries: Vec<u8> = (0..len).flat_map(|index| [int_key(index), small_map.clone()].concat()).collect();
    attack::<Holder>(&holder(&no_list, &map(0x0c, &entries)).into());

    // Lists of lists: empty lists, lists of absent messages, blobs and flags.
    let row = |cells: &str, blobs: &str, flags: &str| unhex(&format!("0800{cells}{blobs}{flags}"));
    for row in [
        row("01030a00", "01040a00", "01070a00"),
        row("01030a020000", "01040a00", "01070a00"),
        row("01030a00", "01040a02040a00040a00", "01070a00"),
        row("01030a00", "01040a02040a0161040a0162", "01070a0207000701"),
        unhex("00"),
    ] {
        let rows = [&unhex("0800")[..], &list(&row.repeat(len)), &unhex("0000")].concat();
        attack::<Rows>(&rows.into());
        let entries: Vec<u8> = (0..len).flat_map(|index| [int_key(index), row.to_vec()].concat()).collect();
        attack::<Rows>(
            &[&unhex("0800 01030a00".replace(' ', "").as_str())[..], &map(0x0c, &entries), &[0]].concat().into(),
        );
    }
    let entries: Vec<u8> = (0..len).flat_map(|index| [text_key(index), unhex("040a0178").to_vec()].concat()).collect();
    let blobs = [&unhex("080001030a0000")[..], &[2, 5, 4, 0x0a], &varint(len), &entries].concat();
    attack::<Rows>(&blobs.into());

    // Boxed messages, nested up to the limit.
    let nest = [unhex("080001030a00").repeat(1 + len.min(99)), vec![0]].concat();
    attack::<Nest>(&nest.into());
    let pair = unhex("080001030a00080001030a0000");
    let nests = [&unhex("0800")[..], &list(&pair.repeat(len)), &[0]].concat();
    attack::<Nest>(&nests.into());

    // Large messages, one after another.
    let wide = codec::encode(&Wide::default());
    let wides = list(&wide.repeat(len.min(1_000)));
    attack::<Holder>(&holder(&wides, &no_map).into());
}

/// Reads a valid but unrealistic message. The only acceptable error is one about its memory.
fn attack<M: Message>(input: &Bytes) {
    if let Err(error) = check_bound::<M>(input) {
        assert!(matches!(error.kind(), DecodeErrorKind::TooMuchMemory { .. }), "{error}");
    }
}

fn int_key(index: usize) -> Vec<u8> {
    [vec![0x0c], varint(2 * index)].concat()
}

fn text_key(index: usize) -> Vec<u8> {
    let text = index.to_string();
    [&[5, 0x0a][..], &varint(text.len()), text.as_bytes()].concat()
}

/// Reads a message. Asserts that the peak memory stays within the limit.
fn check_bound<M: Message>(input: &Bytes) -> Result<(), DecodeError> {
    let mut result = Ok(());
    let peak = peak_of(|| result = codec::decode::<M>(input).map(drop));
    let allowed = limit(input.len()) + ERROR_LEN_MAX;
    assert!(peak <= allowed, "{}: {} bytes of input, {peak} allocated, {result:?}", M::NAME, input.len());
    result
}

fn limit(len: usize) -> usize {
    (1 << 20) + 16 * len
}

/// Realistic messages stay far below the limit, even with many small elements: lists, strings and maps of messages.
#[test]
fn valid_messages_are_accepted() {
    let cells = (0..100_000).map(|x| hostile_plain::Cell { x, y: String::new() }).collect();
    let row = hostile_plain::rows::Row { cells, blobs: vec![vec![1]; 100_000], flags: vec![true; 100_000] };
    let rows = hostile_plain::Rows {
        rows: vec![row.clone(), row],
        by_number: (0..50_000).map(|key| (key, Default::default())).collect(),
        blobs: (0..50_000).map(|key| (key.to_string(), vec![0; 3])).collect(),
    };
    assert_eq!(read(&codec::encode(&rows)).as_ref(), Ok(&rows));
    let wide = hostile_plain::Wide { many: vec![hostile_plain::Wide::default(); 2_000], ..Default::default() };
    assert_eq!(read(&codec::encode(&wide)).as_ref(), Ok(&wide));
    let texts = Repeated { r_string: vec!["a".into(); 200_000], ..Repeated::default() };
    assert_eq!(read(&codec::encode(&texts)).as_ref(), Ok(&texts));
}

/// The most expensive bytes other than nil: short strings, nested empty messages and map keys.
#[test]
fn small_values_cost_their_size_in_memory() {
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

/// The same with a trailer, so that the message is read twice.
#[test]
fn a_trailer_costs_its_size_in_memory() {
    let choice = Choices {
        all: Some(All::FChoices(Box::new(Choices { all: Some(All::FInt32(0)), single: None }))),
        single: None,
    };
    let bytes = codec::encode(&choice);
    for count in [30_000, 1_000_000] {
        let long = [&bytes[..bytes.len() - 3], &varint(count), &vec![0; 2 * count]].concat();
        assert!(check_bound::<Choices>(&long.into()).is_ok(), "slots that do not come up are ignored");
    }
    let claim = [&bytes[..bytes.len() - 3], &varint(1_000_000), &[0; 1_000_000]].concat();
    assert!(check_bound::<Choices>(&claim.into()).is_ok(), "what cannot be a trailer is ignored");
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

/// Returns the peak of this thread's memory, in addition to the memory held before.
pub(crate) fn peak_of<R>(work: impl FnOnce() -> R) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    drop(work());
    (PEAK.get() - before).cast_unsigned()
}

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts the memory of each thread. A reallocation counts old and new memory together.
struct Counting;

// SAFETY: all memory comes from `System` and is returned to it with the same layout. Counting itself does not allocate,
// because the cells are constants without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.get() + layout.size().cast_signed();
        LIVE.set(live);
        PEAK.set(PEAK.get().max(live));
        // SAFETY: the caller upholds the requirements of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // Another thread may have allocated the memory, so the count may become negative.
        LIVE.set(LIVE.get() - layout.size().cast_signed());
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}
