//! Generates Rust code for frpc from proto files in `build.rs`: messages, service traits and clients. It needs no other
//! tools.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), frpc_build::Error> {
//!     frpc_build::compile_protos("proto/echo.proto")
//! }
//! ```
//!
//! The crate then includes a single package, or all packages as a module tree. Put a package into a separate module,
//! because its code uses names of the Rust prelude, which other items of the module could shadow:
//!
//! ```ignore
//! mod echo {
//!     frpc::include_proto!("echo");
//! }
//! ```
//!
//! Messages are prost structs, so the same types work with tonic. Each has an implementation of the frpc encoding. For
//! `service Echo`, the package contains the modules `echo_server`, `echo_client` and `echo_methods`.
//! `FILE_DESCRIPTOR_SET` holds the descriptors of the package and its imports, as required by server reflection.
//!
//! [`Builder::lock`] records the message layout in a file, and fails the build if a change of the proto files breaks
//! peers.
//!
//! A method has the same name in the trait and in the client: its proto name in snake case. The fixed functions of a
//! client (`new`, `connect`, `channel`, `into_raw`) take precedence, so `rpc Connect` becomes `connect_` on both sides.
//!
//! The steps: proto files ─protox─▶ descriptors ─▶ `Schema` (in wire order) ─▶ tokens ─▶ a code file and a descriptor
//! file for each package.
#![forbid(unsafe_code)]

mod accessors;
mod builder;
mod comments;
mod conflicts;
mod descriptors;
mod edition_text;
mod editions;
mod emit;
mod error;
mod files;
mod lock;
pub mod manual;
mod naming;
mod prost_input;
mod protoc_rules;
mod protox_errors;
mod render;
mod required;
mod resolver;
mod sources;

pub use builder::{Builder, compile_protos, configure};
pub use error::Error;
pub use prost_build;
pub use prost_types;
