//! Twirp calls.

use std::{fmt, sync::Arc};

use frpc::{Answer, Body, Call, Code, Metadata, MethodKind, Status, codec::Format, shown};
use http::{HeaderValue, Method, StatusCode, header, response::Parts};

use super::{
    answers::{ContentCoding, answer_of, metadata_of, prepend_metadata},
    caller::{HttpCaller, media_type},
    exchange::{CallDeadlines, HttpExchange, ReceivedBody, RequestHead},
    outgoing::RequestContent,
};
use crate::{codes, message::compression::GZIP, status::twirp as json};

fn content_type(format: Format) -> &'static str {
    if format == Format::Json { "application/json" } else { "application/protobuf" }
}

/// Makes a Twirp call.
pub(super) async fn call(caller: &Arc<HttpCaller>, call: Call) -> Result<Answer, Status> {
    if call.kind() != MethodKind::Unary {
        return Err(Status::unimplemented("Twirp has no streams: the call was not sent"));
    }
    let deadlines = CallDeadlines::of(&call);
    let path = caller.path(&caller.pool.dialer().settings.twirp_prefix, call.method())?;
    let mut headers = (*caller.base).clone();
    let expected = content_type(caller.format_of(call.method())?);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(expected));
    headers.insert(header::ACCEPT, HeaderValue::from_static(expected));
    if caller.pool.dialer().settings.accept_gzip {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
    }
    let metadata = call.head().metadata().clone();
    let Body::One(message) = call.into_parts().1 else {
        return Err(Status::internal("a unary call needs exactly one request message"));
    };
    // Twirp has no header for a timeout, so only this client enforces it.
    let head = RequestHead {
        method: Method::POST,
        path,
        headers: Arc::new(headers),
        metadata,
        timeout: None,
        said: None,
        is_repeated: false,
    };
    let content = RequestContent::Whole(message.into_bytes());
    let exchange = HttpExchange::begin(caller.pool.clone(), head, content, deadlines).await?;
    exchange.read_by_deadline(async |parts, received| read(caller, expected, parts, received).await).await
}

/// The error of a Twirp server, as the source of a [`Status`]. It keeps codes that exist only in Twirp.
///
/// ```
/// # fn example(status: frpc::Status) {
/// use std::error::Error;
///
/// use frpc_http::TwirpError;
///
/// let error = status.source().and_then(<dyn Error>::downcast_ref::<TwirpError>);
/// let is_lost = error.is_some_and(|error| error.code() == "bad_route");
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwirpError {
    code: String,
}

impl TwirpError {
    /// Returns the code as sent by the server.
    pub fn code(&self) -> &str {
        &self.code
    }
}

impl fmt::Display for TwirpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered with the Twirp error '{}'", self.code)
    }
}

impl std::error::Error for TwirpError {}

async fn read(caller: &HttpCaller, expected: &str, parts: Parts, mut received: ReceivedBody) -> Result<Answer, Status> {
    let metadata = metadata_of(&parts.headers)?;
    let coding = ContentCoding::from_headers(
        &parts.headers,
        &header::CONTENT_ENCODING,
        caller.pool.dialer().settings.accept_gzip,
    );
    let found = media_type(&parts.headers);
    let len_max = caller.len_max();
    if parts.status != StatusCode::OK {
        let without = Status::new(
            codes::from_http_status_of_twirp(parts.status),
            format!("the server answered with the HTTP status {} without a Twirp error", parts.status),
        );
        let content = match found == "application/json" {
            true => coding?.read_whole(&mut received, len_max).await?,
            false => None,
        };
        let status = content.and_then(|content| json::read_error(&content, Code::Internal));
        let status = status.map(|(status, code)| status.with_source(Arc::new(TwirpError { code }) as Arc<_>));
        return Err(prepend_metadata(metadata, status.unwrap_or(without)));
    }
    if found != expected {
        let message = format!("the server answered with content of type '{}' instead of {expected}", shown(&*found));
        return Err(Status::internal(message));
    }
    let content = coding?.read_whole(&mut received, len_max).await?.unwrap_or_default();
    Ok(answer_of(content, metadata, Metadata::new()))
}
