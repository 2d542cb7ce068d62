//! Converts protobuf descriptors to the schema used by frpc: each message's fields in wire order, the positions of enum
//! values, and the operation, path and kind of each method.
//!
//! Descriptors come from a proto compiler, such as protox or `protoc --include_imports -o`. [`Schema::read`] validates
//! them first and rejects everything a proto file cannot express. Names in a [`Schema`] are therefore valid
//! identifiers, and referenced types exist. Names are those of the proto files, and full names have no leading dot
//! (`shop.Order.Item`).
//!
//! With [`fingerprint`], two peers find out whether they agree on a message. [`compat`] checks if protobuf's own
//! encoding can bridge a difference.
//!
//! ```
//! use frpc_schema::{SchemaOptions, Schema};
//!
//! fn print_methods(descriptors: &prost_types::FileDescriptorSet) -> Result<(), frpc_schema::Error> {
//!     let schema = Schema::read(descriptors, &SchemaOptions::default())?;
//!     for service in schema.packages.iter().flat_map(|package| &package.services) {
//!         for method in &service.methods {
//!             println!("{} is operation {}", method.path, method.operation);
//!         }
//!     }
//!     Ok(())
//! }
//! ```
#![forbid(unsafe_code)]

mod check;
pub mod compat;
mod descriptors;
mod diagnostic;
mod editions;
mod excerpt;
#[cfg(feature = "fingerprint")]
pub mod fingerprint;
pub mod location;
mod model;
mod operations;
mod order;
mod positions;
mod read;
mod rules;
mod syntax;
#[cfg(test)]
mod testing;

pub use check::is_entry_of_map;
pub use check::unescaped;
pub use descriptors::{EncodedFiles, descriptors_of};
pub use diagnostic::{Diagnostic, Error, Label};
pub use editions::{FileEdition, decode_descriptors, with_editions};
pub use excerpt::excerpt;
pub use location::Comment;
pub use model::{
    EnumSchema, EnumValue, FieldSchema, FieldShape, MessageSchema, MethodKind, MethodSchema, OneofSchema,
    PackageSchema, Schema, ServiceSchema, ValueType,
};
pub use operations::{FIRST_OPERATION, SchemaOptions};
pub use positions::PositionTables;
pub use prost_types;
pub use syntax::is_resolved_edition;
