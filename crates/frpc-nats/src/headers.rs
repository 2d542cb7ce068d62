//! Metadata, statuses and timeouts as headers of messages.

use std::{ops::RangeInclusive, time::Duration};

use async_nats::{HeaderMap, HeaderName};
use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use frpc::{Code, Metadata, MetadataValue, Status, codec::Format};

/// The kind of a call of a Rust peer: [`UNARY`] or [`STREAM`]. Absent in requests of other clients. The answer to a unary
/// call repeats it.
pub(crate) const CALL: &str = "Rpc-Call";
/// A call whose request is the payload.
pub(crate) const UNARY: &str = "unary";
/// A call whose messages are frames.
pub(crate) const STREAM: &str = "stream";
/// In the first answer to a call: more frames follow.
pub(crate) const ACCEPTED: &str = "Rpc-Accepted";
pub(crate) const CONTENT_TYPE: &str = "Content-Type";
/// The remaining time of the call, in microseconds.
const TIMEOUT: &str = "Rpc-Timeout-Us";
const STATUS: &str = "Rpc-Status";
const MESSAGE: &str = "Rpc-Message";
const DETAILS: &str = "Rpc-Details";
const TRAILER: &str = "Rpc-Trailer-";
/// The error of a service in the sense of ADR-32.
const SERVICE_ERROR: &str = "Nats-Service-Error";
const SERVICE_ERROR_CODE: &str = "Nats-Service-Error-Code";

/// The maximum size of the metadata of a request, and of the metadata and trailers of an answer.
pub(crate) const METADATA_LEN_MAX: usize = 32 * 1024;
/// The maximum length of the message for clients of NATS services.
const SHOWN_LEN_MAX: usize = 1024;
/// The maximum length of the headers of a failed call, without its message.
const STATUS_LEN_MAX: usize = 16 * 1024;
/// The maximum length of the message of a status, in a cluster with short messages and with long ones.
const MESSAGE_LEN_MAX: RangeInclusive<usize> = 8 * 1024..=64 * 1024;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(crate) fn text<'a>(headers: Option<&'a HeaderMap>, name: &'static str) -> Option<&'a str> {
    headers?.get(name).map(|value| value.as_str())
}

/// Returns `true` for the first answer of a server of frpc to a call with headers.
pub(crate) fn is_of_server(headers: Option<&HeaderMap>) -> bool {
    [CALL, ACCEPTED, STATUS].into_iter().any(|name| text(headers, name).is_some())
}

pub(crate) fn content_type(format: Format) -> &'static str {
    match format {
        Format::Json => "application/json",
        _ => "application/protobuf",
    }
}

/// Returns the format of a request: JSON unless the content type says otherwise, because a plain `nats request` has none.
pub(crate) fn format_of(headers: Option<&HeaderMap>) -> Result<Format, Status> {
    let Some(value) = text(headers, CONTENT_TYPE) else { return Ok(Format::Json) };
    let media = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match &*media {
        "application/json" => Ok(Format::Json),
        "application/protobuf" | "application/x-protobuf" | "application/proto" => Ok(Format::Proto),
        _ => Err(Status::invalid_argument(format!(
            "the content type of the request is unknown: use application/json or application/protobuf, not {media:?}"
        ))),
    }
}

pub(crate) fn put_timeout(headers: &mut HeaderMap, timeout: Duration) {
    headers.insert(TIMEOUT, u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX).to_string());
}

pub(crate) fn timeout_of(headers: Option<&HeaderMap>) -> Result<Option<Duration>, Status> {
    let Some(value) = text(headers, TIMEOUT) else { return Ok(None) };
    match value.parse() {
        Ok(0) => Err(no_time()),
        Ok(micros) => Ok(Some(Duration::from_micros(micros))),
        Err(_) => Err(Status::invalid_argument(format!("the header {TIMEOUT} is not a number of microseconds"))),
    }
}

pub(crate) fn no_time() -> Status {
    Status::deadline_exceeded("the timeout of the call is zero")
}

/// Adds metadata under its own names.
pub(crate) fn put_metadata(headers: &mut HeaderMap, metadata: &Metadata) {
    put_entries(headers, metadata, "");
}

/// Adds the trailers of an answer.
pub(crate) fn put_trailers(headers: &mut HeaderMap, trailers: &Metadata) {
    put_entries(headers, trailers, TRAILER);
}

fn put_entries(headers: &mut HeaderMap, metadata: &Metadata, prefix: &str) {
    for (name, value) in metadata.iter() {
        let value = match value {
            MetadataValue::Ascii(text) => text.to_owned(),
            MetadataValue::Binary(bytes) => BASE64.encode(bytes),
        };
        // Metadata has stricter rules for names and values than NATS, so this cannot fail.
        if let Ok(name) = HeaderName::try_from(format!("{prefix}{name}")) {
            headers.append(name, value);
        }
    }
}

/// The metadata of a message.
#[derive(Debug, Default)]
pub(crate) struct ReceivedMetadata {
    pub(crate) metadata: Metadata,
    pub(crate) trailers: Metadata,
}

/// Reads the metadata of a message. Leaves out the headers of this protocol and of NATS, and values that metadata cannot
/// hold.
///
/// # Errors
///
/// The metadata exceeds `len_max`, or a binary value is not base64.
pub(crate) fn metadata_of(headers: Option<&HeaderMap>, len_max: usize) -> Result<ReceivedMetadata, Status> {
    let mut received = ReceivedMetadata::default();
    let mut left = len_max;
    let mut all: Vec<(&str, _)> =
        headers.into_iter().flat_map(HeaderMap::iter).map(|(name, values)| (name.as_ref(), values)).collect();
    // The client of NATS keeps no order.
    all.sort_unstable_by_key(|(name, _)| *name);
    for (name, values) in all {
        let (name, target) = match name.strip_prefix(TRAILER) {
            Some(name) => (name, &mut received.trailers),
            None if name.starts_with("Rpc-") || name.starts_with("Nats-") || name == CONTENT_TYPE => continue,
            None => (name, &mut received.metadata),
        };
        let name = name.to_ascii_lowercase();
        for value in values {
            let len = name.len() + value.as_str().len();
            left = left.checked_sub(len).ok_or_else(|| too_large(len_max))?;
            if !name.ends_with("-bin") {
                let _ = target.append_received(name.as_bytes(), value.as_str().as_bytes());
                continue;
            }
            let decoded = BASE64.decode(value.as_str());
            let decoded =
                decoded.map_err(|_| Status::invalid_argument(format!("the value of {name} is not base64")))?;
            let _ = target.append_received(name.as_bytes(), &decoded);
        }
    }
    Ok(received)
}

fn too_large(len_max: usize) -> Status {
    Status::resource_exhausted(format!("the metadata exceeds the limit of {len_max} bytes"))
}

/// Returns the headers of a failed call, for Rust peers and for clients of NATS services.
///
/// The code is always sent. The message is cut, and details and metadata are left out if they are too long for a message
/// of the cluster, with this `max_payload`.
pub(crate) fn of_status(status: &Status, max_payload: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // A failed call must not carry `Ok`.
    let code = if status.code() == Code::Ok { Code::Unknown } else { status.code() };
    headers.insert(STATUS, u8::from(code).to_string());
    let len_max = (max_payload / 4).clamp(*MESSAGE_LEN_MAX.start(), *MESSAGE_LEN_MAX.end());
    let message = percent_encode(status.message(), len_max);
    headers.insert(SERVICE_ERROR_CODE, http_number(code).to_string());
    let shown = if message.is_empty() { code.name() } else { &message[..message.len().min(SHOWN_LEN_MAX)] };
    headers.insert(SERVICE_ERROR, shown);
    headers.insert(MESSAGE, message);
    let details = BASE64.encode(status.details());
    if !details.is_empty() && details.len() <= STATUS_LEN_MAX {
        headers.insert(DETAILS, details);
    }
    if status.metadata().size() <= STATUS_LEN_MAX {
        put_metadata(&mut headers, status.metadata());
    }
    headers
}

/// Returns the status of a failed call, or `None` for a successful one.
pub(crate) fn status_of(headers: Option<&HeaderMap>) -> Option<Status> {
    if let Some(code) = text(headers, STATUS) {
        let code = code.parse().map_or(Code::Unknown, Code::from_number);
        if code == Code::Ok {
            return None;
        }
        let message = percent_decode(text(headers, MESSAGE).unwrap_or_default());
        let details = BASE64.decode(text(headers, DETAILS).unwrap_or_default()).unwrap_or_default();
        let metadata = metadata_of(headers, STATUS_LEN_MAX * 2).unwrap_or_default().metadata;
        return Some(Status::with_details_and_metadata(code, message, details, metadata));
    }
    let (error, number) = (text(headers, SERVICE_ERROR), text(headers, SERVICE_ERROR_CODE));
    if error.is_none() && number.is_none() {
        return None;
    }
    let code = number.and_then(|number| number.parse().ok()).map_or(Code::Unknown, code_of_http);
    Some(Status::new(code, error.unwrap_or("the service failed without a reason")))
}

/// Returns the HTTP status of a code, as services on NATS number their errors.
fn http_number(code: Code) -> u16 {
    match code {
        Code::Cancelled => 499,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::DeadlineExceeded => 504,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::PermissionDenied => 403,
        Code::ResourceExhausted => 429,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::Unauthenticated => 401,
        _ => 500,
    }
}

fn code_of_http(number: u16) -> Code {
    match number {
        400 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        409 => Code::AlreadyExists,
        429 => Code::ResourceExhausted,
        499 => Code::Cancelled,
        500 => Code::Internal,
        501 => Code::Unimplemented,
        502 | 503 => Code::Unavailable,
        504 => Code::DeadlineExceeded,
        _ => Code::Unknown,
    }
}

/// Encodes text as printable ASCII without blanks at the ends, within this length.
fn percent_encode(text: &str, len_max: usize) -> String {
    let mut out = String::new();
    for (index, byte) in text.bytes().enumerate() {
        let is_end = index == 0 || index + 1 == text.len();
        let len = if (b'!'..=b'~').contains(&byte) && byte != b'%' || byte == b' ' && !is_end { 1 } else { 3 };
        if out.len() + len > len_max {
            break;
        }
        match len {
            1 => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn percent_decode(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let decoded = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let decoded = decoded.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        out.push(decoded.unwrap_or(*byte));
        at += if decoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The default of nats-server.
    const MAX_PAYLOAD: usize = 1024 * 1024;

    proptest! {
        #[test]
        fn any_values_are_a_status_or_none(values in [r"[^\r\n]*", r"[^\r\n]*", r"[^\r\n]*", r"[^\r\n]*", r"[0-9]{0,5}"]) {
            let mut headers = HeaderMap::new();
            for (name, value) in [STATUS, MESSAGE, DETAILS, "x-any-bin", SERVICE_ERROR_CODE].into_iter().zip(values) {
                headers.insert(name, value);
            }
            prop_assert!(status_of(Some(&headers)).is_none_or(|status| status.code() != Code::Ok));
            let _ = (metadata_of(Some(&headers), 1000), timeout_of(Some(&headers)), format_of(Some(&headers)));
        }

        #[test]
        fn any_message_arrives(message: String) {
            prop_assume!(message.len() < 1000);
            let found = status_of(Some(&of_status(&Status::aborted(message.clone()), MAX_PAYLOAD))).unwrap();
            prop_assert_eq!(found.message(), message);
        }
    }

    #[test]
    fn a_status_arrives_whole() {
        for message in ["", "no such order", " blanks at the ends ", "100 % caf\u{e9}\nand more", "%41"] {
            let mut status = Status::with_details(Code::NotFound, message, vec![1, 2, 3]);
            status.metadata_mut().insert("why", "so").unwrap();
            status.metadata_mut().insert_bin("trace-bin", [0, 255]).unwrap();
            let found = status_of(Some(&of_status(&status, MAX_PAYLOAD))).unwrap();
            assert_eq!((found.code(), found.message(), found.details()), (Code::NotFound, message, &[1, 2, 3][..]));
            assert_eq!(found.metadata().get("why"), Some("so"));
            assert_eq!(found.metadata().get_bin("trace-bin"), Some(&[0, 255][..]));
        }
    }

    #[test]
    fn the_code_arrives_however_long_the_rest_is() {
        let mut status = Status::with_details(Code::Aborted, "x".repeat(100_000), vec![7; 100_000]);
        status.metadata_mut().insert("why", "y".repeat(50_000)).unwrap();
        for (max_payload, len) in [(50_000, 12_500), (MAX_PAYLOAD, 64 * 1024)] {
            let headers = of_status(&status, max_payload);
            let found = status_of(Some(&headers)).unwrap();
            assert_eq!((found.code(), found.message().len()), (Code::Aborted, len));
            assert!(found.details().is_empty() && found.metadata().is_empty());
        }
    }

    #[test]
    fn errors_of_other_services_become_statuses() {
        let mut headers = HeaderMap::new();
        assert!(status_of(Some(&headers)).is_none());
        headers.insert(SERVICE_ERROR, "not here");
        assert_eq!(status_of(Some(&headers)).unwrap().code(), Code::Unknown);
        headers.insert(SERVICE_ERROR_CODE, "404");
        let status = status_of(Some(&headers)).unwrap();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "not here"));
        headers.insert(STATUS, "garbage");
        assert_eq!(status_of(Some(&headers)).unwrap().code(), Code::Unknown);
    }

    #[test]
    fn metadata_excludes_protocol_headers_and_has_a_limit() {
        let mut headers = HeaderMap::new();
        headers.insert(CALL, UNARY);
        headers.insert("Nats-Msg-Id", "7");
        headers.insert("X-Request-Id", "7");
        headers.append("x-many", "a");
        headers.append("x-many", "b");
        headers.insert("Rpc-Trailer-x-last", "c");
        let ReceivedMetadata { metadata, trailers } = metadata_of(Some(&headers), 1000).unwrap();
        assert_eq!(metadata.get("x-request-id"), Some("7"));
        assert_eq!(metadata.get_all("x-many").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((metadata.len(), trailers.get("x-last")), (3, Some("c")));
        assert_eq!(metadata_of(Some(&headers), 20).unwrap_err().code(), Code::ResourceExhausted);
        headers.insert("odd-bin", "***");
        assert_eq!(metadata_of(Some(&headers), 1000).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn formats_and_timeouts_are_checked() {
        assert_eq!(format_of(None).unwrap(), Format::Json);
        let mut headers = HeaderMap::new();
        for (value, format) in
            [("application/protobuf", Format::Proto), ("Application/JSON; charset=utf-8", Format::Json)]
        {
            headers.insert(CONTENT_TYPE, value);
            assert_eq!(format_of(Some(&headers)).unwrap(), format);
        }
        headers.insert(CONTENT_TYPE, "text/html");
        assert!(format_of(Some(&headers)).is_err());
        put_timeout(&mut headers, Duration::from_millis(3));
        assert_eq!(timeout_of(Some(&headers)).unwrap(), Some(Duration::from_millis(3)));
        for (value, code) in [("0", Code::DeadlineExceeded), ("-1", Code::InvalidArgument)] {
            headers.insert(TIMEOUT, value);
            assert_eq!(timeout_of(Some(&headers)).unwrap_err().code(), code);
        }
    }
}
