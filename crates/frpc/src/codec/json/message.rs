use super::{error::Result, reader::Reader, types::Types, writer::Writer};

/// A message with a JSON form. frisbee-rpc-build implements it for generated messages.
///
/// This crate implements it for the well-known types and their Rust counterparts.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no JSON",
    note = "messages have it that frisbee-rpc-build generated with `.json(true)`, in other crates too"
)]
pub trait Message: Default + 'static {
    /// Full name of the message in the proto file.
    const NAME: &'static str;

    /// Message types to look up for an `Any` inside this message. Only messages with an `Any` need to set it.
    const TYPES: &'static Types = Types::WELL_KNOWN;

    /// `true` if the JSON form is an object of the fields. `false` for special forms: an `Any` puts them into a member
    /// named `value`.
    const IS_OBJECT: bool = true;

    /// Number of bytes to count against the stack limit of the [`Reader`] for each level of nesting.
    const STACK_LEN: usize = size_of::<Self>();

    /// Writes the JSON form of the message.
    fn encode_json(&self, out: &mut Writer);

    /// Parses the message. `self` must be the default message.
    fn decode_json(&mut self, input: &mut Reader<'_>) -> Result<()>;
}

/// An enum with a JSON form.
pub trait Enumeration {
    /// `true` for `google.protobuf.NullValue`: its JSON form is `null`.
    const IS_NULL: bool = false;

    /// Numbers of the values with their names, sorted by number. An alias has no entry: the first name is used.
    const NAMES: &'static [(i32, &'static str)];

    /// Names of the values with their numbers, sorted by name.
    const NUMBERS: &'static [(&'static str, i32)];
}
