//! Encoding of the well-known types with Rust types from prost or the standard library.

use bytes::Bytes;
use prost_types::{Any, Duration, FieldMask, ListValue, NullValue, Struct, Timestamp, Value, value};

use super::{At, Choice, DecodeError, Enumeration, Kind, Message, Reader, Sink, Writer};
use crate::codec::{
    formats::Formats,
    layout::{FieldLayout, Layout},
};

macro_rules! messages {
    ($($type:ty, $name:literal, [$($field:expr),*]:
        |$value:pat_param, $out:pat_param| $write:expr, |$into:pat_param, $input:pat_param| $read:expr;)*) => {$(
        #[doc = concat!("`google.protobuf.", $name, "`")]
        impl Message for $type {
            const NAME: &'static str = $name;
            const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost().with_json());

            fn layout() -> Option<&'static Layout> {
                static LAYOUT: Layout = Layout::new(&[$($field),*]);
                Some(&LAYOUT)
            }

            fn encode_fields<S: Sink>(&self, $out: &mut Writer<S>) {
                let $value = self;
                $write
            }

            fn decode_fields(&mut self, $input: &mut Reader<'_>) -> Result<(), DecodeError> {
                let $into = self;
                $read
            }
        }
    )*};
}

messages! {
    bool, "BoolValue", []: |value, out| out.bool(*value), |into, input| input.bool(into).at("value");
    i32, "Int32Value", []: |value, out| out.i32(*value), |into, input| input.i32(into).at("value");
    i64, "Int64Value", []: |value, out| out.i64(*value), |into, input| input.i64(into).at("value");
    u32, "UInt32Value", []: |value, out| out.u32(*value), |into, input| input.u32(into).at("value");
    u64, "UInt64Value", []: |value, out| out.u64(*value), |into, input| input.u64(into).at("value");
    f32, "FloatValue", []: |value, out| out.f32(*value), |into, input| input.f32(into).at("value");
    f64, "DoubleValue", []: |value, out| out.f64(*value), |into, input| input.f64(into).at("value");
    String, "StringValue", []: |value, out| out.string(value), |into, input| input.string(into).at("value");
    Vec<u8>, "BytesValue", []: |value, out| out.bytes(value), |into, input| input.blob(into).at("value");
    Bytes, "BytesValue", []: |value, out| out.bytes(value), |into, input| input.blob(into).at("value");
    (), "Empty", []: |(), _| {}, |(), _| Ok(());
    Timestamp, "Timestamp", []: |value, out| write_time(value.seconds, value.nanos, out),
        |into, input| read_time(&mut into.seconds, &mut into.nanos, input);
    Duration, "Duration", []: |value, out| write_time(value.seconds, value.nanos, out),
        |into, input| read_time(&mut into.seconds, &mut into.nanos, input);
    Any, "Any", []: |value, out| {
            out.string(&value.type_url);
            out.bytes(&value.value);
        },
        |into, input| {
            input.string(&mut into.type_url).at("type_url")?;
            input.blob(&mut into.value).at("value")
        };
    FieldMask, "FieldMask", [FieldLayout::list(1, Kind::String)]: |value, out| out.scalar_list(&value.paths),
        |into, input| input.scalar_list(&mut into.paths).at("paths");
    Struct, "Struct", [FieldLayout::message_map::<Value>(1, Kind::String)]: |value, out| out.message_map(&value.fields),
        |into, input| input.message_map(&mut into.fields).at("fields");
    ListValue, "ListValue", [FieldLayout::message_list::<Value>(1)]: |value, out| out.message_list(&value.values),
        |into, input| input.message_list(&mut into.values).at("values");
    Value, "Value", [FieldLayout::message::<Struct>(5), FieldLayout::message::<ListValue>(6)]:
        |value, out| write_value(value, out), |into, input| read_value(into, input);
}

fn write_time<S: Sink>(seconds: i64, nanos: i32, out: &mut Writer<S>) {
    out.i64(seconds);
    out.i32(nanos);
}

fn read_time(seconds: &mut i64, nanos: &mut i32, input: &mut Reader<'_>) -> Result<(), DecodeError> {
    input.i64(seconds).at("seconds")?;
    input.i32(nanos).at("nanos")
}

impl Enumeration for NullValue {
    const NUMBERS: &'static [i32] = &[0];
}

fn write_value<S: Sink>(value: &Value, out: &mut Writer<S>) {
    use value::Kind::{BoolValue, ListValue, NullValue, NumberValue, StringValue, StructValue};
    macro_rules! member {
        ($member:ident) => {
            match &value.kind {
                Some($member(value)) => Some(value),
                _ => None,
            }
        };
    }
    out.optional_enumeration::<prost_types::NullValue>(member!(NullValue));
    out.optional_scalar(member!(NumberValue));
    out.optional_scalar(member!(StringValue));
    out.optional_scalar(member!(BoolValue));
    out.message_or_nil::<Struct>(member!(StructValue));
    out.message_or_nil::<prost_types::ListValue>(member!(ListValue));
}

fn read_value(into: &mut Value, input: &mut Reader<'_>) -> Result<(), DecodeError> {
    use value::Kind::{BoolValue, ListValue, NullValue, NumberValue, StringValue, StructValue};
    let mut kind = Choice::new(&mut into.kind);
    kind.member(0, input, NullValue, Reader::optional_enumeration::<prost_types::NullValue>).at("null_value")?;
    kind.member(1, input, NumberValue, Reader::optional_scalar).at("number_value")?;
    kind.member(2, input, StringValue, Reader::optional_scalar).at("string_value")?;
    kind.member(3, input, BoolValue, Reader::optional_scalar).at("bool_value")?;
    kind.member(4, input, StructValue, Reader::message_or_nil::<Struct, _>).at("struct_value")?;
    kind.member(5, input, ListValue, Reader::message_or_nil::<prost_types::ListValue, _>).at("list_value")
}
