//! JSON-RPC 2.0 for the services of [`frpc`] and for plain functions, on the port that serves them over frisbee and HTTP.
//!
//! [`JsonRpc`] is the wire of a server, a [`Function`] what it serves besides services.
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
//! [`#[function]`](macro@function) says which arguments and results there are. [`Functions`] is a set of functions for other wires as
//! well; [`Tensor`] and [`Image`] are values for arrays and pictures, [`macro@Schema`] describes types of one's own. [`transport`] gives channels the addresses of JSON-RPC.
#![forbid(unsafe_code)]

mod calls;
mod client;
mod connection;
mod ends;
mod failure;
mod function;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod generated;
#[cfg(feature = "http")]
mod http;
mod json;
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
pub use values::{Element, Image, Tensor, TensorError};
pub use wire::JsonRpc;
