//! Turns proto3 files into Rust from `build.rs`: messages, service traits and clients for frpc. Nothing else has to be
//! installed.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), frpc_build::Error> {
//!     frpc_build::compile_protos("proto/echo.proto")
//! }
//! ```
//!
//! The crate then includes one package, or the modules of all packages as a tree. A package belongs into a module of its
//! own, because its code uses names of Rust's prelude, which other items of the module could hide:
//!
//! ```ignore
//! mod echo {
//!     frpc::include_proto!("echo");
//! }
//! ```
//!
//! Messages are structs of prost, so the same types work with tonic. Beside them stand the encoding that frpc speaks
//! and, for `service Echo`, the modules `echo_server`, `echo_client` and `echo_methods`. `FILE_DESCRIPTOR_SET` holds the
//! descriptors of the package and of what it imports, as server reflection needs them.
//!
//! [`Builder::lock`] keeps what travels in a file, and fails the build when a change of the proto files would break peers.
//!
//! [`manual`] describes services that have no proto file, with messages of any types and a codec for them.
//!
//! A method has the same name in the trait and in the client: its own in snake case. The functions that every client has
//! (`new`, `connect`, `channel`, `into_raw`) keep theirs, so for `rpc Connect` both sides say `connect_`.
//!
//! proto files ─protox─▶ descriptors ─▶ `Schema` (the order of the wire) ─▶ tokens ─▶ one file for each package, and its
//! descriptors in another.
#![forbid(unsafe_code)]

mod accessors;
mod builder;
mod comments;
mod conflicts;
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
mod resolver;
mod sources;

pub use builder::{Builder, compile_protos, configure};
pub use error::Error;
pub use prost_build;
pub use prost_types;
