//! The accessor functions that prost's macro adds to the fields of a message.

use std::collections::HashSet;

use frpc_schema::{Field, Message, Shape, Type};

use crate::naming;

/// Returns the fields that cannot have accessors.
///
/// An accessor would have the name of the accessor of another field, or prost's macro could not form an identifier.
pub(crate) fn missing(message: &Message) -> Vec<&Field> {
    let getters: HashSet<_> =
        message.fields.iter().filter(|field| has_getter(field)).map(|field| naming::snake(&field.name)).collect();
    let is_missing = |field: &&Field| {
        let name = naming::snake(&field.name);
        let plain = name.trim_start_matches("r#");
        match &field.shape {
            Shape::Always(Type::Enum(_)) | Shape::Optional(Type::Enum(_)) => getters.contains(&format!("set_{plain}")),
            Shape::List(Type::Enum(_)) => getters.contains(&format!("push_{plain}")),
            Shape::Map(_, Type::Enum(_)) => {
                name != plain || ["get_", "insert_"].iter().any(|verb| getters.contains(&format!("{verb}{plain}")))
            }
            _ => false,
        }
    };
    message.fields.iter().filter(is_missing).collect()
}

/// Returns `true` if prost's macro adds a function with the name of the field.
fn has_getter(field: &Field) -> bool {
    match &field.shape {
        Shape::Always(of) | Shape::List(of) => matches!(of, Type::Enum(_)),
        Shape::Optional(of) => !matches!(of, Type::Message(_)),
        Shape::Member(..) | Shape::Map(..) => false,
    }
}
