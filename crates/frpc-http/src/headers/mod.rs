//! Values and sizes of headers and trailers.

use frpc::codec::Format;
use http::{HeaderMap, HeaderName, Method, Uri};

pub(crate) mod metadata;
pub(crate) mod percent;
pub(crate) mod timeout;

pub(crate) const CONNECT_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("connect-accept-encoding");
pub(crate) const CONNECT_CONTENT_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");
pub(crate) const CONNECT_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");

/// Returns the media type of the messages of Connect: a message as a whole body, or in frames.
pub(crate) fn connect_media_type(format: Format, is_framed: bool) -> &'static str {
    match (format, is_framed) {
        (Format::Json, false) => "application/json",
        (_, false) => "application/proto",
        (Format::Json, true) => "application/connect+json",
        (_, true) => "application/connect+proto",
    }
}

/// Returns the size of headers as HTTP/2 counts header lists.
pub(crate) fn list_len(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| field_len(name.as_str(), value.len())).sum()
}

/// Returns the size of one header as HTTP/2 counts header lists.
pub(crate) fn field_len(name: &str, value_len: usize) -> usize {
    name.len() + value_len + 32
}

/// Returns the size of a request head as HTTP/2 counts header lists.
pub(crate) fn request_len(method: &Method, uri: &Uri, headers: &HeaderMap) -> usize {
    let path_len = uri.path_and_query().map_or(0, |path| path.as_str().len());
    field_len(":method", method.as_str().len())
        + field_len(":scheme", uri.scheme_str().map_or(0, str::len))
        + field_len(":authority", uri.authority().map_or(0, |authority| authority.as_str().len()))
        + field_len(":path", path_len)
        + list_len(headers)
}

/// The maximum size that HTTP adds to response headers: status, date and length.
pub(crate) const ADDED_LEN: usize =
    ":status".len() + "200".len() + "date".len() + 29 + "content-length".len() + 20 + 3 * 32 + 1;
