//! Protobuf messages never exceed their memory budget. They are measured before they are decoded.

use std::collections::HashMap;

use awkward::{
    codec::hostile::{self, Cell, Holder, Nest, Rows, Wide, rows::Row},
    names::shapes::{Lists, Maps},
    other::codec::hostile as other,
    schemas::accepted::groups::Order,
    vectors::Tree,
};
use bytes::Bytes;
use frpc::{
    codec::{CodecError, Format, MemoryBudget, Message, json},
    prost::encoding::WireType,
    prost_types::{ListValue, Struct, Value, value::Kind},
};
use proptest::prelude::*;

use crate::memory::peak_of;

/// Allowance for an error and for the stack of messages during measuring.
const BESIDES: usize = 32 << 10;

/// Returns the limit on peak memory. A growing list holds its old and new memory at the same time.
fn peak_max(counted: usize) -> usize {
    counted + counted / 2 + BESIDES
}

/// Reads a message with a budget. Asserts that its memory stays within it.
fn read<M: Message>(content: &Bytes, budget: usize) -> Result<(), CodecError> {
    let mut result = Ok(());
    let peak = peak_of(|| {
        let read = Format::Proto.decode_within::<M>(content, MemoryBudget::new(budget));
        result = read.as_ref().map(drop).map_err(Clone::clone);
        read
    });
    let limit = MemoryBudget::new(budget).for_len(content.len());
    assert!(peak <= peak_max(limit), "{}: {} bytes take {peak} of {limit}: {result:?}", M::NAME, content.len());
    result
}

fn refused<M: Message>(content: impl Into<Bytes>) {
    let content = content.into();
    for budget in [64 << 10, 1 << 20, 8 << 20] {
        let error = read::<M>(&content, budget).expect_err("it takes more than that");
        assert!(error.is_too_much_memory(), "{}: {error}", M::NAME);
        assert_eq!(error, CodecError::TooMuchMemory { message: M::NAME, limit: budget });
    }
}

fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frpc::prost::encoding::encode_key(number, frpc::prost::encoding::WireType::LengthDelimited, &mut bytes);
    frpc::prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    [bytes, content.to_vec()].concat()
}

fn number_of<M>(name: &str, shape: impl Fn(&mut M)) -> u32
where
    M: frpc::prost::Message + Default,
{
    let mut message = M::default();
    shape(&mut message);
    let bytes = message.encode_to_vec();
    let (number, _) =
        frpc::prost::encoding::decode_key(&mut &bytes[..]).unwrap_or_else(|_| panic!("{name} is a field"));
    number
}

/// Each takes two bytes of input and a whole struct in memory.
#[test]
fn lists_of_empty_messages_are_refused_beyond_the_budget() {
    let many = number_of::<Wide>("many", |wide| wide.many.push(Wide::default()));
    refused::<Wide>(field(many, &[]).repeat(100_000));
    refused::<other::Wide>(field(many, &[]).repeat(100_000));
    let rows = number_of::<Rows>("rows", |rows| rows.rows.push(Row::default()));
    refused::<Rows>(field(rows, &[]).repeat(300_000));
    // One level deeper.
    let cells = number_of::<Row>("cells", |row| row.cells.push(Cell::default()));
    refused::<Rows>(field(rows, &field(cells, &[]).repeat(400_000)));
    refused::<Rows>(field(rows, &field(cells, &[])).repeat(200_000));
    // The inner length exceeds the end of its message, but prost continues reading.
    let inner = field(cells, &[]).repeat(400_000);
    let (head, inner_head) = (field(rows, &[0; 3]), field(cells, &inner));
    let cut = [&head[..head.len() - 3], &inner_head[..]].concat();
    read::<Rows>(&cut.into(), 1 << 20).expect_err("it is malformed or too much");
}

#[test]
fn maps_are_refused_beyond_the_budget() {
    let by_number = number_of::<Rows>("by_number", |rows| drop(rows.by_number.insert(1, Default::default())));
    let entries: Vec<u8> = (0..100_000_u32)
        .flat_map(|key| {
            let mut entry = Vec::new();
            frpc::prost::encoding::int32::encode(1, &key.cast_signed(), &mut entry);
            field(by_number, &entry)
        })
        .collect();
    refused::<Rows>(entries.clone());
    refused::<other::Rows>(entries);
    // With equal keys, every entry is counted.
    refused::<Rows>(field(by_number, &[]).repeat(200_000));
}

#[test]
fn boxes_packed_numbers_and_short_texts_are_counted() {
    let numbers = number_of::<Lists>("f_int64", |lists| lists.f_int64.push(1));
    refused::<Lists>(field(numbers, &vec![1; 2 << 20]));
    let texts = number_of::<Lists>("f_string", |lists| lists.f_string.push(String::new()));
    refused::<Lists>(field(texts, &[]).repeat(500_000));
    let bytes = number_of::<Lists>("f_bytes", |lists| lists.f_bytes.push(Vec::new()));
    refused::<Lists>(field(bytes, b"a").repeat(500_000));
    // A repeated single message takes only one box.
    let only = number_of::<Tree>("only", |tree| tree.only = Some(Box::default()));
    read::<Tree>(&field(only, &[]).repeat(100).into(), 64 << 10).expect("it is one message");
}

/// The fields of a group are followed by a key instead of a length.
#[test]
fn groups_are_refused_beyond_the_budget() {
    let group = |number: u32, content: &[u8]| {
        let key = |kind| {
            let mut bytes = Vec::new();
            frpc::prost::encoding::encode_key(number, kind, &mut bytes);
            bytes
        };
        [key(WireType::StartGroup), content.to_vec(), key(WireType::EndGroup)].concat()
    };
    refused::<Order>(group(1, &[]).repeat(200_000));
    refused::<Order>(group(4, &field(5, &group(1, &[]).repeat(200_000))));
    let sizes = [vec![24]; 1].concat().iter().chain([&1]).copied().collect::<Vec<u8>>();
    refused::<Order>(group(1, &sizes.repeat(4 << 20)));
    // The lists after a group belong to the message again.
    refused::<Order>([group(4, &[]), group(1, &[]).repeat(200_000)].concat());
    // Unknown groups take no memory, whatever their fields are called.
    let unknown = group(90, &group(1, &[]).repeat(1000));
    read::<Order>(&[unknown, group(7, &[64, 1])].concat().into(), 64 << 10).expect("nothing of it is kept");
    for cut in [group(1, &[])[..1].to_vec(), vec![0x0c], group(4, &[0x0c])] {
        read::<Order>(&cut.into(), 64 << 10).expect_err("it is malformed");
    }
    let mut deep = Vec::new();
    for _ in 0..5_000 {
        deep = group(4, &group(6, &deep));
    }
    read::<Order>(&deep.into(), 8 << 10).expect_err("too deep");
}

/// The recursion of `google.protobuf.Value`, which has no generated tables.
#[test]
fn values_are_counted() {
    let empty = Value::default();
    let list = ListValue { values: vec![empty.clone(); 1 << 20] };
    refused::<ListValue>(frpc::prost::Message::encode_to_vec(&list));
    let list = Value { kind: Some(Kind::ListValue(list)) };
    refused::<Value>(frpc::prost::Message::encode_to_vec(&list));
    let fields = (0..50_000).map(|key| (key.to_string(), empty.clone())).collect();
    let object = Value { kind: Some(Kind::StructValue(Struct { fields })) };
    let bytes: Bytes = frpc::prost::Message::encode_to_vec(&object).into();
    read::<Value>(&bytes, 1 << 20).expect_err("it takes more");
    read::<Value>(&bytes, 16 << 20).expect("it takes less");
}

/// Messages deeper than prost reads neither overflow the stack nor take more than linear time.
#[test]
fn deep_messages_are_counted_in_linear_time() {
    let only = number_of::<Tree>("only", |tree| tree.only = Some(Box::default()));
    let mut deep = Vec::new();
    for _ in 0..5_000 {
        deep = field(only, &deep);
    }
    let error = read::<Tree>(&deep.into(), 8 << 10).expect_err("too deep");
    assert!(matches!(error, CodecError::Proto(_) | CodecError::TooMuchMemory { .. }), "{error}");
}

#[test]
fn a_message_is_rejected_one_byte_below_its_budget() {
    let rows = hostile::Rows { rows: vec![Row::default(); 4096], ..Default::default() };
    let content: Bytes = frpc::prost::Message::encode_to_vec(&rows).into();
    let exact = 4096 * size_of::<Row>() + 16;
    read::<Rows>(&content, exact).expect("it fits");
    let error = read::<Rows>(&content, exact - 1024).expect_err("it does not");
    assert!(error.is_too_much_memory());
    assert_eq!(
        error.to_string(),
        format!("Rows: would take more than {} bytes of memory", (exact - 1024).div_ceil(1024) << 10)
    );
}

/// Four mebibytes of realistic messages stay within the default budget.
#[test]
fn valid_messages_fit_the_default_budget() {
    let honest = |content: Vec<u8>| Bytes::from(content);
    let cells = |count| (0..count).map(|x| Cell { x: 1_000 + x, y: format!("cell {x}") }).collect::<Vec<_>>();
    let row = Row { cells: cells(2_000), blobs: vec![vec![7; 100]; 500], flags: vec![true; 500] };
    let rows = Rows { rows: vec![row; 40], ..Default::default() };
    let content = honest(frpc::prost::Message::encode_to_vec(&rows));
    assert!(content.len() > 3 << 20, "{}", content.len());
    Format::Proto.decode::<Rows>(&content).expect("rows of cells");
    let lists = Lists { f_double: vec![0.5; 500_000], ..Default::default() };
    Format::Proto.decode::<Lists>(&honest(frpc::prost::Message::encode_to_vec(&lists))).expect("numbers");
    let lists = Lists { f_int32: vec![1; 4 << 20], ..Default::default() };
    Format::Proto.decode::<Lists>(&honest(frpc::prost::Message::encode_to_vec(&lists))).expect("small numbers");
    let lists = Lists { f_string: vec!["eight...".to_owned(); 400_000], ..Default::default() };
    Format::Proto.decode::<Lists>(&honest(frpc::prost::Message::encode_to_vec(&lists))).expect("texts");
    let i: HashMap<i32, bool> = (0..600_000).map(|key| (key, true)).collect();
    let maps = Maps { i, ..Default::default() };
    Format::Proto.decode::<Maps>(&honest(frpc::prost::Message::encode_to_vec(&maps))).expect("a map");
    let long = Lists { f_bytes: vec![vec![0; 100 << 20]], ..Default::default() };
    Format::Proto.decode::<Lists>(&honest(frpc::prost::Message::encode_to_vec(&long))).expect("long bytes");
}

/// The other formats have the same budget, below their own limits.
#[test]
fn polyglot_and_json_have_the_same_budget() {
    let rows = Rows { rows: vec![Row::default(); 4096], ..Default::default() };
    for format in [Format::Polyglot, Format::Json, Format::Proto] {
        let content = format.encode(&rows).expect("it has every format").into_bytes();
        let error = format.decode_within::<Rows>(&content, MemoryBudget::new(64 << 10)).expect_err("it takes more");
        assert!(error.is_too_much_memory(), "{format}: {error}");
        assert!(error.to_string().contains("would take more than 65536 bytes of memory"), "{format}: {error}");
        assert_eq!(format.decode_within::<Rows>(&content, MemoryBudget::new(1 << 20)), Ok(rows.clone()), "{format}");
    }
}

/// Writing an `Any` as JSON decodes its message.
#[test]
fn an_any_above_the_budget_has_no_json() {
    let many = number_of::<Wide>("many", |wide| wide.many.push(Wide::default()));
    let any =
        frpc::prost_types::Any { type_url: "/codec.hostile.Wide".to_owned(), value: field(many, &[]).repeat(100_000) };
    let peak = peak_of(|| json::to_string_with(&any, hostile::json_types()).expect_err("it takes too much"));
    assert!(peak < 64 << 20, "{peak}");
}

/// Generates bytes resembling messages: fields with small numbers, short lengths, and arbitrary bytes.
fn wire() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        prop::collection::vec(1_u8..4, 0..40),
        (1_u32..240).prop_map(|number| field(number, &[])),
    ];
    leaf.prop_recursive(5, 256, 8, |inner| {
        let fields = prop::collection::vec((1_u32..240, inner, 1_usize..30), 0..6);
        fields.prop_map(|fields| {
            fields.iter().flat_map(|(number, content, times)| field(*number, content).repeat(*times)).collect()
        })
    })
}

fn counted<M: Message>(content: &Bytes) {
    // Search for the smallest budget with a different outcome than exceeding it.
    let (mut low, mut high) = (0_usize, 1 << 16);
    while low + 1 < high {
        let middle = low.midpoint(high);
        match Format::Proto.decode_within::<M>(content, MemoryBudget::new(middle << 10)) {
            Err(error) if error.is_too_much_memory() => low = middle,
            _ => high = middle,
        }
    }
    let _ = read::<M>(content, high << 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_count_is_at_least_the_allocated_memory(wire in wire()) {
        let content = Bytes::from(wire);
        counted::<Wide>(&content);
        counted::<Holder>(&content);
        counted::<Rows>(&content);
        counted::<Nest>(&content);
        counted::<Lists>(&content);
        counted::<Maps>(&content);
        counted::<Tree>(&content);
        counted::<other::Wide>(&content);
        counted::<other::Rows>(&content);
        counted::<Value>(&content);
        counted::<Struct>(&content);
    }
}
