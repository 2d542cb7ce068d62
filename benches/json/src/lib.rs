//! JSON-RPC requests from 100 bytes to 10 KiB, and readers for them.
//!
//! Our own reader is compiled here from its source. The others are those of other crates.

pub mod readers;
pub mod samples;

#[path = "../../../crates/frpc-jsonrpc/src/request.rs"]
#[allow(dead_code, reason = "some is for connections")]
mod request;
