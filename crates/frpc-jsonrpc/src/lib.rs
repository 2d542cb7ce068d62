//! JSON-RPC 2.0 for the services of [`frpc`] and for plain functions, on the port that serves them over frisbee and HTTP.
#![forbid(unsafe_code)]

mod function;
#[doc(hidden)]
pub mod generated;
mod schema;

pub use frpc_jsonrpc_macros::function;
pub use function::{Called, Context, Description, Function, Functions, Parameter};
pub use schema::Schema;
