//! Statuses of calls without a complete response.

use std::{error::Error, fmt, io, iter::successors, sync::Arc};

use frpc::{CallError, CloseReason, Code, GoAway, RefusalReason, Status};
use frpc_http2::ErrorCode;
use http::StatusCode;

#[cfg(feature = "http2")]
use super::http2::Http2Failure;
use super::{incoming::TransferError, settings::ClientSettings};
use crate::codes;

/// Returns the status of a request without a response. `was_written` is `false` if no byte of it can have reached the
/// server.
pub(super) fn request_failure(error: TransferError, was_written: bool, settings: &ClientSettings) -> Status {
    match error {
        TransferError::Hyper(error) => {
            #[cfg(not(feature = "http2"))]
            if let Some(status) = hyper_request_failure(&error) {
                return status;
            }
            connection_failure(error, was_written, settings)
        }
        #[cfg(feature = "http2")]
        TransferError::Http2(failure) => http2_request_failure(failure, was_written, settings),
    }
}

/// Returns the status of an incomplete response.
pub(super) fn response_failure(error: TransferError, settings: &ClientSettings) -> Status {
    match error {
        TransferError::Hyper(error) => {
            #[cfg(not(feature = "http2"))]
            if let Some(status) = hyper_response_failure(&error) {
                return status;
            }
            connection_failure(error, true, settings)
        }
        #[cfg(feature = "http2")]
        TransferError::Http2(failure) => http2_failure(failure, true, settings),
    }
}

/// Returns the status of a response outside the protocol, such as one of a proxy.
pub(super) fn http_failure(status: StatusCode) -> Status {
    let error = HttpStatusError(status);
    Status::new(codes::from_http_status(status), error.to_string()).with_source(Arc::new(error) as Arc<_>)
}

/// A response outside the protocol of the call, such as one of a proxy or for an unknown path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpStatusError(pub StatusCode);

impl HttpStatusError {
    /// Returns the error if it is the source of a status.
    pub fn of(status: &Status) -> Option<&Self> {
        status.source()?.downcast_ref()
    }
}

impl fmt::Display for HttpStatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered with the HTTP status {}", self.0)
    }
}

impl Error for HttpStatusError {}

/// Returns the status of a request without a response, unless its connection is lost.
#[cfg(not(feature = "http2"))]
fn hyper_request_failure(error: &hyper::Error) -> Option<Status> {
    let error = find(error)?;
    let code = code_of(error)?;
    if error.is_library() && error.is_reset() {
        return Some(unreadable(code));
    }
    if !error.is_remote() {
        return None;
    }
    if error.is_go_away() {
        // The server still completes streams it has accepted. If it closes the connection instead, the error is a
        // different one.
        return Some(going_away(code));
    }
    if code == ErrorCode::REFUSED_STREAM {
        return Some(refused());
    }
    error.is_reset().then(|| reset_failure(code))
}

/// Returns the status of an incomplete response, unless its connection is lost.
#[cfg(not(feature = "http2"))]
fn hyper_response_failure(error: &hyper::Error) -> Option<Status> {
    // The server has begun to answer, so a retry is no longer possible.
    let error = find(error).filter(|error| error.is_reset())?;
    let code = code_of(error)?;
    Some(if error.is_library() { unreadable(code) } else { reset_failure(code) })
}

#[cfg(not(feature = "http2"))]
fn find(error: &hyper::Error) -> Option<&h2::Error> {
    successors(error.source(), |&error| error.source()).find_map(|error| error.downcast_ref())
}

#[cfg(not(feature = "http2"))]
fn code_of(error: &h2::Error) -> Option<ErrorCode> {
    Some(ErrorCode(error.reason()?.into()))
}

fn going_away(code: ErrorCode) -> Status {
    let text = format!("GOAWAY ({code})").into();
    CallError::GoingAway { why: GoAway { code: GoAway::SHUTDOWN, text } }.into()
}

fn refused() -> Status {
    let cause = CallError::Refused { why: RefusalReason::Busy };
    let message = "the server refused the call (REFUSED_STREAM): it was not executed";
    Status::unavailable(message).with_source(Arc::new(cause) as Arc<_>)
}

/// Returns the status of a request without a response.
#[cfg(feature = "http2")]
fn http2_request_failure(failure: Http2Failure, was_written: bool, settings: &ClientSettings) -> Status {
    match failure {
        Http2Failure::GoingAway { code } => going_away(code),
        Http2Failure::Reset { code: ErrorCode::REFUSED_STREAM, is_remote: true } => refused(),
        failure => http2_failure(failure, was_written, settings),
    }
}

#[cfg(feature = "http2")]
fn http2_failure(failure: Http2Failure, was_written: bool, settings: &ClientSettings) -> Status {
    let lost = |text: &str| lost(CloseReason::Io(Arc::new(io::Error::other(text))), was_written);
    match failure {
        Http2Failure::Reset { code, is_remote: true } => reset_failure(code),
        Http2Failure::Reset { code, is_remote: false } => unreadable(code),
        Http2Failure::HeadTooLarge => {
            Status::resource_exhausted("the headers of the call are longer than the server accepts")
        }
        Http2Failure::Closed => lost("the connection takes no further calls"),
        Http2Failure::GoingAway { code } => lost(&format!("GOAWAY ({code})")),
        Http2Failure::Abandoned => reset_failure(ErrorCode::CANCEL),
        Http2Failure::Silent => lost_silent(was_written, settings),
        Http2Failure::Lost(text) => lost(&text),
    }
}

/// Returns the status of a response that breaks HTTP/2 or a limit of this client.
fn unreadable(code: ErrorCode) -> Status {
    Status::internal(format!("the response violates HTTP/2, or its headers exceed `headers_len_max`: {code}"))
}

/// Returns the status of a reset stream, from the table of gRPC.
fn reset_failure(error: ErrorCode) -> Status {
    let code = match error {
        ErrorCode::REFUSED_STREAM => Code::Unavailable,
        ErrorCode::CANCEL => Code::Cancelled,
        ErrorCode::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        ErrorCode::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Internal,
    };
    Status::new(code, format!("the stream of the call was reset: {error}"))
}

fn connection_failure(error: hyper::Error, was_written: bool, settings: &ClientSettings) -> Status {
    match error.is_timeout() {
        true => lost_silent(was_written, settings),
        false => lost(CloseReason::Io(Arc::new(io::Error::other(error_chain(&error)))), was_written),
    }
}

fn lost_silent(was_written: bool, settings: &ClientSettings) -> Status {
    lost(CloseReason::Silent { limit: settings.keepalive_timeout }, was_written)
}

fn lost(reason: CloseReason, may_have_executed: bool) -> Status {
    CallError::ConnectionLost { reason, may_have_executed }.into()
}

/// Returns the messages of an error and of its causes.
pub(super) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in successors(error.source(), |&error| error.source()) {
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    text
}
