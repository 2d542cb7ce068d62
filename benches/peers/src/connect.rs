//! What connect-rust's server and client agree on.

#![allow(missing_docs, clippy::all, reason = "generated")]

connectrpc::include_generated!();
