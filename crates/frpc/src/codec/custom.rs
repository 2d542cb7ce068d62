//! User-defined codecs, and messages encoded with them.

use std::{error::Error, marker::PhantomData};

use bytes::Bytes;

use super::{
    field_layouts::checked_memory,
    formats::{CodecError, FormatFunctions, Formats, append},
    json::Types,
    polyglot::{DecodeError, Message, Reader, Sink, Writer},
    reading::DecodeContext,
};

/// A user-defined codec for the messages of a service, instead of protobuf.
///
/// `frpc_build::configure().codec_path("crate::JsonCodec")` selects one for services of proto files.
/// `frpc_build::manual` does so for services without a proto file. Their messages can have any type.
///
/// A codec has no values. It is a type with an implementation of this trait per message, usually one generic `impl`.
///
/// ```
/// use frpc::codec::Codec;
/// # use bytes::Bytes;
/// # trait Serialize { fn to_json(&self) -> String; }
/// # trait Deserialize: Sized { fn from_json(json: &[u8]) -> Result<Self, std::str::Utf8Error>; }
/// # impl Serialize for String { fn to_json(&self) -> String { self.clone() } }
/// # impl Deserialize for String {
/// #     fn from_json(json: &[u8]) -> Result<Self, std::str::Utf8Error> { std::str::from_utf8(json).map(str::to_owned) }
/// # }
///
/// struct JsonCodec;
///
/// impl<M: Serialize + Deserialize> Codec<M> for JsonCodec {
///     const NAME: &'static str = "json";
///
///     fn encode(message: &M, out: &mut Vec<u8>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///         out.extend_from_slice(message.to_json().as_bytes());
///         Ok(())
///     }
///
///     fn decode(content: &Bytes) -> Result<M, Box<dyn std::error::Error + Send + Sync>> {
///         Ok(M::from_json(content)?)
///     }
/// }
/// # let mut out = Vec::new();
/// # JsonCodec::encode(&"{}".to_owned(), &mut out).unwrap();
/// # assert_eq!(<JsonCodec as Codec<String>>::decode(&out.into()).unwrap(), "{}");
/// ```
///
/// # On the wire
///
/// - gRPC and gRPC-Web: the message is the output of the codec. Clients send the content type `application/grpc+NAME`.
///   Servers accept that type and also `application/grpc`, because tonic sends no other. They reject all other types.
/// - Connect, Twirp and JSON-RPC: a codec named `json` replaces their JSON. On Connect and Twirp, a codec named `proto`
///   replaces protobuf. Calls with any other codec end with `Unimplemented`.
/// - frisbee: the message is a single bytes field with the output of the codec, like a `google.protobuf.BytesValue`.
///
/// Both peers must use the same codec: frisbee does not compare them. Reflection does not describe such messages.
///
/// # Limits
///
/// Servers check the length of a message before decoding it. On HTTP and JSON-RPC they count 16 bytes of memory per
/// byte of the message. A codec should not allocate memory for a length that its input merely announces.
pub trait Codec<M>: 'static {
    /// Name of the format in lower case, such as `json` or `cbor`. Must be the same for all messages of a codec.
    const NAME: &'static str;

    /// Appends the encoded message to `out`. A codec named `json` must append a single value without line breaks.
    ///
    /// # Errors
    ///
    /// Fails if the format cannot represent the message. The call then ends with [`Internal`](crate::Code::Internal).
    fn encode(message: &M, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Decodes a message from all of `content`.
    ///
    /// # Errors
    ///
    /// Fails if the bytes do not encode such a message. The call then ends with
    /// [`InvalidArgument`](crate::Code::InvalidArgument) for a request and with [`Internal`](crate::Code::Internal) for
    /// a response.
    fn decode(content: &Bytes) -> Result<M, Box<dyn Error + Send + Sync>>;
}

/// A message encoded with a user-defined codec.
pub(crate) struct CodedMessage<C, M> {
    content: Bytes,
    codec: PhantomData<fn() -> (C, M)>,
}

impl<C: Codec<M>, M> CodedMessage<C, M> {
    /// Encodes a message.
    pub(crate) fn encode(message: &M) -> Result<Self, CodecError> {
        let mut out = Vec::new();
        C::encode(message, &mut out).map_err(custom::<C, M>)?;
        Ok(Self::of(out.into()))
    }

    /// Decodes the message.
    pub(crate) fn decode(&self) -> Result<M, CodecError> {
        C::decode(&self.content).map_err(custom::<C, M>)
    }

    fn of(content: Bytes) -> Self {
        Self { content, codec: PhantomData }
    }
}

fn custom<C: Codec<M>, M>(error: Box<dyn Error + Send + Sync>) -> CodecError {
    CodecError::Custom { codec: C::NAME, text: error.to_string() }
}

impl<C, M> Default for CodedMessage<C, M> {
    fn default() -> Self {
        Self { content: Bytes::new(), codec: PhantomData }
    }
}

impl<C: Codec<M>, M: 'static> Message for CodedMessage<C, M> {
    const NAME: &'static str = C::NAME;
    const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::custom());

    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) {
        out.bytes(&self.content);
    }

    fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        input.blob(&mut self.content)
    }
}

impl<C: Codec<M>, M: 'static> Formats<CodedMessage<C, M>> {
    const fn custom() -> Self {
        let is_json = matches!(C::NAME.as_bytes(), b"json");
        Self {
            proto: Some(FormatFunctions { encode, encode_to, decode }),
            json: if is_json { Some(FormatFunctions { encode, encode_to, decode: decode_json }) } else { None },
            codec: Some(C::NAME),
        }
    }
}

fn encode<C: Codec<M>, M>(message: &CodedMessage<C, M>, _: &'static Types) -> Result<Bytes, CodecError> {
    Ok(message.content.clone())
}

fn encode_to<C: Codec<M>, M>(
    message: &CodedMessage<C, M>,
    _: &'static Types,
    out: &mut Vec<u8>,
    len_max: usize,
) -> Result<Option<Bytes>, CodecError> {
    Ok(append(out, message.content.clone(), len_max))
}

// The caller counted the memory already.
fn decode<C: Codec<M>, M>(
    content: &Bytes,
    part: &[u8],
    _: &mut DecodeContext,
) -> Result<CodedMessage<C, M>, CodecError> {
    Ok(CodedMessage::of(content.slice_ref(part)))
}

fn decode_json<C: Codec<M>, M: 'static>(
    content: &Bytes,
    part: &[u8],
    reading: &mut DecodeContext,
) -> Result<CodedMessage<C, M>, CodecError> {
    let counted = checked_memory::<CodedMessage<C, M>>(part, reading.budget, 0);
    reading.memory_len += counted.map_err(|limit| CodecError::TooMuchMemory { message: C::NAME, limit })?;
    decode(content, part, reading)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Format, MemoryBudget, polyglot};

    struct Digits<const JSON: bool>;

    impl<const JSON: bool> Codec<u64> for Digits<JSON> {
        const NAME: &'static str = if JSON { "json" } else { "digits" };

        fn encode(message: &u64, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
            out.extend_from_slice(message.to_string().as_bytes());
            Ok(())
        }

        fn decode(content: &Bytes) -> Result<u64, Box<dyn Error + Send + Sync>> {
            Ok(str::from_utf8(content)?.parse()?)
        }
    }

    fn coded<const JSON: bool>() -> CodedMessage<Digits<JSON>, u64> {
        CodedMessage::encode(&42).unwrap()
    }

    #[test]
    fn the_message_is_the_output_of_the_codec() {
        let content = Format::Proto.encode(&coded::<false>()).unwrap().into_bytes();
        assert_eq!(content, "42");
        assert_eq!(Format::Proto.decode::<CodedMessage<Digits<false>, u64>>(&content).unwrap().decode(), Ok(42));
        let content = Format::Json.encode(&coded::<true>()).unwrap().into_bytes();
        assert_eq!(content, "42");
        assert_eq!(Format::Json.decode::<CodedMessage<Digits<true>, u64>>(&content).unwrap().decode(), Ok(42));
    }

    #[test]
    fn polyglot_wraps_the_bytes_in_a_field() {
        let content = Format::Polyglot.encode(&coded::<false>()).unwrap().into_bytes();
        assert_eq!(content, polyglot::encode(&Bytes::from_static(b"42")), "as of a BytesValue");
        assert_eq!(Format::Polyglot.decode::<CodedMessage<Digits<false>, u64>>(&content).unwrap().decode(), Ok(42));
    }

    #[test]
    fn only_the_json_codec_supports_the_json_format() {
        let error = Format::Json.encode(&coded::<false>()).unwrap_err();
        assert_eq!(error, CodecError::OtherCodec { codec: "digits", format: Format::Json });
        assert_eq!(error.to_string(), "the messages are written by the codec `digits`, not in JSON");
    }

    #[test]
    fn invalid_bytes_are_an_error_of_the_codec() {
        let coded = CodedMessage::<Digits<false>, u64>::of(Bytes::from_static(b"x"));
        let error = coded.decode().unwrap_err();
        assert_eq!(error.to_string(), "the codec `digits` refuses it: invalid digit found in string");
    }

    #[test]
    fn each_encoded_byte_counts_as_16_bytes_of_memory() {
        let content = Bytes::from(vec![b'1'; 1024]);
        let decode = |format: Format, len| {
            format.decode_within::<CodedMessage<Digits<true>, u64>>(&content, MemoryBudget::new(len)).map(drop)
        };
        for format in [Format::Proto, Format::Json] {
            assert_eq!(decode(format, 16 << 10), Ok(()));
            assert!(decode(format, 15 << 10).is_err_and(|error| error.is_too_much_memory()));
        }
    }
}
