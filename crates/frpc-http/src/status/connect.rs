//! JSON of Connect: errors, and the ends of streams.
//!
//! ```text
//!   {"code": "not_found", "message": "no such order", "details": [{"type": "shop.Hint", "value": "CgIIPA"}]}
//!   {"error": {"code": …}, "metadata": {"name": ["value"]}}
//! ```

use std::{borrow::Cow, collections::BTreeMap};

use base64::Engine;
use bytes::Bytes;
use frpc::{Code, Metadata, Status, prost_types::Any};
use serde::{Deserialize, Serialize};

use super::{JsonMap, json};
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
    json(&ConnectErrorJson::of(status))
}

/// Serializes the end of a stream: successful with trailers, or failed with the trailers in the metadata of the status.
pub(crate) fn end_of_stream(outcome: Result<&Metadata, &Status>) -> Bytes {
    let trailers = outcome.unwrap_or_else(|status| status.metadata());
    let names = trailers.keys().filter(|name| !metadata::is_reserved(name));
    let metadata: Vec<_> = names.map(|name| (name, metadata::texts(trailers, name))).collect();
    let metadata = Some(JsonMap(metadata)).filter(|metadata| !metadata.0.is_empty());
    json(&ConnectEndJson { error: outcome.err().map(ConnectErrorJson::of), metadata })
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
    let end: ConnectEndJson<'_, BTreeMap<String, Vec<String>>> =
        serde_json::from_slice(json).map_err(|error| is_none(&error.to_string()))?;
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

#[derive(Deserialize, Serialize)]
struct ConnectErrorJson<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    code: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    details: Option<Vec<ConnectDetailJson<'a>>>,
}

#[derive(Deserialize, Serialize)]
struct ConnectDetailJson<'a> {
    #[serde(rename = "type", borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
}

#[derive(Deserialize, Serialize)]
struct ConnectEndJson<'a, M> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    error: Option<ConnectErrorJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<M>,
}

impl<'a> ConnectErrorJson<'a> {
    fn of(status: &'a Status) -> Self {
        let details = status.error_details().into_iter().map(|detail| ConnectDetailJson {
            name: detail.type_url.rsplit('/').next().unwrap_or_default().to_owned().into(),
            value: BASE64.encode(&detail.value).into(),
        });
        Self {
            code: Some(codes::name(status.code()).into()),
            message: Some(status.message().into()).filter(|message: &Cow<'_, str>| !message.is_empty()),
            details: Some(details.collect::<Vec<_>>()).filter(|details| !details.is_empty()),
        }
    }

    fn into_status(self, without_code: Code) -> Option<Status> {
        let code = self.code.and_then(|name| codes::from_name(&name)).unwrap_or(without_code);
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
