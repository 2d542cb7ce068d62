//! Encoding of the well-known types with Rust types from prost or the standard library.

use bytes::Bytes;
use prost_types::{Any, Duration, FieldMask, ListValue, NullValue, Struct, Timestamp, Value, value};

use super::{At, Choice, DecodeError, Enumeration, Kind, Message, Reader, Sink, Writer};
use crate::codec::{
    formats::Formats,
    layout::{FieldLayout, Layout},
};

macro_rules! wrapper {
    ($($type:ty, $name:literal: |$out:ident, $value:ident| $write:expr, $read:ident;)*) => {$(
        #[doc = concat!("`google.protobuf.", $name, "`")]
        impl Message for $type {
            const NAME: &'static str = $name;
            const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost().with_json());

            fn layout() -> Option<&'static Layout> {
                Some(Layout::flat())
            }

            fn encode_fields<S: Sink>(&self, $out: &mut Writer<S>) {
                let $value = self;
                $write;
            }

            fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
                input.$read(self).at("value")
            }
        }
    )*};
}

wrapper! {
    bool, "BoolValue": |out, value| out.bool(*value), bool;
    i32, "Int32Value": |out, value| out.i32(*value), i32;
    i64, "Int64Value": |out, value| out.i64(*value), i64;
    u32, "UInt32Value": |out, value| out.u32(*value), u32;
    u64, "UInt64Value": |out, value| out.u64(*value), u64;
    f32, "FloatValue": |out, value| out.f32(*value), f32;
    f64, "DoubleValue": |out, value| out.f64(*value), f64;
    String, "StringValue": |out, value| out.string(value), string;
    Vec<u8>, "BytesValue": |out, value| out.bytes(value), blob;
    Bytes, "BytesValue": |out, value| out.bytes(value), blob;
}

/// `google.protobuf.Empty`
impl Message for () {
    const NAME: &'static str = "Empty";
    const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost().with_json());

    fn layout() -> Option<&'static Layout> {
        Some(Layout::flat())
    }

    fn encode_fields<S: Sink>(&self, _: &mut Writer<S>) {}

    fn decode_fields(&mut self, _: &mut Reader<'_>) -> Result<(), DecodeError> {
        Ok(())
    }
}

macro_rules! seconds_and_nanos {
    ($($type:ident)*) => {$(
        impl Message for $type {
            const NAME: &'static str = stringify!($type);
            const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost().with_json());

            fn layout() -> Option<&'static Layout> {
                Some(Layout::flat())
            }

            fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) {
                out.i64(self.seconds);
                out.i32(self.nanos);
            }

            fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
                input.i64(&mut self.seconds).at("seconds")?;
                input.i32(&mut self.nanos).at("nanos")
            }
        }
    )*};
}

seconds_and_nanos!(Timestamp Duration);

impl Message for Any {
    const NAME: &'static str = "Any";
    const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost().with_json());

    fn layout() -> Option<&'static Layout> {
        Some(Layout::flat())
    }

    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) {
        out.string(&self.type_url);
        out.bytes(&self.value);
    }

    fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        input.string(&mut self.type_url).at("type_url")?;
        input.blob(&mut self.value).at("value")
    }
}

impl Message for FieldMask {
    const NAME: &'static str = "FieldMask";
    const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost().with_json());

    fn layout() -> Option<&'static Layout> {
        static LAYOUT: Layout = Layout::new(&[FieldLayout::list(1, Kind::String)]);
        Some(&LAYOUT)
    }

    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) {
        out.scalar_list(&self.paths);
    }

    fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        input.scalar_list(&mut self.paths).at("paths")
    }
}

impl Message for Struct {
    const NAME: &'static str = "Struct";
    const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost().with_json());

    fn layout() -> Option<&'static Layout> {
        static LAYOUT: Layout = Layout::new(&[FieldLayout::message_map::<Value>(1, Kind::String)]);
        Some(&LAYOUT)
    }

    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) {
        out.message_map(&self.fields);
    }

    fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        input.message_map(&mut self.fields).at("fields")
    }
}

impl Message for ListValue {
    const NAME: &'static str = "ListValue";
    const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost().with_json());

    fn layout() -> Option<&'static Layout> {
        static LAYOUT: Layout = Layout::new(&[FieldLayout::message_list::<Value>(1)]);
        Some(&LAYOUT)
    }

    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) {
        out.message_list(&self.values);
    }

    fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        input.message_list(&mut self.values).at("values")
    }
}

impl Enumeration for NullValue {
    const NUMBERS: &'static [i32] = &[0];
}

impl Message for Value {
    const NAME: &'static str = "Value";
    const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost().with_json());

    fn layout() -> Option<&'static Layout> {
        static LAYOUT: Layout = Layout::new(&[FieldLayout::message::<Struct>(5), FieldLayout::message::<ListValue>(6)]);
        Some(&LAYOUT)
    }

    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) {
        use value::Kind::{BoolValue, ListValue, NullValue, NumberValue, StringValue, StructValue};
        macro_rules! member {
            ($member:ident) => {
                match &self.kind {
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

    fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        use value::Kind::{BoolValue, ListValue, NullValue, NumberValue, StringValue, StructValue};
        let mut kind = Choice::new(&mut self.kind);
        kind.member(0, input, NullValue, Reader::optional_enumeration::<prost_types::NullValue>).at("null_value")?;
        kind.member(1, input, NumberValue, Reader::optional_scalar).at("number_value")?;
        kind.member(2, input, StringValue, Reader::optional_scalar).at("string_value")?;
        kind.member(3, input, BoolValue, Reader::optional_scalar).at("bool_value")?;
        kind.member(4, input, StructValue, Reader::message_or_nil::<Struct, _>).at("struct_value")?;
        kind.member(5, input, ListValue, Reader::message_or_nil::<prost_types::ListValue, _>).at("list_value")
    }
}
