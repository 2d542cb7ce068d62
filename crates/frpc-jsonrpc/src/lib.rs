//! JSON-RPC 2.0 for [`frpc`] services and plain functions, on the same port as frisbee and HTTP.
//!
//! A [`Server`](frpc::Server) speaks JSON-RPC once its builder has the wire [`JsonRpc`]. Besides services, it can serve
//! each [`Function`].
//!
//! ```
//! use frpc::Server;
//! use frpc_jsonrpc::{JsonRpc, function};
//!
//! /// Adds two numbers.
//! #[function]
//! async fn sum(a: i64, b: i64) -> i64 {
//!     a + b
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::builder().wire(JsonRpc::new().function(sum)).bind("tcp://127.0.0.1:0").await?;
//! # let _ = server;
//! # Ok(())
//! # }
//! ```
//!
//! [`#[function]`](macro@function) documents the supported arguments and results. [`Functions`] is a set of functions,
//! usable on other wires too. [`Tensor`] and [`Image`] are values for arrays and pictures. [`macro@Schema`] derives the
//! JSON Schema of a custom type. [`transport`] lets channels connect to JSON-RPC addresses.
#![forbid(unsafe_code)]

mod calls;
mod client;
mod connection;
mod failure;
mod function;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod generated;
#[cfg(feature = "http")]
mod http;
mod methods;
mod outbox;
pub mod protos;
mod request;
mod schema;
mod settings;
mod values;
mod wire;

pub use client::{Client, register, transport};
pub use frpc_jsonrpc_macros::{Schema, function};
pub use function::{Called, Context, Description, Function, Functions, Parameter};
pub use schema::Schema;
pub use settings::JsonRpcSettings;
pub use values::{Element, Image, Tensor, TensorError};
pub use wire::JsonRpc;
