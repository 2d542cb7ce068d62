//! Functions that are called by JSON-RPC.

use std::sync::Mutex;

use frpc::Status;
use frpc_jsonrpc::{JsonRpc, function};

/// Adds two numbers.
#[function]
async fn sum(a: i64, b: i64) -> i64 {
    a + b
}

/// Gives back what it is told.
#[function]
fn echo(message: String) -> String {
    message
}

/// Fails.
#[function]
fn missing() -> Result<(), Status> {
    Err(Status::not_found("nobody is here"))
}

#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

/// Keeps a text.
#[function]
fn note(text: String, kept: &Notes) {
    kept.0.lock().expect("nobody panics with it").push(text);
}

/// Gives all texts that were kept.
#[function]
fn notes(kept: &Notes) -> Vec<String> {
    kept.0.lock().expect("nobody panics with it").clone()
}

/// The wire with these functions, and a name as clients made for Ethereum subscribe by.
pub(crate) fn json_rpc() -> JsonRpc {
    JsonRpc::new()
        .state(Notes::default())
        .function(sum)
        .function(echo)
        .function(missing)
        .function(note)
        .function(notes)
        .alias("payloads_subscribe", "grpc.testing.TestService/StreamingOutputCall")
}
