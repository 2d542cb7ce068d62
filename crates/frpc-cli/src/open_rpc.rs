//! Functions of JSON-RPC servers, from the OpenRPC document returned by `rpc.discover`.

use std::time::Duration;

use bytes::Bytes;
use frpc::{Body, Call, Channel, Code, Head, Method};
use serde_json::Value;

use crate::failure::{CommandError, Result};

static DISCOVER: Method = Method::unary("", "rpc.discover", 0);

/// A function of a server, as JSON of the document.
#[derive(Clone, Debug)]
pub(crate) struct FunctionDocument(pub(crate) Value);

/// Asks a server for its functions.
pub(crate) async fn functions(channel: &Channel) -> Result<Vec<FunctionDocument>> {
    let format = channel.call_format().await.map_err(|status| CommandError::new(status.message()))?;
    let mut head = Head::default();
    head.set_timeout(ANSWER_MAX);
    let call = Call::new(&DISCOVER, format, head, Body::from(Bytes::from_static(b"{}")));
    let answer = channel.call(call).await.map_err(|status| match status.code() {
        Code::Unimplemented => CommandError::new("the server does not describe its functions: it has no rpc.discover")
            .with_try("`frpc call` with the name of a function and its arguments"),
        _ => CommandError::Call { details: Vec::new(), tries: Vec::new(), status },
    })?;
    let Body::One(document) = answer.into_body() else { return Ok(Vec::new()) };
    let document: Value = serde_json::from_slice(&document.into_bytes())
        .map_err(|error| CommandError::new(format!("rpc.discover returned invalid JSON: {error}")))?;
    let functions = document["methods"].as_array();
    let functions = functions
        .ok_or_else(|| CommandError::new("rpc.discover returned no OpenRPC document: the methods are missing"))?;
    Ok(functions.iter().cloned().map(FunctionDocument).collect())
}

/// The timeout for `rpc.discover`.
const ANSWER_MAX: Duration = Duration::from_secs(30);

impl FunctionDocument {
    pub(crate) fn name(&self) -> &str {
        self.0["name"].as_str().unwrap_or_default()
    }

    /// Returns the signature on one line, such as `(a: integer, b?: string) → integer`.
    pub(crate) fn signature(&self) -> String {
        let params = self.0["params"].as_array().map_or(&[][..], Vec::as_slice);
        let params = params.iter().map(|param| {
            let optional = if param["required"] == true { "" } else { "?" };
            format!("{}{optional}: {}", param["name"].as_str().unwrap_or("_"), type_of(&param["schema"]))
        });
        let params = params.collect::<Vec<_>>().join(", ");
        format!("({params}) → {}", type_of(&self.0["result"]["schema"]))
    }

    /// Returns the description of the function, or its summary.
    pub(crate) fn description(&self) -> &str {
        self.0["description"].as_str().or_else(|| self.0["summary"].as_str()).unwrap_or_default()
    }
}

/// Returns a short name for a JSON Schema.
fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap_or(name).to_owned();
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => format!("[{}]", type_of(&schema["items"])),
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | "),
        _ => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_signature_has_parameters_and_the_result() {
        let function = FunctionDocument(json!({
            "name": "sum",
            "params": [
                { "name": "a", "required": true, "schema": { "type": "integer" } },
                { "name": "b", "schema": { "type": ["string", "null"] } },
                { "name": "c", "required": true, "schema": { "type": "array", "items": { "$ref": "#/components/schemas/Point" } } },
            ],
            "result": { "name": "result", "schema": {} },
        }));
        assert_eq!(function.signature(), "(a: integer, b?: string | null, c: [Point]) → any");
    }

    #[test]
    fn incomplete_documents_are_accepted() {
        assert_eq!(FunctionDocument(json!({})).signature(), "() → any");
        assert_eq!(FunctionDocument(json!({ "params": [1], "name": 5 })).name(), "");
    }
}
