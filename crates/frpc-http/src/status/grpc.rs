//! Statuses as gRPC headers or trailers.

use base64::Engine;
use frpc::{Code, Status};
use http::{HeaderMap, HeaderName, HeaderValue};
use tracing::debug;

use crate::headers::{field_len, list_len, metadata, percent};

pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Adds a status to headers or trailers. Their total size, as HTTP/2 counts it, stays within `len_max` unless the code
/// alone exceeds it.
///
/// A peer that receives more would fail the call with another code, or close the connection. The code is therefore
/// always sent. The rest is added while there is room, in this order: the start of the message, the details, the
/// metadata, the rest of the message.
pub(crate) fn put(headers: &mut HeaderMap, status: &Status, len_max: usize) {
    // A failed call must not carry `Ok`. If a handler returns it anyway, callers see an unknown error.
    let code = if status.code() == Code::Ok { Code::Unknown } else { status.code() };
    headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(u8::from(code))));
    let mut left = len_max.saturating_sub(list_len(headers));
    let message = status.message();
    let message_len = percent::encoded_len(message);
    let mut message_max = 0;
    if message_len > 0 {
        // Reserved first: the start of the message takes precedence over details and metadata.
        left = left.saturating_sub(field_len(GRPC_MESSAGE.as_str(), 0));
        message_max = message_len.min(MESSAGE_LEN_KEPT).min(left);
        left -= message_max;
    }
    let mut is_cut = false;
    if !status.details().is_empty()
        && let Ok(details) = HeaderValue::try_from(metadata::BASE64.encode(status.details()))
    {
        let len = field_len(GRPC_STATUS_DETAILS.as_str(), details.len());
        if len <= left {
            left -= len;
            headers.insert(GRPC_STATUS_DETAILS, details);
        } else {
            is_cut = true;
        }
    }
    if !status.metadata().is_empty() {
        let mut with_metadata = headers.clone();
        metadata::extend(&mut with_metadata, status.metadata(), "");
        let len = list_len(&with_metadata) - list_len(headers);
        if len <= left {
            left -= len;
            *headers = with_metadata;
        } else {
            is_cut = true;
        }
    }
    if message_max > 0 {
        message_max += left.min(message_len - message_max);
        headers.insert(GRPC_MESSAGE, percent::encode_within(message, message_max));
        is_cut |= message_max < message_len;
    }
    if is_cut {
        debug!(%code, len_max, "truncated a status to the header size limit of the peer");
    }
}

/// The assumed limit of a peer that announces none: the default of several gRPC libraries.
pub(crate) const HEAD_LEN_MAX: usize = 16 * 1024;

/// The length of the message start that takes precedence over details.
const MESSAGE_LEN_KEPT: usize = 1024;

#[cfg(test)]
mod tests {
    use frpc::Metadata;

    use super::*;

    fn written(status: &Status, len_max: usize) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        put(&mut headers, status, len_max);
        headers
    }

    #[test]
    fn a_status_within_the_limit_is_written_whole() {
        let mut status = Status::with_details(Code::NotFound, "no \u{e9}", vec![1, 2, 3]);
        status.metadata_mut().insert("why", "so").unwrap();
        let headers = written(&status, HEAD_LEN_MAX);
        assert_eq!(headers["grpc-status"], "5");
        assert_eq!(headers["grpc-message"], "no %C3%A9");
        assert_eq!(
            (&headers["grpc-status-details-bin"], &headers["why"]),
            (&"AQID".parse().unwrap(), &"so".parse().unwrap())
        );
    }

    #[test]
    fn the_code_is_written_regardless_of_the_limit() {
        let message = "caf\u{e9} ".repeat(4000);
        let mut status = Status::with_details(Code::NotFound, message, vec![7; 3000]);
        let mut metadata = Metadata::new();
        metadata.insert("why", "y".repeat(2000)).unwrap();
        *status.metadata_mut() = metadata;
        for len_max in [0, 100, 200, 1000, 2000, 4000, 5000, 6000, 7000, 8192, 16 * 1024, 100_000] {
            let headers = written(&status, len_max);
            assert_eq!(headers["grpc-status"], "5");
            let least = list_len(&written(&Status::not_found(""), 0));
            assert!(list_len(&headers) <= len_max.max(least), "{len_max}: {}", list_len(&headers));
            assert_eq!(headers.contains_key("grpc-status-details-bin"), len_max >= 6000, "{len_max}");
            assert_eq!(headers.contains_key("why"), len_max >= 8192 || matches!(len_max, 4000 | 5000), "{len_max}");
            if let Some(message) = headers.get("grpc-message") {
                let message = percent::decode(message.as_bytes());
                assert!(status.message().starts_with(message.strip_suffix("...").unwrap_or(&message)), "{message}");
            }
        }
    }
}
