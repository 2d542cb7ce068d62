//! Encoding of answers.

use frpc::{Code, Status};

use crate::failure::{INVALID_REQUEST, PARSE_ERROR, put_not_found, put_protocol_error, put_status};

/// Begins the answer of a successful call. The caller appends its result next.
#[inline]
pub(super) fn begin_result(out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"result\":");
}

fn begin_error(out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"error\":");
}

/// Ends an answer with the id of its request.
#[inline]
pub(super) fn end(out: &mut Vec<u8>, id: &str) {
    out.extend_from_slice(b",\"id\":");
    out.extend_from_slice(id.as_bytes());
    out.push(b'}');
}

pub(super) fn put_result(out: &mut Vec<u8>, id: &str, result: &[u8]) {
    out.reserve(result.len() + id.len() + ANSWER_LEN);
    begin_result(out);
    out.extend_from_slice(if result.is_empty() { NULL } else { result });
    end(out, id);
}

/// The result of a call without one. JSON-RPC requires the member `result` in each successful answer.
pub(super) const NULL: &[u8] = b"null";

/// The length of an answer without its result and id.
const ANSWER_LEN: usize = 40;

pub(super) fn put_failure(out: &mut Vec<u8>, id: &str, status: &Status) {
    begin_error(out);
    put_status(out, status);
    end(out, id);
}

pub(super) fn put_unknown(out: &mut Vec<u8>, id: &str, method: &str) {
    begin_error(out);
    put_not_found(out, method);
    end(out, id);
}

/// Appends the answer to a JSON value that is not a valid request.
pub(super) fn put_invalid(out: &mut Vec<u8>, id: Option<&str>, why: &str) {
    begin_error(out);
    put_protocol_error(out, INVALID_REQUEST, Code::InvalidArgument, why);
    end(out, id.unwrap_or("null"));
}

/// Appends the answer to a batch above its limit.
pub(super) fn put_too_many(out: &mut Vec<u8>, batch_len_max: usize) {
    let why = format!("the batch exceeds the limit of {batch_len_max} requests");
    begin_error(out);
    put_protocol_error(out, INVALID_REQUEST, Code::ResourceExhausted, &why);
    end(out, "null");
}

/// Appends the answer to bytes that are not a valid message.
pub(super) fn put_no_message(out: &mut Vec<u8>, code: Code, why: &str) {
    begin_error(out);
    put_protocol_error(out, PARSE_ERROR, code, why);
    end(out, "null");
}
