//! Readers: from the bytes of a message to its id, method and arguments.

use std::{borrow::Cow, hint::black_box};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;
use simd_json::Buffers;
use sonic_rs::LazyValue;

use crate::{
    request::{MessageLimits, ParsedItem, ParsedMessage, read_whole},
    samples::Params,
};

/// A reader and its name.
pub type Named<T> = (&'static str, fn(&[u8], &mut Room) -> Option<(usize, T)>);

/// Returns all readers.
pub fn all<T: Params>() -> [Named<T>; 9] {
    [
        ("ours", |bytes, _| ours(bytes)),
        ("ours-serde", |bytes, _| ours_with_serde(bytes)),
        ("ours-sonic", |bytes, _| ours_with_sonic(bytes)),
        ("serde-raw", |bytes, _| serde_raw(bytes)),
        ("serde-typed", |bytes, _| serde_typed(bytes)),
        ("sonic-lazy", |bytes, _| sonic_lazy(bytes)),
        ("sonic-typed", |bytes, _| sonic_typed(bytes)),
        ("simd-twice", simd_twice),
        ("simd-typed", simd_typed),
    ]
}

const LIMITS: MessageLimits = MessageLimits { depth_max: 100, batch_len_max: 100, message_len_max: 4 << 20 };

/// Reads like frisbee-rpc-jsonrpc: finds the arguments with its own scanner, and parses each of them with serde_json.
fn ours<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    by_scanner(bytes, T::one_by_one)
}

/// Finds the arguments like frisbee-rpc-jsonrpc, and parses all of them together with serde_json.
fn ours_with_serde<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    by_scanner(bytes, |params| serde_json::from_str(params).ok())
}

/// Finds the arguments like frisbee-rpc-jsonrpc, and parses all of them together with sonic-rs.
fn ours_with_sonic<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    by_scanner(bytes, |params| sonic_rs::from_str(params).ok())
}

fn by_scanner<T>(bytes: &[u8], read: impl FnOnce(&str) -> Option<T>) -> Option<(usize, T)> {
    let Ok(ParsedMessage::One(ParsedItem::Request(request))) = read_whole(bytes, LIMITS) else { return None };
    Some((request.id?.len() + request.method.len(), read(request.params?)?))
}

#[derive(Deserialize)]
struct Raw<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: &'a RawValue,
}

/// Reads with serde_json. Parses the arguments in a second step, because the method decides their types.
fn serde_raw<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    let Raw { jsonrpc, id, method, params } = serde_json::from_slice(bytes).ok()?;
    let params = serde_json::from_str(params.get()).ok()?;
    (jsonrpc == "2.0").then_some((id.get().len() + method.len(), params))
}

#[derive(Deserialize)]
struct Lazy<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: LazyValue<'a>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: LazyValue<'a>,
}

/// Reads with sonic-rs. Parses the arguments in a second step.
fn sonic_lazy<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    let Lazy { jsonrpc, id, method, params } = sonic_rs::from_slice(bytes).ok()?;
    let params = sonic_rs::from_str(params.as_raw_str()).ok()?;
    (jsonrpc == "2.0").then_some((id.as_raw_str().len() + method.len(), params))
}

#[derive(Deserialize)]
struct Typed<'a, T> {
    jsonrpc: &'a str,
    id: u64,
    #[serde(borrow)]
    method: Cow<'a, str>,
    params: T,
}

impl<T> Typed<'_, T> {
    fn into_parts(self) -> Option<(usize, T)> {
        let Self { jsonrpc, id, method, params } = self;
        let id = usize::try_from(id).ok()?;
        (jsonrpc == "2.0").then_some((id + method.len(), params))
    }
}

/// Reads everything in one step with serde_json, as if only one method existed.
fn serde_typed<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    serde_json::from_slice::<Typed<'_, T>>(bytes).ok()?.into_parts()
}

/// Reads everything in one step with sonic-rs, as if only one method existed.
fn sonic_typed<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    sonic_rs::from_slice::<Typed<'_, T>>(bytes).ok()?.into_parts()
}

/// Reads everything in one step with simd-json, as if only one method existed. simd-json modifies its input, so the
/// bytes are copied first.
fn simd_typed<T: Params>(bytes: &[u8], room: &mut Room) -> Option<(usize, T)> {
    let mut reader = room.reader(bytes)?;
    Typed::<T>::deserialize(&mut reader).ok()?.into_parts()
}

/// Reads with simd-json and deserializes twice: first the method, then the arguments.
fn simd_twice<T: Params>(bytes: &[u8], room: &mut Room) -> Option<(usize, T)> {
    let mut reader = room.reader(bytes)?;
    let Typed::<IgnoredAny> { method, .. } = Typed::deserialize(&mut reader).ok()?;
    let len = black_box(method).len();
    reader.restart();
    let (id, params) = Typed::<T>::deserialize(&mut reader).ok()?.into_parts()?;
    Some((id + len, params))
}

/// Reusable memory for simd-json.
#[derive(Default)]
pub struct Room {
    bytes: Vec<u8>,
    buffers: Buffers,
}

impl Room {
    fn reader(&mut self, bytes: &[u8]) -> Option<simd_json::Deserializer<'_>> {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        simd_json::Deserializer::from_slice_with_buffers(&mut self.bytes, &mut self.buffers).ok()
    }
}
