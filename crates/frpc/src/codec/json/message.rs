use super::{error::Result, reader::Reader, types::Types, writer::Writer};

/// A message that has JSON. Implemented by generated code, for the well-known types, and for what stands for them in Rust.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no JSON",
    note = "messages have it that frpc-build generated with `.json(true)`, in other crates too"
)]
pub trait Message: Default + 'static {
    /// The full name in the proto file.
    const NAME: &'static str;

    /// The types that an `Any` in it can hold. Without an `Any`, there is nothing to say.
    const TYPES: &'static Types = Types::WELL_KNOWN;

    /// False if it is no object of its fields in JSON, so that an `Any` has it in a field of its own.
    const IS_OBJECT: bool = true;

    /// The number of bytes that reading it takes from the stack.
    const STACK_LEN: usize = size_of::<Self>();

    /// Writes it.
    fn encode_json(&self, out: &mut Writer);

    /// Reads it into its default.
    fn decode_json(&mut self, input: &mut Reader<'_>) -> Result<()>;
}

/// An enum that has JSON.
pub trait Enumeration {
    /// True for `google.protobuf.NullValue`, whose value is `null`.
    const IS_NULL: bool = false;

    /// The number of each value and its name, sorted. Of several names for a number, the first one.
    const NAMES: &'static [(i32, &'static str)];

    /// The name of each value and its number, sorted.
    const NUMBERS: &'static [(&'static str, i32)];
}
