//! Conversion of messages to bytes and back, in any format.

use std::ops::Range;

use bytes::Bytes;

use super::{
    field_layouts::checked_memory,
    format::Format,
    formats::{CodecError, FormatFunctions},
    json::Types,
    layout::MemoryBudget,
    polyglot::{self, DecodedContent, EncodedMessage, Message, SmallMessage},
    reading::DecodeContext,
};

impl Format {
    /// Encodes a message.
    ///
    /// # Errors
    ///
    /// [`CodecError::Unsupported`] if the type lacks this format: hand-written messages may support only polyglot. JSON
    /// also fails for some values, such as an `Any` of an unknown type.
    #[inline]
    pub fn encode<M: Message>(self, message: &M) -> Result<EncodedMessage, CodecError> {
        self.encode_with(message, Types::WELL_KNOWN)
    }

    /// Encodes a message. In JSON, its `Any` fields can also contain messages of these types.
    pub(crate) fn encode_with<M: Message>(
        self,
        message: &M,
        any_types: &'static Types,
    ) -> Result<EncodedMessage, CodecError> {
        match self {
            Self::Polyglot => Ok(polyglot::encode_pieces(message)),
            other => other.encode_by_table(message, any_types),
        }
    }

    /// Encodes a message that is copied soon. A short one is in a reusable buffer of the current thread.
    #[inline(always)]
    pub(crate) fn encode_briefly<M: Message>(
        self,
        message: &M,
        any_types: &'static Types,
    ) -> Result<EncodedMessage, CodecError> {
        match self {
            Self::Polyglot => Ok(polyglot::encode_small(message)),
            Self::Proto => self.encode_small_by_table(message, any_types),
            // Text is written to a buffer of its own.
            Self::Json => self.encode_by_table(message, any_types),
        }
    }

    /// Decodes a message. Its `Bytes` fields are slices of `content`.
    ///
    /// # Errors
    ///
    /// Fails if the type lacks this format, or if the bytes do not encode such a message.
    #[inline]
    pub fn decode<M: Message>(self, content: &Bytes) -> Result<M, CodecError> {
        self.decode_within(content, MemoryBudget::default())
    }

    /// Decodes a message like [`decode`](Self::decode), within a memory budget.
    ///
    /// # Errors
    ///
    /// The errors of [`decode`](Self::decode), and [too much memory](CodecError::is_too_much_memory) for a message
    /// above the budget.
    #[inline(always)] // On the hot path of each call.
    pub fn decode_within<M: Message>(self, content: &Bytes, budget: MemoryBudget) -> Result<M, CodecError> {
        match self {
            Self::Polyglot => message_of(polyglot::decode_within(content, budget)?),
            other => other.decode_by_table(content, content, &mut DecodeContext::within(budget)),
        }
    }

    /// Decodes a message by these rules. Polyglot uses only the budget.
    pub(crate) fn decode_with<M: Message>(self, content: &Bytes, reading: &mut DecodeContext) -> Result<M, CodecError> {
        match self {
            Self::Polyglot => self.decode_within(content, reading.budget),
            other => other.decode_by_table(content, content, reading),
        }
    }

    /// Decodes a message that is a range of a larger buffer, such as a message of a stream.
    #[inline(always)] // Once per message.
    pub(crate) fn decode_part<M: Message>(
        self,
        bytes: &Bytes,
        part: Range<usize>,
        budget: MemoryBudget,
    ) -> Result<M, CodecError> {
        match self {
            Self::Polyglot => message_of(polyglot::decode_part(bytes, &bytes[part], budget)?),
            Self::Proto => Self::Proto.decode_checked(bytes, &bytes[part], &mut DecodeContext::within(budget)),
            Self::Json => Self::Json.decode_by_table(bytes, &bytes[part], &mut DecodeContext::within(budget)),
        }
    }

    /// Appends an encoded message to `out`, or returns it if it is longer than `len_max` bytes, or encoded already and
    /// long.
    #[inline]
    pub(crate) fn encode_to<M: Message>(
        self,
        message: &M,
        any_types: &'static Types,
        out: &mut Vec<u8>,
        len_max: usize,
    ) -> Result<Option<Bytes>, CodecError> {
        match self {
            Self::Polyglot => Ok(polyglot::encode_small_to(message, out, len_max).map(EncodedMessage::into_bytes)),
            other => other.encode_by_table_to(message, any_types, out, len_max),
        }
    }

    // Cold, because nearly all calls use polyglot. They should pay for one branch only.
    #[cold]
    #[inline(never)]
    fn encode_by_table<M: Message>(self, message: &M, any_types: &'static Types) -> Result<EncodedMessage, CodecError> {
        Ok((self.functions::<M>()?.encode)(message, any_types)?.into())
    }

    #[cold]
    #[inline(never)]
    fn encode_small_by_table<M: Message>(
        self,
        message: &M,
        any_types: &'static Types,
    ) -> Result<EncodedMessage, CodecError> {
        let mut small = SmallMessage::spare();
        let large = (self.functions::<M>()?.encode_to)(message, any_types, &mut small, SmallMessage::LEN_MAX)?;
        Ok(large.map_or_else(|| EncodedMessage::Small(SmallMessage::new(small)), EncodedMessage::One))
    }

    #[cold]
    #[inline(never)]
    fn encode_by_table_to<M: Message>(
        self,
        message: &M,
        any_types: &'static Types,
        out: &mut Vec<u8>,
        len_max: usize,
    ) -> Result<Option<Bytes>, CodecError> {
        (self.functions::<M>()?.encode_to)(message, any_types, out, len_max)
    }

    #[cold]
    #[inline(never)]
    fn decode_by_table<M: Message>(
        self,
        content: &Bytes,
        part: &[u8],
        reading: &mut DecodeContext,
    ) -> Result<M, CodecError> {
        self.decode_checked(content, part, reading)
    }

    /// Decodes a message by its table, within its memory budget.
    #[inline(always)]
    fn decode_checked<M: Message>(
        self,
        content: &Bytes,
        part: &[u8],
        reading: &mut DecodeContext,
    ) -> Result<M, CodecError> {
        let functions = self.functions::<M>()?;
        if self == Self::Proto {
            let uncounted_max = if reading.is_counted { UNCOUNTED_MAX } else { usize::MAX };
            let checked = checked_memory::<M>(part, reading.budget, uncounted_max);
            reading.memory_len += checked.map_err(|limit| CodecError::TooMuchMemory { message: M::NAME, limit })?;
        }
        let message = (functions.decode)(content, part, reading)?;
        if self == Self::Proto
            && let Some(required) = M::required()
        {
            required.check(M::NAME, part)?;
        }
        Ok(message)
    }

    fn functions<M: Message>(self) -> Result<&'static FormatFunctions<M>, CodecError> {
        let functions = M::FORMATS.and_then(|formats| match self {
            // Polyglot needs no table.
            Self::Polyglot => None,
            Self::Proto => formats.proto.as_ref(),
            Self::Json => formats.json.as_ref(),
        });
        functions.ok_or_else(|| match M::FORMATS.and_then(|formats| formats.codec) {
            Some(codec) => CodecError::OtherCodec { codec, format: self },
            None => CodecError::Unsupported { message: M::NAME, format: self },
        })
    }
}

/// Messages in protobuf below this memory size are not counted.
const UNCOUNTED_MAX: usize = 1 << 20;

#[inline]
fn message_of<M>(content: DecodedContent<M>) -> Result<M, CodecError> {
    match content {
        DecodedContent::Message(message) => Ok(message),
        DecodedContent::Error(failure) => Err(CodecError::Failure(failure)),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use prost::Message as _;
    use prost_types::{Any, Duration, FieldMask, Struct, Timestamp, Value, value};

    use super::*;
    use crate::codec::{At, DecodeError, Formats, Reader, Sink, Writer, encode_error};

    /// A hand-written message with a table of formats.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Point {
        #[prost(sint32, tag = "3")]
        x: i32,
        #[prost(string, tag = "1")]
        name: String,
        #[prost(bytes = "bytes", tag = "7")]
        blob: Bytes,
    }

    impl Message for Point {
        const NAME: &'static str = "Point";
        const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost());

        fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) {
            out.i32(self.x);
            out.string(&self.name);
            out.bytes(&self.blob);
        }

        fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
            input.i32(&mut self.x).at("x")?;
            input.string(&mut self.name).at("name")?;
            input.blob(&mut self.blob).at("blob")
        }
    }

    /// A hand-written message without a table and without prost.
    #[derive(Debug, Default, PartialEq)]
    struct Plain;

    impl Message for Plain {
        const NAME: &'static str = "Plain";

        fn encode_fields<S: Sink>(&self, _: &mut Writer<S>) {}

        fn decode_fields(&mut self, _: &mut Reader<'_>) -> Result<(), DecodeError> {
            Ok(())
        }
    }

    fn point() -> Point {
        Point { x: -150, name: "here".to_owned(), blob: Bytes::from_static(b"blob") }
    }

    /// Checks that both formats round-trip a message, and that the protobuf bytes equal those of prost.
    fn check<M: Message + prost::Message + PartialEq + Debug>(message: &M) {
        let proto = Format::Proto.encode(message).expect("it has protocol buffers").into_bytes();
        assert_eq!(proto, message.encode_to_vec(), "{message:?}");
        assert_eq!(Format::Proto.decode::<M>(&proto).as_ref(), Ok(message));
        let polyglot = Format::Polyglot.encode(message).expect("every message has polyglot").into_bytes();
        assert_eq!(polyglot, polyglot::encode(message), "{message:?}");
        assert_eq!(Format::Polyglot.decode::<M>(&polyglot).as_ref(), Ok(message));
    }

    #[test]
    fn handwritten_messages_with_a_table_support_protobuf() {
        check(&Point::default());
        check(&point());
        let proto = Format::Proto.encode(&point()).expect("it has protocol buffers").into_bytes();
        assert_eq!(&proto[..], b"\x0a\x04here\x18\xab\x02\x3a\x04blob");
    }

    #[test]
    fn protobuf_bytes_fields_are_slices_of_the_content() {
        let content = Bytes::from(point().encode_to_vec());
        let blob = Format::Proto.decode::<Point>(&content).expect("it is one").blob;
        assert!(content.as_ptr_range().contains(&blob.as_ptr()));
    }

    #[test]
    fn messages_of_a_batch_share_its_buffer() {
        let encoded = point().encode_to_vec();
        let batch = Bytes::from([b"before".as_slice(), &encoded, b"after"].concat());
        let part = 6..6 + encoded.len();
        let decoded: Point = Format::Proto.decode_part(&batch, part.clone(), MemoryBudget::default()).unwrap();
        assert_eq!(decoded, point());
        assert!(batch[part].as_ptr_range().contains(&decoded.blob.as_ptr()), "a field is a slice of the batch");
        let cut = Format::Proto.decode_part::<Point>(&batch, 6..5 + encoded.len(), MemoryBudget::default());
        assert!(matches!(cut, Err(CodecError::Proto(_))), "a message ends with its part");
    }

    #[test]
    fn well_known_types_support_protobuf() {
        check(&());
        check(&true);
        check(&-1_i32);
        check(&i64::MIN);
        check(&1_u32);
        check(&u64::MAX);
        check(&1.5_f32);
        check(&-0.1_f64);
        check(&"text".to_owned());
        check(&b"bytes".to_vec());
        check(&Bytes::from_static(b"bytes"));
        check(&Timestamp { seconds: 1, nanos: 2 });
        check(&Duration { seconds: -1, nanos: -2 });
        check(&Any { type_url: "type.googleapis.com/Point".to_owned(), value: b"point".to_vec() });
        check(&FieldMask { paths: vec!["a.b".to_owned()] });
        let number = Value { kind: Some(value::Kind::NumberValue(1.0)) };
        check(&number);
        check(&prost_types::ListValue { values: vec![number.clone()] });
        check(&Struct { fields: [("number".to_owned(), number)].into() });
    }

    #[test]
    fn an_unsupported_format_is_an_error_with_advice() {
        let error = Format::Proto.encode(&Plain).expect_err("it has none");
        assert_eq!(error, CodecError::Unsupported { message: "Plain", format: Format::Proto });
        assert_eq!(
            error.to_string(),
            "the message Plain has no protobuf on this side: have frisbee-rpc-build generate it, or set its `Message::FORMATS`"
        );
        assert_eq!(Format::Proto.decode::<Plain>(&Bytes::new()), Err(error));
        assert!(Format::Polyglot.encode(&Plain).is_ok());
    }

    #[test]
    fn json_requires_a_build_option() {
        let unsupported = CodecError::Unsupported { message: "Point", format: Format::Json };
        assert_eq!(Format::Json.encode(&point()), Err(unsupported.clone()));
        assert_eq!(Format::Json.decode::<Point>(&Bytes::from_static(b"{}")), Err(unsupported.clone()));
        assert_eq!(
            unsupported.to_string(),
            "the message Point has no JSON on this side: have frisbee-rpc-build generate it with `.json(true)`"
        );
    }

    #[test]
    fn invalid_bytes_are_an_error_of_their_format() {
        let error = Format::Proto.decode::<Point>(&Bytes::from_static(b"\x0a\x04he"));
        assert!(matches!(error, Err(CodecError::Proto(_))), "{error:?}");
        let error = Format::Polyglot.decode::<Point>(&Bytes::from_static(b"\x08\x00\x05"));
        assert!(matches!(&error, Err(CodecError::Polyglot(error)) if error.path() == "Point.x"), "{error:?}");
        let error = Format::Polyglot.decode::<Point>(&encode_error("no", Some(7)));
        assert!(matches!(&error, Err(CodecError::Failure(failure)) if failure.text == "no"), "{error:?}");
    }
}
