//! JSON-RPC errors and their mapping to statuses.
//!
//! ```text
//!   {"code": -32005, "message": "no such order", "data": {"code": "not_found", "details": [{"type": "shop.Hint", "value": "CgIIPA"}],
//!                                                         "metadata": {"retry-after": ["3"], "trace-bin": ["CgIIPA"]}}}
//! ```
use frpc_json::base64;

use std::{borrow::Cow, collections::BTreeMap};

use frpc::{Code, MetadataValue, Status, prost_types::Any, shown};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) const PARSE_ERROR: i32 = -32700;
pub(crate) const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
/// The first error code for servers. The codes below it, one per status code, follow downwards.
const SERVER_ERROR: i32 = -32000;

/// Writes an error for an invalid message. The message is that of the specification, and `data` contains the reason.
pub(crate) fn put_protocol_error(out: &mut Vec<u8>, number: i32, code: Code, why: &str) {
    let message = if number == PARSE_ERROR { "Parse error" } else { "Invalid Request" };
    put(out, number, message, ErrorData::of(code, Some(why)));
}

/// Writes the error for an unknown method.
pub(crate) fn put_not_found(out: &mut Vec<u8>, method: &str) {
    let why = format!("there is no method \"{}\"", shown(method));
    put(out, METHOD_NOT_FOUND, "Method not found", ErrorData::of(Code::Unimplemented, Some(&why)));
}

/// Writes the error for a failed call. A failure with code [`Ok`](Code::Ok) is a mistake of the handler and becomes
/// [`Unknown`](Code::Unknown).
#[cold]
pub(crate) fn put_status(out: &mut Vec<u8>, status: &Status) {
    let code = if status.code() == Code::Ok { Code::Unknown } else { status.code() };
    // Callers expect a message, so an empty one is replaced. The empty message in `data` preserves the original.
    let (message, why) = match status.message() {
        "" => (code.description(), Some("")),
        message => (message, None),
    };
    let mut data = ErrorData::of(code, why);
    data.details.extend(status.error_details().into_iter().map(|detail| ErrorDetail {
        kind: detail.type_url.rsplit('/').next().unwrap_or_default().to_owned(),
        value: base64::encode_unpadded(&detail.value),
    }));
    for (name, value) in status.metadata().iter() {
        data.metadata.entry(name.to_owned()).or_default().push(match value {
            MetadataValue::Ascii(text) => text.to_owned(),
            MetadataValue::Binary(bytes) => base64::encode_unpadded(bytes),
        });
    }
    put(out, number_of(code), message, data);
}

#[cold]
fn put(out: &mut Vec<u8>, number: i32, message: &str, data: ErrorData) {
    let error = ErrorObject { code: number.into(), message: message.into(), data: Some(data) };
    serde_json::to_writer(out, &error).expect("strings can be written as JSON");
}

/// Returns the error code for a status code: a predefined code with the same meaning, or a server error code.
fn number_of(code: Code) -> i32 {
    match code {
        Code::InvalidArgument => INVALID_PARAMS,
        Code::Unimplemented => METHOD_NOT_FOUND,
        Code::Internal => INTERNAL_ERROR,
        code => SERVER_ERROR - i32::from(code),
    }
}

/// Converts an error object to a status.
pub(crate) fn read_status(error: &str) -> Status {
    let Ok(error) = serde_json::from_str::<ErrorObject<'_, Value>>(error) else {
        return Status::internal("the server answered with an invalid JSON-RPC error");
    };
    let data = error.data.and_then(|data| serde_json::from_value::<ErrorData>(data).ok()).unwrap_or_default();
    let code = data.code.as_deref().and_then(code_of).unwrap_or_else(|| code_of_number(error.code));
    let message = match data.message {
        Some(why) if why.is_empty() => why,
        Some(why) => format!("{}: {why}", error.message),
        None => error.message.into_owned(),
    };
    let details = data.details.into_iter().filter_map(|detail| {
        let value = base64::decode(&detail.value)?;
        Some(Any { type_url: format!("type.googleapis.com/{}", detail.kind), value })
    });
    let mut status = Status::with_error_details(code, message, details);
    for (name, values) in data.metadata {
        for value in values {
            // Skip invalid metadata: the failure of the call is the more useful error.
            let _ = if name.ends_with("-bin") {
                base64::decode(&value).is_some_and(|bytes| status.metadata_mut().append_bin(&name, bytes).is_ok())
            } else {
                status.metadata_mut().append(&name, value).is_ok()
            };
        }
    }
    status
}

#[derive(Deserialize, Serialize)]
struct ErrorObject<'a, D> {
    code: i64,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    data: Option<D>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct ErrorData {
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<ErrorDetail>,
    /// Binary values are base64, as in gRPC headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, Vec<String>>,
}

impl ErrorData {
    fn of(code: Code, why: Option<&str>) -> Self {
        Self { code: Some(name_of(code).to_owned()), message: why.map(str::to_owned), ..Self::default() }
    }
}

#[derive(Deserialize, Serialize)]
struct ErrorDetail {
    #[serde(rename = "type")]
    kind: String,
    value: String,
}

fn code_of_number(number: i64) -> Code {
    match i32::try_from(number) {
        Ok(METHOD_NOT_FOUND) => Code::Unimplemented,
        Ok(INVALID_PARAMS) => Code::InvalidArgument,
        Ok(INTERNAL_ERROR | PARSE_ERROR | INVALID_REQUEST) => Code::Internal,
        Ok(number @ -32016..=-32001) => Code::from_number(SERVER_ERROR - number),
        _ => Code::Unknown,
    }
}

const NAMES: [(Code, &str); 16] = [
    (Code::Cancelled, "cancelled"),
    (Code::Unknown, "unknown"),
    (Code::InvalidArgument, "invalid_argument"),
    (Code::DeadlineExceeded, "deadline_exceeded"),
    (Code::NotFound, "not_found"),
    (Code::AlreadyExists, "already_exists"),
    (Code::PermissionDenied, "permission_denied"),
    (Code::ResourceExhausted, "resource_exhausted"),
    (Code::FailedPrecondition, "failed_precondition"),
    (Code::Aborted, "aborted"),
    (Code::OutOfRange, "out_of_range"),
    (Code::Unimplemented, "unimplemented"),
    (Code::Internal, "internal"),
    (Code::Unavailable, "unavailable"),
    (Code::DataLoss, "data_loss"),
    (Code::Unauthenticated, "unauthenticated"),
];

fn name_of(code: Code) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == code).map_or("unknown", |(_, name)| name)
}

fn code_of(name: &str) -> Option<Code> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(code, _)| *code)
}

#[cfg(test)]
mod tests {
    use frpc::prost_types::Duration;

    use super::*;

    #[test]
    fn a_status_round_trips() {
        let detail = Any::from_msg(&Duration { seconds: 3, nanos: 0 }).unwrap();
        for (code, name) in NAMES {
            let status = Status::with_error_details(code, "no \"such\" order", [detail.clone()]);
            let mut text = Vec::new();
            put_status(&mut text, &status);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains(name), "{text}");
            let read = read_status(&text);
            assert_eq!((read.code(), read.message()), (code, status.message()));
            assert_eq!(read.error_details(), std::slice::from_ref(&detail));
        }
    }

    #[test]
    fn status_metadata_round_trips_and_code_ok_is_an_error() {
        let mut status = Status::new(Code::Aborted, "");
        status.metadata_mut().append("color", "red").unwrap();
        status.metadata_mut().append("color", "blue, \"light\"").unwrap();
        status.metadata_mut().append_bin("trace-bin", [0, 255]).unwrap();
        let written = |status: &Status| {
            let mut text = Vec::new();
            put_status(&mut text, status);
            String::from_utf8(text).unwrap()
        };
        let text = written(&status);
        let read = read_status(&text);
        assert_eq!((read.code(), read.message()), (Code::Aborted, ""));
        assert_eq!(read.metadata().get_all("color").collect::<Vec<_>>(), ["red", "blue, \"light\""]);
        assert_eq!(read.metadata().get_bin("trace-bin"), Some(&[0, 255][..]));
        assert!(text.contains(Code::Aborted.description()), "{text}");

        let text = written(&Status::new(Code::Ok, "fine"));
        let read = read_status(&text);
        assert!(text.starts_with("{\"code\":-32002,"), "{text}");
        assert_eq!((read.code(), read.message()), (Code::Unknown, "fine"));
        let odd = r#"{"code":-32005,"message":"m","data":{"metadata":{"a b":["x"],"t-bin":["?"],"ok":["yes"]}}}"#;
        assert_eq!(read_status(odd).metadata().len(), 1);
    }

    #[test]
    fn foreign_error_numbers_map_to_codes() {
        let code = |number: i64| read_status(&format!("{{\"code\":{number},\"message\":\"m\"}}")).code();
        assert_eq!(code(-32601), Code::Unimplemented);
        assert_eq!(code(-32602), Code::InvalidArgument);
        assert_eq!(code(-32700), Code::Internal);
        assert_eq!(code(-32005), Code::NotFound);
        assert_eq!(code(-32000), Code::Unknown);
        assert_eq!(code(i64::MAX), Code::Unknown);
        assert_eq!(read_status("{}").code(), Code::Internal);
        assert_eq!(read_status(r#"{"code":1,"message":"m","data":"text"}"#).message(), "m");
    }
}
