use super::{error::Result, reader::Reader, sink::Sink, writer::Writer};
use crate::codec::{formats::Formats, layout::Layout};

/// A message that can cross the wire. Implemented by generated code.
pub trait Message: Default + Send + Sync + 'static {
    /// The name in the proto file, without its package, for error messages.
    const NAME: &'static str;

    /// The formats that it has besides polyglot.
    const FORMATS: Option<&'static Formats<Self>> = None;

    /// Returns what protocol buffers of the message take in memory. Without it, 16 bytes are counted for each byte of input, which
    /// long lists of empty messages exceed by far: [`MemoryBudget`](crate::codec::MemoryBudget) holds for types with layouts.
    // No part of `FORMATS`: whatever names that has the functions of all formats compiled.
    fn layout() -> Option<&'static Layout> {
        None
    }

    /// Writes the fields, in the order of the wire.
    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>);

    /// Reads the fields of a default message, in the order of the wire.
    fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<()>;
}
