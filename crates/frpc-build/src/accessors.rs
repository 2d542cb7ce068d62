//! The accessor functions that prost's macro adds to the fields of a message.

use std::collections::HashSet;

use frpc_schema::{FieldSchema, FieldShape, MessageSchema, ValueType};

use crate::naming;

/// Returns the fields that cannot have accessors.
///
/// An accessor would have the name of the accessor of another field, or prost's macro could not form an identifier.
pub(crate) fn missing(message: &MessageSchema) -> Vec<&FieldSchema> {
    let getters: HashSet<_> =
        message.fields.iter().filter(|field| has_getter(field)).map(|field| naming::snake(&field.name)).collect();
    let is_missing = |field: &&FieldSchema| {
        let name = naming::snake(&field.name);
        let plain = name.trim_start_matches("r#");
        match &field.shape {
            FieldShape::Always(ValueType::Enum(_)) | FieldShape::Optional(ValueType::Enum(_)) => {
                getters.contains(&format!("set_{plain}"))
            }
            FieldShape::List(ValueType::Enum(_)) => getters.contains(&format!("push_{plain}")),
            FieldShape::Map(_, ValueType::Enum(_)) => {
                name != plain || ["get_", "insert_"].iter().any(|verb| getters.contains(&format!("{verb}{plain}")))
            }
            _ => false,
        }
    };
    message.fields.iter().filter(is_missing).collect()
}

/// Returns `true` if prost's macro adds a function with the name of the field.
fn has_getter(field: &FieldSchema) -> bool {
    match &field.shape {
        FieldShape::Always(of) | FieldShape::List(of) => matches!(of, ValueType::Enum(_)),
        FieldShape::Optional(of) if field.is_required => matches!(of, ValueType::Enum(_)),
        FieldShape::Optional(of) => !matches!(of, ValueType::Message(_)),
        FieldShape::Member(..) | FieldShape::Map(..) => false,
    }
}
