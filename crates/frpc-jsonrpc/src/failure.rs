//! Errors as JSON-RPC has them, of statuses.
//!
//! ```text
//!   {"code": -32005, "message": "no such order", "data": {"code": "not_found", "details": [{"type": "shop.Hint", "value": "CgIIPA"}]}}
//! ```

use base64::{
    Engine,
    engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig},
};
use frpc::{Code, Status, prost_types::Any};

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

/// As Connect writes details: without signs at the end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);
