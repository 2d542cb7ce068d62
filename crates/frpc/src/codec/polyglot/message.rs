use super::{error::Result, reader::Reader, sink::Sink, writer::Writer};
use crate::codec::{formats::Formats, layout::Layout, required::RequiredFields};

/// A message for RPC and pub/sub. Generated code implements this trait.
pub trait Message: Default + Send + Sync + 'static {
    /// The name in the proto file, without its package, for error messages.
    const NAME: &'static str;

    /// Formats supported in addition to polyglot.
    const FORMATS: Option<&'static Formats<Self>> = None;

    /// Returns the memory layout of the message, to limit the memory of decoded protobuf messages.
    ///
    /// Without a layout, 16 bytes are counted per byte of input. Long lists of empty messages take far more, so a
    /// [`MemoryBudget`](crate::codec::MemoryBudget) is exact only for types with layouts.
    // Not in `FORMATS`: a reference to `FORMATS` makes the compiler generate the functions of all formats.
    fn layout() -> Option<&'static Layout> {
        None
    }

    /// Returns the required fields of the message, and its fields with messages that have some.
    ///
    /// The function [`decode_fields`](Self::decode_fields) has to check the required fields, too, for polyglot.
    #[inline]
    fn required() -> Option<&'static RequiredFields> {
        None
    }

    /// Encodes the fields in wire order.
    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>);

    /// Decodes the fields in wire order. `self` must be the default message.
    fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<()>;
}
