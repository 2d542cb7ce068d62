//! Messages and services of the proto file, generated for connect-rust.

#![allow(missing_docs, clippy::all, reason = "generated")]

connectrpc::include_generated!();
