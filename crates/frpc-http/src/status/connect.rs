//! JSON of Connect: errors, and the ends of streams.
//!
//! ```text
//!   {"code": "not_found", "message": "no such order", "details": [{"type": "shop.Hint", "value": "CgIIPA"}]}
//!   {"error": {"code": …}, "metadata": {"name": ["value"]}}
//! ```

use std::{borrow::Cow, collections::BTreeMap};

use base64::Engine;
use bytes::Bytes;
use frpc::{Code, Metadata, MetadataValue, Status, prost_types::Any};
use frpc_json::text::put_string;
use serde::Deserialize;

use crate::{
    codes,
    headers::metadata::{self, BASE64},
};

/// The end of a stream.
#[derive(Debug)]
pub(crate) struct ConnectStreamEnd {
    /// The error of a failed call. Its metadata holds the trailers.
    pub(crate) failure: Option<Status>,
    /// Trailers of a successful call. Empty if the call failed.
    pub(crate) trailers: Metadata,
}

/// Serializes the error of a failed call. Details in an encoding other than `google.rpc.Status` are dropped, because
/// the format has no field for them.
pub(crate) fn error(status: &Status) -> Bytes {
    let mut json = Vec::with_capacity(64 + status.message().len());
    put_error(&mut json, status);
    json.into()
}

/// Serializes the end of a stream: successful with trailers, or failed with the trailers in the metadata of the status.
pub(crate) fn end_of_stream(outcome: Result<&Metadata, &Status>) -> Bytes {
    let mut json = vec![b'{'];
    if let Err(status) = outcome {
        json.extend(b"\"error\":");
        put_error(&mut json, status);
    }
    let trailers = outcome.unwrap_or_else(|status| status.metadata());
    let mut names = trailers.keys().filter(|name| !metadata::is_reserved(name)).peekable();
    if names.peek().is_some() {
        if outcome.is_err() {
            json.push(b',');
        }
        json.extend(b"\"metadata\":{");
        for (index, name) in names.enumerate() {
            if index > 0 {
                json.push(b',');
            }
            put_string(&mut json, name);
            json.push(b':');
            put_values(&mut json, trailers, name);
        }
        json.push(b'}');
    }
    json.push(b'}');
    json.into()
}

fn put_values(json: &mut Vec<u8>, trailers: &Metadata, name: &str) {
    let mut separator = b'[';
    for (_, value) in trailers.iter().filter(|(key, _)| *key == name) {
        json.push(separator);
        separator = b',';
        match value {
            MetadataValue::Ascii(text) => put_string(json, text),
            MetadataValue::Binary(bytes) => put_string(json, &BASE64.encode(bytes)),
        }
    }
    json.push(b']');
}

fn put_error(json: &mut Vec<u8>, status: &Status) {
    json.extend(b"{\"code\":");
    put_string(json, codes::connect_name(status.code()));
    if !status.message().is_empty() {
        json.extend(b",\"message\":");
        put_string(json, status.message());
    }
    let details = status.error_details();
    for (index, detail) in details.iter().enumerate() {
        json.extend(if index == 0 { &b",\"details\":["[..] } else { b"," });
        json.extend(b"{\"type\":");
        put_string(json, detail.type_url.rsplit('/').next().unwrap_or_default());
        json.extend(b",\"value\":");
        put_string(json, &BASE64.encode(&detail.value));
        json.push(b'}');
    }
    if !details.is_empty() {
        json.push(b']');
    }
    json.push(b'}');
}

/// Parses the error of a call. Uses `without_code` if the code is missing or unknown. Returns `None` if it is not a
/// Connect error.
pub(crate) fn read_error(json: &[u8], without_code: Code) -> Option<Status> {
    let error: ConnectErrorJson<'_> = serde_json::from_slice(json).ok()?;
    error.into_status(without_code)
}

/// Parses the end of a stream.
///
/// # Errors
///
/// If the JSON is not a valid end of a stream.
pub(crate) fn read_end_of_stream(json: &[u8]) -> Result<ConnectStreamEnd, Status> {
    let is_none = |why: &str| Status::internal(format!("the server sent an invalid end-of-stream frame: {why}"));
    let end: ConnectEndJson<'_> = serde_json::from_slice(json).map_err(|error| is_none(&error.to_string()))?;
    let mut trailers = Metadata::new();
    for (name, values) in end.metadata.unwrap_or_default() {
        let name = name.to_ascii_lowercase();
        for value in values {
            metadata::append(&mut trailers, &name, value.as_bytes()).map_err(|status| is_none(status.message()))?;
        }
    }
    let Some(error) = end.error else { return Ok(ConnectStreamEnd { failure: None, trailers }) };
    let mut failure = error.into_status(Code::Unknown).ok_or_else(|| is_none("an error detail is not valid base64"))?;
    *failure.metadata_mut() = trailers;
    Ok(ConnectStreamEnd { failure: Some(failure), trailers: Metadata::new() })
}

#[derive(Deserialize)]
struct ConnectErrorJson<'a> {
    #[serde(borrow)]
    code: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow)]
    details: Option<Vec<ConnectDetailJson<'a>>>,
}

#[derive(Deserialize)]
struct ConnectDetailJson<'a> {
    #[serde(rename = "type", borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ConnectEndJson<'a> {
    #[serde(borrow)]
    error: Option<ConnectErrorJson<'a>>,
    #[serde(borrow)]
    metadata: Option<BTreeMap<Cow<'a, str>, Vec<Cow<'a, str>>>>,
}

impl ConnectErrorJson<'_> {
    fn into_status(self, without_code: Code) -> Option<Status> {
        let code = self.code.and_then(|name| codes::from_connect_name(&name)).unwrap_or(without_code);
        let details = self.details.unwrap_or_default().into_iter().map(|ConnectDetailJson { name, value }| {
            let type_url = if name.contains('/') { name.into_owned() } else { format!("type.googleapis.com/{name}") };
            Some(Any { type_url, value: BASE64.decode(value.as_bytes()).ok()? })
        });
        let details: Vec<Any> = details.collect::<Option<_>>()?;
        Some(Status::with_error_details(code, self.message.unwrap_or_default(), details))
    }
}

#[cfg(test)]
mod tests {
    use frpc::prost_types::Duration;

    use super::*;

    fn trailers() -> Metadata {
        let mut trailers = Metadata::new();
        trailers.append("cost", "2\"3").unwrap();
        trailers.append_bin("trace-bin", [0xff, 0]).unwrap();
        trailers.append("cost", "7").unwrap();
        trailers
    }

    #[test]
    fn an_error_contains_the_status() {
        assert_eq!(error(&Status::unavailable("")), r#"{"code":"unavailable"}"#);
        assert_eq!(error(&Status::not_found("a \"b\"\n")), r#"{"code":"not_found","message":"a \"b\"\n"}"#);
        let details =
            [Any::from_msg(&Duration { seconds: 3, nanos: 0 }).unwrap(), Any { type_url: "t.T".into(), value: vec![] }];
        let status = Status::with_error_details(Code::Aborted, "m", details.clone());
        let json = error(&status);
        assert_eq!(
            json,
            r#"{"code":"aborted","message":"m","details":[{"type":"google.protobuf.Duration","value":"CAM"},{"type":"t.T","value":""}]}"#
        );
        let read = read_error(&json, Code::Unknown).unwrap();
        assert_eq!((read.code(), read.message()), (Code::Aborted, "m"));
        assert_eq!(read.error_details()[0], details[0]);
    }

    #[test]
    fn an_end_contains_the_trailers_and_the_error() {
        assert_eq!(end_of_stream(Ok(&Metadata::new())), "{}");
        let json = end_of_stream(Ok(&trailers()));
        assert_eq!(json, r#"{"metadata":{"cost":["2\"3","7"],"trace-bin":["/wA"]}}"#);
        let end = read_end_of_stream(&json).unwrap();
        assert!(end.failure.is_none());
        assert_eq!(end.trailers.get_all("cost").collect::<Vec<_>>(), ["2\"3", "7"]);
        assert_eq!(end.trailers.get_bin("trace-bin"), Some(&[0xff, 0][..]));

        let json = end_of_stream(Err(&Status::with_metadata(Code::Internal, "", trailers())));
        assert_eq!(json, r#"{"error":{"code":"internal"},"metadata":{"cost":["2\"3","7"],"trace-bin":["/wA"]}}"#);
        let failure = read_end_of_stream(&json).unwrap().failure.unwrap();
        assert_eq!((failure.code(), failure.metadata().get("cost")), (Code::Internal, Some("2\"3")));
    }

    #[test]
    fn an_unknown_error_code_falls_back_to_the_http_status() {
        for json in [r#"{"message":"m"}"#, r#"{"code":null,"message":"m"}"#, r#"{"code":"odd","message":"m","x":[{}]}"#]
        {
            let status = read_error(json.as_bytes(), Code::Unavailable).unwrap();
            assert_eq!((status.code(), status.message()), (Code::Unavailable, "m"), "{json}");
        }
        for json in
            ["", "{", "[]", "null", r#"{"code":5}"#, r#"{"code":"internal","details":[{"type":"a","value":"?"}]}"#]
        {
            assert!(read_error(json.as_bytes(), Code::Unknown).is_none(), "{json}");
        }
    }

    #[test]
    fn an_invalid_end_of_stream_is_an_error() {
        for json in ["", "null", r#"{"metadata":[]}"#, r#"{"metadata":{"a-bin":["?"]}}"#, r#"{"error":7}"#] {
            assert_eq!(read_end_of_stream(json.as_bytes()).unwrap_err().code(), Code::Internal, "{json}");
        }
        let deep = format!("{{\"x\":{}", "[".repeat(100_000));
        assert!(read_end_of_stream(deep.as_bytes()).is_err());
    }
}
