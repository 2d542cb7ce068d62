//! Requests of JSON-RPC from 100 bytes to 10 KiB, and readers of them: ours, which is compiled here once more from its source,
//! and those of other crates.

pub mod readers;
pub mod samples;

#[path = "../../../crates/frpc-jsonrpc/src/json/mod.rs"]
#[allow(dead_code, unused_imports, reason = "half of it writes")]
mod json;
#[path = "../../../crates/frpc-jsonrpc/src/request.rs"]
#[allow(dead_code, reason = "some is for connections")]
mod request;
