//! JSON-RPC's `sum`, for servers with only serde_json.

use std::borrow::Cow;
use std::io::Write as _;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A call.
#[derive(Debug, Deserialize)]
pub struct Request<'a> {
    /// The name of the function.
    #[serde(borrow)]
    pub method: Cow<'a, str>,
    /// The arguments.
    pub params: Sum,
    /// The id that matches answers to calls.
    #[serde(borrow)]
    pub id: &'a RawValue,
}

/// The arguments of `sum`, by name.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Sum {
    /// The first number.
    pub a: i64,
    /// The second number.
    pub b: i64,
}

impl Request<'_> {
    /// Appends the answer.
    pub fn answer(&self, out: &mut Vec<u8>) {
        let id = self.id.get();
        let written = match &*self.method {
            "sum" => write!(out, r#"{{"jsonrpc":"2.0","result":{},"id":{id}}}"#, self.params.a + self.params.b),
            _ => write!(out, r#"{{"jsonrpc":"2.0","error":{{"code":-32601,"message":"Method not found"}},"id":{id}}}"#),
        };
        written.expect("a vector takes everything");
    }
}

/// Appends the answer to a request or to a batch of requests.
pub fn answer(body: &[u8], out: &mut Vec<u8>) -> serde_json::Result<()> {
    if body.first() != Some(&b'[') {
        serde_json::from_slice::<Request<'_>>(body)?.answer(out);
        return Ok(());
    }
    out.push(b'[');
    for request in serde_json::from_slice::<Vec<Request<'_>>>(body)? {
        if out.len() > 1 {
            out.push(b',');
        }
        request.answer(out);
    }
    out.push(b']');
    Ok(())
}
