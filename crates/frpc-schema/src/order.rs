//! The order of fields on the wire.
//!
//! frpc-go generates the encoding of a message in three loops over its fields: first scalars, strings, bytes and enums,
//! then lists, then single messages and maps. Within each group the order is that of declaration; field numbers do not
//! matter. A member of a oneof stands where its type puts it, beside fields that are in no oneof.

use crate::model::{Field, Shape, Type};

/// Sorts fields from the order of declaration to the order of the wire.
pub(crate) fn sort(fields: &mut [Field]) {
    fields.sort_by_key(|field| Group::of(&field.shape));
}

/// The groups of fields, in the order of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Scalars,
    Lists,
    MessagesAndMaps,
}

impl Group {
    fn of(shape: &Shape) -> Self {
        match shape {
            Shape::List(_) => Self::Lists,
            Shape::Map(..)
            | Shape::Always(Type::Message(_))
            | Shape::Optional(Type::Message(_))
            | Shape::Member(_, Type::Message(_)) => Self::MessagesAndMaps,
            Shape::Always(_) | Shape::Optional(_) | Shape::Member(..) => Self::Scalars,
        }
    }
}
