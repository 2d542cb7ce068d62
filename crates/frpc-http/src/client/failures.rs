//! Statuses of calls without a complete response.

use std::{error::Error, fmt, io, iter::successors, sync::Arc};

use frpc::{CallError, CloseReason, Code, GoAway, RefusalReason, Status};
use h2::Reason;
use http::StatusCode;

#[cfg(feature = "http2")]
use super::http2::Http2Failure;
use super::{incoming::TransferError, settings::ClientSettings};
use crate::codes;

/// Returns the status of a request without a response. `was_written` is `false` if no byte of it can have reached the
/// server.
pub(super) fn request_failure(error: TransferError, was_written: bool, settings: &ClientSettings) -> Status {
    #[cfg_attr(
        not(feature = "http2"),
        expect(clippy::infallible_destructuring_match, reason = "the other variant needs the feature")
    )]
    let error = match error {
        TransferError::Hyper(error) => error,
        #[cfg(feature = "http2")]
        TransferError::Http2(failure) => return http2_request_failure(failure, was_written, settings),
    };
    let of_stream = find(&error).and_then(stream_failure);
    of_stream.unwrap_or_else(|| connection_failure(error, was_written, settings))
}

/// Returns the status of an incomplete response.
pub(super) fn response_failure(error: TransferError, settings: &ClientSettings) -> Status {
    #[cfg_attr(
        not(feature = "http2"),
        expect(clippy::infallible_destructuring_match, reason = "the other variant needs the feature")
    )]
    let error = match error {
        TransferError::Hyper(error) => error,
        #[cfg(feature = "http2")]
        TransferError::Http2(failure) => return http2_failure(failure, true, settings),
    };
    // The server has begun to answer, so a retry is no longer possible.
    let of_stream = find(&error).filter(|error| error.is_reset()).and_then(|error| {
        let reason = error.reason()?;
        Some(if error.is_library() { unreadable(reason) } else { reset_failure(reason) })
    });
    of_stream.unwrap_or_else(|| connection_failure(error, true, settings))
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

fn find(error: &hyper::Error) -> Option<&h2::Error> {
    successors(error.source(), |&error| error.source()).find_map(|error| error.downcast_ref())
}

/// Returns the status of a stream ended by either side, while the connection continues.
fn stream_failure(error: &h2::Error) -> Option<Status> {
    let reason = error.reason()?;
    if error.is_library() && error.is_reset() {
        return Some(unreadable(reason));
    }
    if !error.is_remote() {
        return None;
    }
    if error.is_go_away() {
        // The server still completes streams it has accepted. If it closes the connection instead, the error is a
        // different one.
        return Some(going_away(reason));
    }
    if reason == Reason::REFUSED_STREAM {
        return Some(refused());
    }
    error.is_reset().then(|| reset_failure(reason))
}

fn going_away(reason: Reason) -> Status {
    let text = format!("GOAWAY ({})", reason.description()).into();
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
        Http2Failure::GoingAway { code } => going_away(code.0.into()),
        Http2Failure::Reset { code, is_remote: true } if Reason::from(code.0) == Reason::REFUSED_STREAM => refused(),
        failure => http2_failure(failure, was_written, settings),
    }
}

#[cfg(feature = "http2")]
fn http2_failure(failure: Http2Failure, was_written: bool, settings: &ClientSettings) -> Status {
    let lost = |text: &str| lost(CloseReason::Io(Arc::new(io::Error::other(text))), was_written);
    match failure {
        Http2Failure::Reset { code, is_remote: true } => reset_failure(code.0.into()),
        Http2Failure::Reset { code, is_remote: false } => unreadable(code.0.into()),
        Http2Failure::HeadTooLarge => {
            Status::resource_exhausted("the headers of the call are longer than the server accepts")
        }
        Http2Failure::Closed => lost("the connection takes no further calls"),
        Http2Failure::GoingAway { code } => lost(Reason::from(code.0).description()),
        Http2Failure::Abandoned => reset_failure(Reason::CANCEL),
        Http2Failure::Silent => lost_silent(was_written, settings),
        Http2Failure::Lost(text) => lost(&text),
    }
}

/// Returns the status of a response that breaks HTTP/2 or a limit of this client.
fn unreadable(reason: Reason) -> Status {
    let reason = reason.description();
    Status::internal(format!("the response violates HTTP/2, or its headers exceed `headers_len_max`: {reason}"))
}

/// Returns the status of a reset stream, from the table of gRPC.
fn reset_failure(reason: Reason) -> Status {
    let code = match reason {
        Reason::REFUSED_STREAM => Code::Unavailable,
        Reason::CANCEL => Code::Cancelled,
        Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Internal,
    };
    Status::new(code, format!("the stream of the call was reset: {}", reason.description()))
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
