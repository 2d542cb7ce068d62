//! Order of fields in the encoding of frpc.
//!
//! frpc-go generates the encoding of a message as three loops over its fields. The first covers scalars, strings, bytes
//! and enums, the second covers lists, and the third covers single messages and maps. Each group keeps the order of
//! declaration, and field numbers do not matter. A oneof's members belong to the groups of their types, next to other
//! fields.

use crate::model::{FieldSchema, FieldShape, ValueType};

/// Sorts fields from the order of declaration to wire order.
pub(crate) fn sort(fields: &mut [FieldSchema]) {
    // A stable sort, so each group keeps the order of declaration.
    fields.sort_by_key(|field| FieldGroup::of(&field.shape));
}

/// Groups of fields in wire order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FieldGroup {
    Scalars,
    Lists,
    MessagesAndMaps,
}

impl FieldGroup {
    fn of(shape: &FieldShape) -> Self {
        match shape {
            FieldShape::List(_) => Self::Lists,
            FieldShape::Map(..)
            | FieldShape::Always(ValueType::Message(_))
            | FieldShape::Optional(ValueType::Message(_))
            | FieldShape::Member(_, ValueType::Message(_)) => Self::MessagesAndMaps,
            FieldShape::Always(_) | FieldShape::Optional(_) | FieldShape::Member(..) => Self::Scalars,
        }
    }
}
