//! gRPC calls, and the parts shared with gRPC-Web.

use std::{borrow::Cow, sync::Arc};

use base64::Engine;
use bytes::Bytes;
use frpc::{Answer, Body, Call, Code, Metadata, MethodKind, Status, codec::Format, shown};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, response::Parts};

use super::{
    answers::{self, ContentCoding, FramedResponse, ResponseEnd, metadata_of},
    caller::{HttpCaller, media_type},
    exchange::{CallDeadlines, HttpExchange, ReceivedBody, RequestHead, TimeoutHeader},
    failures::http_failure,
    grpc_web,
    outgoing::RequestContent,
    pool::ConnectionPool,
    target::RpcProtocol,
};
use crate::{
    headers::{metadata::BASE64, percent, timeout},
    message::{compression::GZIP, envelope},
    status::grpc::{GRPC_MESSAGE, GRPC_STATUS, GRPC_STATUS_DETAILS},
};

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// Returns the headers of all calls.
pub(super) fn base_headers(pool: &ConnectionPool) -> HeaderMap {
    let (protocol, settings) = (pool.dialer().target.protocol, &pool.dialer().settings);
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(protocol, settings.format)));
    if protocol == RpcProtocol::Grpc {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    } else {
        headers.insert(HeaderName::from_static("x-grpc-web"), HeaderValue::from_static("1"));
    }
    if settings.gzip_len_min.is_some() {
        headers.insert(GRPC_ENCODING, HeaderValue::from_static(GZIP));
    }
    if settings.accept_gzip {
        headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
    }
    headers
}

/// Returns the content type for a method with this codec.
fn content_type_of(protocol: RpcProtocol, codec: &str) -> String {
    let family = if protocol == RpcProtocol::GrpcWeb { "application/grpc-web" } else { "application/grpc" };
    format!("{family}+{codec}")
}

pub(super) fn content_type(protocol: RpcProtocol, format: Format) -> &'static str {
    match (protocol, format) {
        (RpcProtocol::GrpcWeb, Format::Json) => "application/grpc-web+json",
        (RpcProtocol::GrpcWeb, _) => "application/grpc-web+proto",
        (_, Format::Json) => "application/grpc+json",
        (_, _) => "application/grpc+proto",
    }
}

/// Makes a gRPC or gRPC-Web call.
pub(super) async fn call(caller: &Arc<HttpCaller>, call: Call) -> Result<Answer, Status> {
    let deadlines = CallDeadlines::of(&call);
    let (kind, path) = (call.kind(), caller.path("", call.method())?);
    let timeout: Option<TimeoutHeader> = Some((timeout::GRPC_TIMEOUT, timeout::grpc as _));
    let (mut headers, said) = caller.headers_with_timeout(deadlines.limit());
    let codec = call.method().codec();
    if let Some(codec) = codec {
        let content_type = HeaderValue::try_from(content_type_of(caller.protocol(), codec)).map_err(|error| {
            Status::internal(format!("the codec name {codec:?} is invalid in a content type: {error}"))
        })?;
        Arc::make_mut(&mut headers).insert(header::CONTENT_TYPE, content_type);
    }
    let metadata = call.head().metadata().clone();
    let head =
        RequestHead { method: Method::POST, path, headers, metadata, timeout, said, is_repeated: codec.is_none() };
    let content = match call.into_parts().1 {
        Body::One(message) => {
            let frame = caller.framing.frame(message.into_bytes())?;
            if caller.protocol() == RpcProtocol::Grpc {
                RequestContent::Framed(frame)
            } else {
                RequestContent::Whole(frame.into_whole())
            }
        }
        Body::Many(messages) => RequestContent::stream(messages, caller.framing),
        _ => return Err(Status::internal("gRPC does not support this kind of request body")),
    };
    let exchange = HttpExchange::begin(caller.pool.clone(), head, content, deadlines).await?;
    answer(caller, codec, kind, exchange, deadlines).await
}

/// Reads the response.
pub(super) fn answer(
    caller: &Arc<HttpCaller>,
    codec: Option<&'static str>,
    kind: MethodKind,
    exchange: HttpExchange,
    deadlines: CallDeadlines,
) -> impl Future<Output = Result<Answer, Status>> + Send + use<> {
    let caller = caller.clone();
    let open = move |parts, received| open(&caller, codec, parts, received);
    answers::answer(kind, exchange, deadlines.whole, open)
}

/// Reads the head of a response.
fn open(
    caller: &HttpCaller,
    codec: Option<&str>,
    parts: Parts,
    received: ReceivedBody,
) -> Result<FramedResponse, Status> {
    check_type(caller, codec, &parts)?;
    let coding =
        ContentCoding::from_headers(&parts.headers, &GRPC_ENCODING, caller.pool.dialer().settings.accept_gzip)?;
    let is_web = caller.protocol() == RpcProtocol::GrpcWeb;
    // A response without a body carries its trailers in the head.
    let metadata = if received.is_over() { Metadata::new() } else { metadata_of(&parts.headers)? };
    let ending = GrpcTrailers { head: Some(parts.headers), is_web, http: parts.status };
    Ok(FramedResponse::new(metadata, received, coding, caller.len_max(), ending))
}

/// Checks the content type of a response: gRPC, with messages in the format of the call.
fn check_type(caller: &HttpCaller, codec: Option<&str>, parts: &Parts) -> Result<(), Status> {
    let found = media_type(&parts.headers);
    let expected = match codec {
        Some(codec) => Cow::Owned(content_type_of(caller.protocol(), &codec.to_ascii_lowercase())),
        None => Cow::Borrowed(content_type(caller.protocol(), caller.format())),
    };
    let (family, format) = expected.split_once('+').unwrap_or((&*expected, ""));
    // Servers such as tonic have one content type for all codecs.
    if found == expected || found == family && (format == "proto" || codec.is_some()) {
        return Ok(());
    }
    if parts.status != StatusCode::OK {
        return Err(http_failure(parts.status));
    }
    let message = format!("the server answered with content of type '{}' instead of {expected}", shown(&*found));
    // The same family with another suffix is gRPC in another format, and therefore a fault of the server.
    let is_family = found.strip_prefix(family).is_some_and(|rest| rest.starts_with('+') || rest.is_empty());
    Err(Status::new(if is_family { Code::Internal } else { Code::Unknown }, message))
}

/// The end of a gRPC response.
struct GrpcTrailers {
    /// The response headers. They contain the trailers if the response has no body.
    head: Option<HeaderMap>,
    is_web: bool,
    http: StatusCode,
}

impl GrpcTrailers {
    fn missing(&self) -> Status {
        match self.http {
            StatusCode::OK => Status::internal("the response ended without a status (grpc-status)"),
            status => http_failure(status),
        }
    }
}

impl ResponseEnd for GrpcTrailers {
    fn frame(&self, flags: u8, content: &Bytes) -> Option<Result<Metadata, Status>> {
        let is_end = self.is_web && flags == envelope::TRAILERS;
        is_end.then(|| status(&grpc_web::trailers(content)?).unwrap_or_else(|| Err(self.missing())))
    }

    fn body(&mut self, has_body: bool, trailers: Option<HeaderMap>) -> Result<Metadata, Status> {
        let trailers = trailers.or_else(|| self.head.take().filter(|_| !has_body));
        trailers.and_then(|trailers| status(&trailers)).unwrap_or_else(|| Err(self.missing()))
    }
}

/// Reads the status of a call from its trailers. Returns their metadata if the call succeeded, and `None` without a
/// status.
fn status(trailers: &HeaderMap) -> Option<Result<Metadata, Status>> {
    let number = trailers.get(GRPC_STATUS)?;
    let metadata = match metadata_of(trailers) {
        Ok(metadata) => metadata,
        Err(status) => return Some(Err(status)),
    };
    if number == "0" {
        return Some(Ok(metadata));
    }
    let number = number.to_str().ok().and_then(|number| number.parse().ok());
    // An unknown code must not count as success.
    let code = number.map_or(Code::Unknown, Code::from_number);
    let code = if code == Code::Ok { Code::Unknown } else { code };
    let message = trailers.get(GRPC_MESSAGE).map(|message| percent::decode(message.as_bytes())).unwrap_or_default();
    // Unreadable details are dropped, because the status itself matters more.
    let details = trailers.get(GRPC_STATUS_DETAILS).and_then(|details| BASE64.decode(details.as_bytes()).ok());
    Some(Err(Status::with_details_and_metadata(code, message, details.unwrap_or_default(), metadata)))
}
