//! HTTP/1.1 responses with a complete body.

use bytes::Bytes;
use http::{
    HeaderName, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING},
    response::Parts,
};

use crate::date::DateText;

/// Makes the headers of a response consistent with this connection, because a mount may return any headers.
///
/// The length and the end of the connection are decided here. Returns `true` if the connection must close after the
/// response.
pub(super) fn check(response: &mut Parts, content: &mut Bytes) -> bool {
    let ours = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING];
    if response.status == StatusCode::OK && !response.headers.keys().any(|name| ours.contains(name)) {
        return false;
    }
    let mut is_last = response.headers.remove(CONNECTION).is_some_and(|words| {
        let mut words = words.as_bytes().split(|byte| *byte == b',');
        words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
    });
    if response.status.is_informational() {
        // An informational status is not final: the client would keep waiting for a response.
        response.status = StatusCode::INTERNAL_SERVER_ERROR;
        response.headers.clear();
        content.clear();
        is_last = true;
    }
    response.headers.remove(CONTENT_LENGTH);
    response.headers.remove(TRANSFER_ENCODING);
    if has_no_content(response.status) {
        content.clear();
    }
    is_last
}

/// Returns `true` if responses with this status have no body.
fn has_no_content(status: StatusCode) -> bool {
    status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}

/// Writes the head of a response.
pub(super) fn put_head(out: &mut Vec<u8>, response: &Parts, body_len: usize, capitals: bool, is_last: bool) {
    let status = response.status;
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    let mut has_date = false;
    for (name, value) in &response.headers {
        has_date |= *name == DATE;
        put_name(out, name, capitals);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    let [length, date, close] = if capitals {
        ["Content-Length: ", "Date: ", "Connection: close\r\n"]
    } else {
        ["content-length: ", "date: ", "connection: close\r\n"]
    };
    if !has_no_content(status) {
        out.extend_from_slice(length.as_bytes());
        out.extend_from_slice(itoa::Buffer::new().format(body_len).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if !has_date {
        out.extend_from_slice(date.as_bytes());
        out.extend_from_slice(DateText::now().as_str().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if is_last {
        out.extend_from_slice(close.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a header name, with capitals as in `Content-Length` if `capitals` is set.
fn put_name(out: &mut Vec<u8>, name: &HeaderName, capitals: bool) {
    let from = out.len();
    out.extend_from_slice(name.as_str().as_bytes());
    if capitals {
        let mut is_first = true;
        for byte in &mut out[from..] {
            if is_first {
                byte.make_ascii_uppercase();
            }
            is_first = *byte == b'-';
        }
    }
}
