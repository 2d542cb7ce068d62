//! Parts of request heads shared by unary Connect calls and streams.

use std::time::Duration;

use frpc::{MethodKind, Status, codec::Format, shown};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::{
    headers::{
        connect_media_type,
        timeout::{self, CONNECT_TIMEOUT},
    },
    serve::{body::ResponseBody, site::refuse},
};

/// The form of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectContentType {
    Message(Format),
    Frames(Format),
}

/// Returns the body form of a media type.
pub(super) fn of_content_type(content_type: &[u8]) -> Option<ConnectContentType> {
    [
        ConnectContentType::Message(Format::Proto),
        ConnectContentType::Message(Format::Json),
        ConnectContentType::Frames(Format::Proto),
        ConnectContentType::Frames(Format::Json),
    ]
    .into_iter()
    .find(|content| content.media_type().as_bytes().eq_ignore_ascii_case(content_type))
}

impl ConnectContentType {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Message(format) => connect_media_type(format, false),
            Self::Frames(format) => connect_media_type(format, true),
        }
    }
}

/// Refuses a content type not supported by methods of this kind.
pub(super) fn unsupported(kind: MethodKind) -> Response<ResponseBody> {
    let (text, accepted) = match kind {
        MethodKind::Unary => (
            "unsupported message format: this method accepts application/json and application/proto\n",
            "application/json, application/proto",
        ),
        _ => (
            "unsupported message format: this method has streams and accepts application/connect+json and \
             application/connect+proto\n",
            "application/connect+json, application/connect+proto",
        ),
    };
    let mut response = refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    response.headers_mut().insert(ACCEPT_POST, HeaderValue::from_static(accepted));
    response
}

/// Checks the protocol version. A caller may omit it unless the settings require it.
pub(super) fn check_version(given: Option<&[u8]>, expected: &str, is_required: bool) -> Result<(), Status> {
    match given {
        Some(given) if given == expected.as_bytes() => Ok(()),
        None if !is_required => Ok(()),
        None => {
            Err(Status::invalid_argument(format!("the Connect protocol version is missing: expected {expected:?}")))
        }
        Some(given) => {
            let given = shown(given);
            Err(Status::invalid_argument(format!(
                "unsupported Connect protocol version \"{given}\": expected {expected:?}"
            )))
        }
    }
}

/// Returns the timeout set by the caller.
pub(super) fn call_time(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(CONNECT_TIMEOUT) else { return Ok(None) };
    let time = timeout::parse_connect(value.as_bytes());
    time.map(Some).ok_or_else(|| {
        Status::invalid_argument(format!(
            "invalid connect-timeout-ms \"{}\": expected at most ten digits",
            shown(value)
        ))
    })
}

const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
