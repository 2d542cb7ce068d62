//! Field masks: the fields of a message to return, or to update.
//!
//! With `configure().field_masks(true)`, frisbee-rpc-build implements [`MaskedMessage`] for every message and generates
//! its paths as constants: `paths::order::LINE` is a path of the message `Order`. Paths are written as in the proto file,
//! and [JSON](crate::codec::json) converts them to lower camel case.
//!
//! ```
//! # mod shop {
//! #     use frpc::{field_mask::{FieldPath, MaskNode, MaskedField, MaskedMessage, MergeOptions}, prost};
//! #     #[derive(Clone, PartialEq, prost::Message)]
//! #     pub struct Order {
//! #         #[prost(string, tag = "1")] pub id: String,
//! #         #[prost(message, optional, tag = "2")] pub line: Option<Line>,
//! #     }
//! #     #[derive(Clone, PartialEq, prost::Message)]
//! #     pub struct Line {
//! #         #[prost(string, tag = "1")] pub text: String,
//! #         #[prost(int32, tag = "2")] pub count: i32,
//! #     }
//! #     impl MaskedMessage for Order {
//! #         const NAME: &'static str = "shop.Order";
//! #         const FIELDS: &'static [MaskedField] = &[MaskedField::new("id"), MaskedField::message::<Line>("line")];
//! #         fn project_fields(&mut self, mask: &MaskNode<'_>) {
//! #             mask.project_value("id", &mut self.id);
//! #             mask.project_message("line", &mut self.line);
//! #         }
//! #         fn merge_fields(&mut self, from: Self, mask: &MaskNode<'_>, options: MergeOptions) {
//! #             mask.merge_value("id", &mut self.id, from.id);
//! #             mask.merge_message("line", &mut self.line, from.line, options);
//! #         }
//! #     }
//! #     impl MaskedMessage for Line {
//! #         const NAME: &'static str = "shop.Line";
//! #         const FIELDS: &'static [MaskedField] = &[MaskedField::new("text"), MaskedField::new("count")];
//! #         fn project_fields(&mut self, mask: &MaskNode<'_>) {
//! #             mask.project_value("text", &mut self.text);
//! #             mask.project_value("count", &mut self.count);
//! #         }
//! #         fn merge_fields(&mut self, from: Self, mask: &MaskNode<'_>, _: MergeOptions) {
//! #             mask.merge_value("text", &mut self.text, from.text);
//! #             mask.merge_value("count", &mut self.count, from.count);
//! #         }
//! #     }
//! #     pub mod paths {
//! #         pub mod order {
//! #             use super::super::*;
//! #             pub const ID: FieldPath<Order> = FieldPath::new("id");
//! #             pub const LINE: FieldPath<Order, Line> = FieldPath::new("line");
//! #         }
//! #         pub mod line {
//! #             use super::super::*;
//! #             pub const COUNT: FieldPath<Line> = FieldPath::new("count");
//! #         }
//! #     }
//! # }
//! # use shop::{Line, Order, paths};
//! use frpc::field_mask::{self, MergeOptions, PathSet};
//!
//! let mask = PathSet::new().with(paths::order::ID).with(paths::order::LINE.then(paths::line::COUNT)).into_mask();
//! assert_eq!(mask.paths, ["id", "line.count"]);
//!
//! // Return some fields of a message.
//! let line = Line { text: "tea".to_owned(), count: 2 };
//! let mut order = Order { id: "7".to_owned(), line: Some(line) };
//! field_mask::project(&mut order, &mask)?;
//! assert_eq!(order.line.as_ref().unwrap().text, "");
//!
//! // Update some fields of a message.
//! let change = Order { line: Some(Line { count: 3, ..Line::default() }), ..Order::default() };
//! let mask = PathSet::new().with(paths::order::LINE.then(paths::line::COUNT)).into_mask();
//! field_mask::merge(&mut order, change, &mask, MergeOptions::default())?;
//! assert_eq!((order.id.as_str(), order.line.as_ref().unwrap().count), ("7", 3));
//!
//! let unknown = frpc::prost_types::FieldMask { paths: vec!["line.price".to_owned()] };
//! let error = field_mask::check::<Order>(&unknown).unwrap_err();
//! assert_eq!(error.to_string(), "the path `line.price` does not fit shop.Order: shop.Line has no field `price`");
//! # Ok::<(), frpc::field_mask::InvalidPath>(())
//! ```
//!
//! # Rules
//!
//! They follow protobuf's `FieldMaskUtil` in Java:
//!
//! - A path names fields, separated by dots. All but the last must be single messages: lists, maps and scalars have no
//!   fields here. Neither have the well-known types, which are values. A oneof has no path, but its members have.
//! - A mask without paths selects nothing. A method that takes a missing mask as "all fields" must say so itself.
//! - A path covers all fields of its message: `line` and `line.count` together are `line`.

mod error;
mod message;
mod path;

use prost_types::FieldMask;

pub use self::{
    error::InvalidPath,
    message::{MaskNode, MaskedField, MaskedMessage, MergeOptions},
    path::{FieldPath, PathSet},
};
use crate::call::shown::shown;

/// Checks that a message has all fields of a mask.
///
/// # Errors
///
/// Fails with the first path that does not fit the message. It converts to a status `InvalidArgument`.
pub fn check<M: MaskedMessage>(mask: &FieldMask) -> Result<(), InvalidPath> {
    mask.paths.iter().try_for_each(|path| check_path(path, M::NAME, M::FIELDS))
}

/// Resets all fields of a message that are not in a mask.
///
/// # Errors
///
/// Fails if [`check`] does. The message is unchanged then.
pub fn project<M: MaskedMessage>(message: &mut M, mask: &FieldMask) -> Result<(), InvalidPath> {
    check::<M>(mask)?;
    MaskNode::of(mask).project_all(message);
    Ok(())
}

/// Updates the fields of a message that are in a mask.
///
/// Fields without a value in `from` are cleared, except messages, which [`MergeOptions`] decide. Lists and maps grow by
/// default, and messages are merged.
///
/// # Errors
///
/// Fails if [`check`] does. The message is unchanged then.
pub fn merge<M: MaskedMessage>(
    into: &mut M,
    from: M,
    mask: &FieldMask,
    options: MergeOptions,
) -> Result<(), InvalidPath> {
    check::<M>(mask)?;
    into.merge_fields(from, &MaskNode::of(mask), options);
    Ok(())
}

/// Returns the paths of a mask in order, each once, without paths covered by another one.
pub fn normalized(mask: &FieldMask) -> FieldMask {
    normalize(mask.paths.clone())
}

/// Returns the paths that at least one of two masks covers, normalized.
pub fn union(one: &FieldMask, other: &FieldMask) -> FieldMask {
    normalize(one.paths.iter().chain(&other.paths).cloned().collect())
}

/// Returns the paths that both masks cover, normalized.
pub fn intersection(one: &FieldMask, other: &FieldMask) -> FieldMask {
    let (one, other) = (normalized(one), normalized(other));
    let within = |own: &FieldMask, other: &FieldMask| {
        let covered = own.paths.iter().filter(|path| covers(&other.paths, path));
        covered.cloned().collect::<Vec<_>>()
    };
    normalize([within(&one, &other), within(&other, &one)].concat())
}

/// Returns `true` if a normalized mask contains a path, or one that covers it.
fn covers(paths: &[String], path: &str) -> bool {
    let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
    ends.take(DEPTH_MAX + 1).any(|end| paths.binary_search_by(|own| own.as_str().cmp(&path[..end])).is_ok())
}

fn normalize(mut paths: Vec<String>) -> FieldMask {
    // A dot sorts before all characters of names, so the path of a message comes right before the paths of its fields.
    paths.sort_unstable();
    let mut kept: Vec<String> = Vec::with_capacity(paths.len());
    for path in paths {
        let is_covered = kept.last().is_some_and(|last| {
            path.strip_prefix(last.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        if !is_covered {
            kept.push(path);
        }
    }
    FieldMask { paths: kept }
}

fn check_path(path: &str, message: &'static str, fields: &'static [MaskedField]) -> Result<(), InvalidPath> {
    let refuse = |reason: String| Err(InvalidPath::new(path, message, reason));
    let (mut name, mut fields) = (message, Some(fields));
    let mut parent = "";
    for (depth, part) in path.split('.').enumerate() {
        let Some(own) = fields else {
            return refuse(format!("`{parent}` of {name} is no single message with fields"));
        };
        if depth == DEPTH_MAX {
            return refuse(format!("it has more than {DEPTH_MAX} parts"));
        }
        let Some(field) = own.iter().find(|field| field.name == part) else {
            return refuse(format!("{name} has no field `{}`", shown(part)));
        };
        parent = field.name;
        fields = field.fields.map(|fields| fields());
        if fields.is_some() {
            name = field.message;
        }
    }
    Ok(())
}

/// The maximum number of names in a path: messages are nested less deeply.
const DEPTH_MAX: usize = 100;
