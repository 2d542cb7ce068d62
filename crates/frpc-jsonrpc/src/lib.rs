//! JSON-RPC 2.0 for the services of [`frpc`] and for plain functions, on the port that serves them over frisbee and HTTP.
//!
//! [`JsonRpc`] is the wire of a server, a [`Function`] what it serves besides services.
#![forbid(unsafe_code)]

mod calls;
mod connection;
mod failure;
mod function;
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
mod wire;

pub use frpc_jsonrpc_macros::function;
pub use function::{Called, Context, Description, Function, Functions, Parameter};
pub use schema::Schema;
pub use wire::JsonRpc;
