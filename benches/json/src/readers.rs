//! Readers: from the bytes of a message to its id, its method and its arguments.

use std::{borrow::Cow, hint::black_box};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;
use simd_json::Buffers;
use sonic_rs::LazyValue;

use crate::{
    request::{Item, Limits, Message, read_whole},
    samples::Params,
};

/// A reader by its name.
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

const LIMITS: Limits = Limits { depth_max: 100, batch_len_max: 100, message_len_max: 4 << 20 };

/// Reads as frpc-jsonrpc does: finds the arguments with a scanner of its own, and reads each with serde_json.
fn ours<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    by_scanner(bytes, T::one_by_one)
}

/// Finds the arguments as frpc-jsonrpc does, and reads all of them with serde_json.
fn ours_with_serde<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    by_scanner(bytes, |params| serde_json::from_str(params).ok())
}

/// Finds the arguments as frpc-jsonrpc does, and reads all of them with sonic-rs.
fn ours_with_sonic<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    by_scanner(bytes, |params| sonic_rs::from_str(params).ok())
}

fn by_scanner<T>(bytes: &[u8], read: impl FnOnce(&str) -> Option<T>) -> Option<(usize, T)> {
    let Ok(Message::One(Item::Request(request))) = read_whole(bytes, LIMITS) else { return None };
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

/// Reads with serde_json, the arguments in a second step, since their types are known only by the method.
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

/// Reads with sonic-rs, the arguments in a second step.
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

/// Reads all at once with serde_json, as if there were one method.
fn serde_typed<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    serde_json::from_slice::<Typed<'_, T>>(bytes).ok()?.into_parts()
}

/// Reads all at once with sonic-rs, as if there were one method.
fn sonic_typed<T: Params>(bytes: &[u8]) -> Option<(usize, T)> {
    sonic_rs::from_slice::<Typed<'_, T>>(bytes).ok()?.into_parts()
}

/// Reads all at once with simd-json, as if there were one method. It writes where it reads, so the bytes are copied.
fn simd_typed<T: Params>(bytes: &[u8], room: &mut Room) -> Option<(usize, T)> {
    let mut reader = room.reader(bytes)?;
    Typed::<T>::deserialize(&mut reader).ok()?.into_parts()
}

/// Reads with simd-json, and asks what it found twice: for the method first, then for the arguments.
fn simd_twice<T: Params>(bytes: &[u8], room: &mut Room) -> Option<(usize, T)> {
    let mut reader = room.reader(bytes)?;
    let Typed::<IgnoredAny> { method, .. } = Typed::deserialize(&mut reader).ok()?;
    let len = black_box(method).len();
    reader.restart();
    let (id, params) = Typed::<T>::deserialize(&mut reader).ok()?.into_parts()?;
    Some((id + len, params))
}

/// The memory of simd-json, which serves again.
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
