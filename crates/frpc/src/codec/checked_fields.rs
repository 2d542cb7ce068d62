//! Constructors of checked fields, by field type.

use super::{
    polyglot::Message,
    required::{CheckedField, FieldContent},
};

impl CheckedField {
    /// Creates a field with a scalar, or with messages that have no required fields.
    pub const fn value(number: u32, name: &'static str) -> Self {
        Self::of(number, name, FieldContent::Value)
    }

    /// Creates a field with at most one message.
    pub const fn message<M: Message>(number: u32, name: &'static str) -> Self {
        Self::of(number, name, FieldContent::Message(M::required))
    }

    /// Creates a member of a oneof with a message.
    pub const fn member<M: Message>(number: u32, name: &'static str) -> Self {
        Self::of(number, name, FieldContent::Member(M::required))
    }

    /// Creates a list of messages.
    pub const fn list<M: Message>(number: u32, name: &'static str) -> Self {
        Self::of(number, name, FieldContent::List(M::required))
    }

    /// Creates a map with messages as values.
    pub const fn map<M: Message>(number: u32, name: &'static str) -> Self {
        Self::of(number, name, FieldContent::Map(M::required))
    }

    /// Marks the field as required: its absence is an error.
    pub const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    const fn of(number: u32, name: &'static str, holds: FieldContent) -> Self {
        Self { number, name, is_required: false, holds }
    }
}
