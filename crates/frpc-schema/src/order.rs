//! Order of fields in the encoding of frpc.
//!
//! frpc-go generates the encoding of a message as three loops over its fields. The first covers scalars, strings, bytes
//! and enums, the second covers lists, and the third covers single messages and maps. Each group keeps the order of
//! declaration, and field numbers do not matter. A oneof's members belong to the groups of their types, next to other
//! fields.

use crate::model::{Field, Shape, Type};

/// Sorts fields from the order of declaration to wire order.
pub(crate) fn sort(fields: &mut [Field]) {
    // A stable sort, so each group keeps the order of declaration.
    fields.sort_by_key(|field| Group::of(&field.shape));
}

/// Groups of fields in wire order.
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
