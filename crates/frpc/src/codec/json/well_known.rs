//! JSON forms of the well-known types and of their Rust counterparts.

use bytes::Bytes;
use prost_types::{Any, Duration, FieldMask, ListValue, NullValue, Struct, Timestamp, Value, value::Kind};

use super::{
    error::Result,
    message::{Enumeration, Message},
    reader::{Next, Reader},
    types::{Type, Types},
    writer::Writer,
};

/// Message types available to every `Any`, including `Any` itself, sorted by name.
pub(super) static WELL_KNOWN: Types = Types::new(
    &[
        Type::of::<Any>(),
        Type::of::<bool>(),
        Type::of::<Vec<u8>>(),
        Type::of::<f64>(),
        Type::of::<Duration>(),
        Type::of::<()>(),
        Type::of::<FieldMask>(),
        Type::of::<f32>(),
        Type::of::<i32>(),
        Type::of::<i64>(),
        Type::of::<ListValue>(),
        Type::of::<String>(),
        Type::of::<Struct>(),
        Type::of::<Timestamp>(),
        Type::of::<u32>(),
        Type::of::<u64>(),
        Type::of::<Value>(),
    ],
    &[],
);

macro_rules! forms {
    ($($type:ty, $name:literal: |$value:pat_param, $out:ident| $write:expr, |$into:pat_param, $input:ident| $read:expr;)*) => {$(
        impl Message for $type {
            const NAME: &'static str = concat!("google.protobuf.", $name);
            const IS_OBJECT: bool = false;

            fn encode_json(&self, $out: &mut Writer) {
                let $value = self;
                $write;
            }

            fn decode_json(&mut self, $input: &mut Reader<'_>) -> Result<()> {
                let $into = self;
                $read
            }
        }
    )*};
}

forms! {
    bool, "BoolValue": |value, out| out.put_bool(*value), |into, input| input.bool(into);
    i32, "Int32Value": |value, out| out.put_i32(*value), |into, input| input.i32(into);
    i64, "Int64Value": |value, out| out.put_i64(*value), |into, input| input.i64(into);
    u32, "UInt32Value": |value, out| out.put_u32(*value), |into, input| input.u32(into);
    u64, "UInt64Value": |value, out| out.put_u64(*value), |into, input| input.u64(into);
    f32, "FloatValue": |value, out| out.put_f32(*value), |into, input| input.f32(into);
    f64, "DoubleValue": |value, out| out.put_f64(*value), |into, input| input.f64(into);
    String, "StringValue": |value, out| out.put_string(value), |into, input| input.string(into);
    Vec<u8>, "BytesValue": |value, out| out.put_bytes(value), |into, input| input.bytes(into);
    Bytes, "BytesValue": |value, out| out.put_bytes(value), |into, input| input.bytes(into);
    Timestamp, "Timestamp": |value, out| out.timestamp(value.seconds, value.nanos),
        |into, input| input.timestamp(&mut into.seconds, &mut into.nanos);
    Duration, "Duration": |value, out| out.duration(value.seconds, value.nanos),
        |into, input| input.duration(&mut into.seconds, &mut into.nanos);
    FieldMask, "FieldMask": |value, out| out.field_mask(&value.paths), |into, input| input.field_mask(&mut into.paths);
    Any, "Any": |value, out| out.any(&value.type_url, &value.value),
        |into, input| input.any(&mut into.type_url, &mut into.value);
    Struct, "Struct": |value, out| out.entries(&value.fields, Writer::message),
        |into, input| input.map(&mut into.fields, Reader::message);
    ListValue, "ListValue": |value, out| out.items(&value.values, Writer::message),
        |into, input| input.list(&mut into.values, Reader::message);
    (), "Empty": |(), out| {
            out.begin();
            out.end();
        },
        |(), input| input.object(&[], &mut |_, _| Ok(()));
    Value, "Value": |value, out| write_value(value, out), |into, input| read_value(into, input);
}

fn write_value(value: &Value, out: &mut Writer) {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => out.null(),
        Some(Kind::NumberValue(number)) => out.finite(*number),
        Some(Kind::StringValue(text)) => out.value(text),
        Some(Kind::BoolValue(value)) => out.value(value),
        Some(Kind::StructValue(fields)) => out.message(fields),
        Some(Kind::ListValue(list)) => out.message(list),
    }
}

fn read_value(into: &mut Value, input: &mut Reader<'_>) -> Result<()> {
    let into = &mut into.kind;
    match input.next_value()? {
        Next::Null => {
            *into = Some(Kind::NullValue(0));
            input.null()
        }
        Next::Bool => input.member(into, Kind::BoolValue, Reader::optional_scalar),
        Next::Number => input.member(into, Kind::NumberValue, Reader::optional_scalar),
        Next::String => input.member(into, Kind::StringValue, Reader::optional_scalar),
        Next::List => input.member(into, Kind::ListValue, Reader::optional_message),
        Next::Object => input.member(into, Kind::StructValue, Reader::optional_message),
    }
}

impl Enumeration for NullValue {
    const IS_NULL: bool = true;
    const NAMES: &'static [(i32, &'static str)] = &[(0, "NULL_VALUE")];
    const NUMBERS: &'static [(&'static str, i32)] = &[("NULL_VALUE", 0)];
}

/// A boxed message.
impl<M: Message> Message for Box<M> {
    const NAME: &'static str = M::NAME;
    const TYPES: &'static Types = M::TYPES;
    const IS_OBJECT: bool = M::IS_OBJECT;
    const STACK_LEN: usize = M::STACK_LEN;

    fn encode_json(&self, out: &mut Writer) {
        (**self).encode_json(out);
    }

    fn decode_json(&mut self, input: &mut Reader<'_>) -> Result<()> {
        input.charge(size_of::<M>())?;
        (**self).decode_json(input)
    }
}
