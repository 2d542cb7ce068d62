//! Errors as JSON-RPC has them, and the statuses that they stand for.
//!
//! ```text
//!   {"code": -32005, "message": "no such order", "data": {"code": "not_found", "details": [{"type": "shop.Hint", "value": "CgIIPA"}]}}
//! ```

use base64::{
    Engine,
    engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig},
};
use frpc::{Code, Status, prost_types::Any};
use serde::Deserialize;
use serde_json::Value;

use crate::json::put_string;

pub(crate) const PARSE_ERROR: i32 = -32700;
pub(crate) const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
/// The first of the numbers that are left to servers. Those behind it, downwards, are of the codes of a status.
const SERVER_ERROR: i32 = -32000;

/// Writes the error of something that is no request. The words are those of the specification, and why stands in `data`.
pub(crate) fn put_protocol_error(out: &mut Vec<u8>, code: i32, why: &str) {
    let message = if code == PARSE_ERROR { "Parse error" } else { "Invalid Request" };
    put(out, code, message, Code::InvalidArgument, Some(why), &[]);
}

/// Writes the error of a method that nobody has.
pub(crate) fn put_not_found(out: &mut Vec<u8>, method: &str) {
    let end = method.char_indices().nth(NAME_LEN_MAX).map_or(method.len(), |(end, _)| end);
    let why = format!("there is no method {:?}", &method[..end]);
    put(out, METHOD_NOT_FOUND, "Method not found", Code::Unimplemented, Some(&why), &[]);
}

/// The number of characters of a name that an error shows.
const NAME_LEN_MAX: usize = 200;

/// Writes the error of a call that failed.
#[cold]
pub(crate) fn put_status(out: &mut Vec<u8>, status: &Status) {
    let code = number_of(status.code());
    let message = if status.message().is_empty() { status.code().description() } else { status.message() };
    put(out, code, message, status.code(), None, &status.error_details());
}

#[cold]
fn put(out: &mut Vec<u8>, number: i32, message: &str, code: Code, why: Option<&str>, details: &[Any]) {
    out.extend_from_slice(b"{\"code\":");
    out.extend_from_slice(number.to_string().as_bytes());
    out.extend_from_slice(b",\"message\":");
    put_string(out, message);
    out.extend_from_slice(b",\"data\":{\"code\":");
    put_string(out, name_of(code));
    if let Some(why) = why {
        out.extend_from_slice(b",\"message\":");
        put_string(out, why);
    }
    for (index, detail) in details.iter().enumerate() {
        out.extend_from_slice(if index == 0 { &b",\"details\":["[..] } else { b"," });
        out.extend_from_slice(b"{\"type\":");
        put_string(out, detail.type_url.rsplit('/').next().unwrap_or_default());
        out.extend_from_slice(b",\"value\":");
        put_string(out, &BASE64.encode(&detail.value));
        out.push(b'}');
    }
    if !details.is_empty() {
        out.push(b']');
    }
    out.extend_from_slice(b"}}");
}

/// Returns the number of the error that a status is: those of the specification where they mean the same, and else one for each
/// code.
fn number_of(code: Code) -> i32 {
    match code {
        Code::InvalidArgument => INVALID_PARAMS,
        Code::Unimplemented => METHOD_NOT_FOUND,
        Code::Internal => INTERNAL_ERROR,
        code => SERVER_ERROR - i32::from(code),
    }
}

/// Reads an error as the status that it stands for.
pub(crate) fn read_status(error: &str) -> Status {
    let Ok(error) = serde_json::from_str::<WireError>(error) else {
        return Status::internal("the server answered with an error that is none of JSON-RPC");
    };
    let data = error.data.and_then(|data| serde_json::from_value::<WireData>(data).ok()).unwrap_or_default();
    let code = data.code.as_deref().and_then(code_of).unwrap_or_else(|| code_of_number(error.code));
    let message = match data.message {
        Some(why) => format!("{}: {why}", error.message),
        None => error.message,
    };
    let details = data.details.into_iter().filter_map(|detail| {
        let value = BASE64.decode(detail.value.trim_end_matches('=')).ok()?;
        Some(Any { type_url: format!("type.googleapis.com/{}", detail.kind), value })
    });
    Status::with_error_details(code, message, details)
}

#[derive(Deserialize)]
struct WireError {
    code: i64,
    #[serde(default)]
    message: String,
    data: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireData {
    code: Option<String>,
    message: Option<String>,
    details: Vec<WireDetail>,
}

#[derive(Deserialize)]
struct WireDetail {
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

/// As Connect writes details: without signs at the end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use frpc::prost_types::Duration;

    use super::*;

    #[test]
    fn a_status_is_read_as_it_was_written() {
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
    fn errors_of_others_have_the_code_that_their_number_says() {
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
