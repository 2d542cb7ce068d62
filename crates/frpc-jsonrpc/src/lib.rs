//! JSON-RPC 2.0 for the services of [`frpc`] and for plain functions, on the port that serves them over frisbee and HTTP.
#![forbid(unsafe_code)]

mod function;

pub use function::{Called, Context, Description, Function, Functions, Parameter};
