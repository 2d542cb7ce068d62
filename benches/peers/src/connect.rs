//! Settings of connect-rust's server and client alike.

#![allow(missing_docs, clippy::all, reason = "generated")]

connectrpc::include_generated!();
