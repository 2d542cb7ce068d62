//! Connect calls.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use frpc::{Answer, Body, Call, Code, Metadata, MethodKind, Status, codec::Format, shown};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, response::Parts, uri::PathAndQuery};

use super::{
    answers::{
        self, ContentCoding, FramedResponse, ResponseEnd, answer_of, as_server_fault, metadata_of, prepend_metadata,
    },
    caller::{HttpCaller, media_type},
    exchange::{CallDeadlines, HttpExchange, ReceivedBody, RequestHead, TimeoutHeader},
    failures::http_failure,
    outgoing::RequestContent,
};
use crate::{
    headers::{
        CONNECT_ACCEPT_ENCODING, CONNECT_CONTENT_ENCODING, CONNECT_PROTOCOL_VERSION, connect_media_type, metadata,
        timeout,
    },
    message::{compression::GZIP, envelope},
    status::connect as json,
};

const TRAILER_PREFIX: &str = "trailer-";

/// The maximum length of a GET path. Servers and caches may refuse longer ones.
const GET_LEN_MAX: usize = 8 * 1024;

/// Makes a Connect call.
pub(super) async fn call(caller: &Arc<HttpCaller>, call: Call) -> Result<Answer, Status> {
    if call.kind() == MethodKind::Unary { unary(caller, call).await } else { streaming(caller, call).await }
}

fn head(caller: &HttpCaller, call: &Call, format: Format) -> Result<RequestHead, Status> {
    let path = caller.path("", call.method())?;
    let mut headers = (*caller.base).clone();
    let content_type = connect_media_type(format, call.kind() != MethodKind::Unary);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONNECT_PROTOCOL_VERSION, HeaderValue::from_static("1"));
    let timeout: Option<TimeoutHeader> = Some((timeout::CONNECT_TIMEOUT, timeout::connect as _));
    let metadata = call.head().metadata().clone();
    Ok(RequestHead {
        method: Method::POST,
        path,
        headers: Arc::new(headers),
        metadata,
        timeout,
        said: None,
        is_repeated: false,
    })
}

async fn unary(caller: &Arc<HttpCaller>, call: Call) -> Result<Answer, Status> {
    let deadlines = CallDeadlines::of(&call);
    let method = call.method();
    let format = caller.format_of(method)?;
    let mut head = head(caller, &call, format)?;
    if caller.pool.dialer().settings.accept_gzip {
        Arc::make_mut(&mut head.headers).insert(header::ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
    }
    let Body::One(message) = call.into_parts().1 else {
        return Err(Status::internal("a unary call needs exactly one request message"));
    };
    let message = message.into_bytes();
    let compressed = caller.framing.compressed(&message);
    let is_compressed = compressed.is_some();
    let mut content = compressed.unwrap_or(message);
    if caller.pool.dialer().settings.use_get
        && method.has_no_side_effects
        && let Some(path) = get_path(&head.path, format, &content, is_compressed)
    {
        (head.method, head.path, content) = (Method::GET, path, Bytes::new());
        let headers = Arc::make_mut(&mut head.headers);
        // The parameters of the path contain both.
        headers.remove(header::CONTENT_TYPE);
        headers.remove(CONNECT_PROTOCOL_VERSION);
    } else if is_compressed {
        Arc::make_mut(&mut head.headers).insert(header::CONTENT_ENCODING, HeaderValue::from_static(GZIP));
    }
    let exchange = HttpExchange::begin(caller.pool.clone(), head, RequestContent::Whole(content), deadlines).await?;
    exchange.read_by_deadline(async |parts, received| read_unary(caller, format, parts, received).await).await
}

/// Returns the path of a GET request with this message. `None` if it would be too long.
fn get_path(path: &PathAndQuery, format: Format, content: &[u8], is_compressed: bool) -> Option<PathAndQuery> {
    let encoding = if format == Format::Json { "json" } else { "proto" };
    let compression = if is_compressed { "&compression=gzip" } else { "" };
    let message = URL_SAFE_NO_PAD.encode(content);
    // The protocol recommends this order of parameters, so that caches recognize equal requests.
    let path = format!("{path}?connect=v1&base64=1{compression}&encoding={encoding}&message={message}");
    if path.len() > GET_LEN_MAX { None } else { path.parse().ok() }
}

/// Reads the response to a unary call.
async fn read_unary(
    caller: &HttpCaller,
    format: Format,
    parts: Parts,
    mut received: ReceivedBody,
) -> Result<Answer, Status> {
    let (metadata, trailers) = split(&parts.headers)?;
    let coding = ContentCoding::from_headers(
        &parts.headers,
        &header::CONTENT_ENCODING,
        caller.pool.dialer().settings.accept_gzip,
    );
    let found = media_type(&parts.headers);
    let len_max = caller.len_max();
    if parts.status != StatusCode::OK {
        let without = http_failure(parts.status);
        let mut status = without.clone();
        if found == "application/json"
            && let Some(content) = coding?.read_whole(&mut received, len_max).await?
        {
            status = json::read_error(&content, without.code()).unwrap_or(without);
        }
        *status.metadata_mut() = trailers;
        return Err(prepend_metadata(metadata, status));
    }
    check_type(&found, connect_media_type(format, false))?;
    let content = coding?.read_whole(&mut received, len_max).await?.unwrap_or_default();
    Ok(answer_of(content, metadata, trailers))
}

/// Splits the headers of a unary response into metadata and trailers. Trailers have a prefix.
fn split(headers: &HeaderMap) -> Result<(Metadata, Metadata), Status> {
    let (mut heads, mut trailers) = (HeaderMap::new(), Metadata::new());
    for (name, value) in headers {
        match name.as_str().strip_prefix(TRAILER_PREFIX) {
            Some(name) => metadata::append(&mut trailers, name, value.as_bytes()).map_err(as_server_fault)?,
            None => drop(heads.append(name, value.clone())),
        }
    }
    Ok((metadata_of(&heads)?, trailers))
}

fn check_type(found: &str, expected: &str) -> Result<(), Status> {
    if found == expected {
        return Ok(());
    }
    let message = format!("the server answered with content of type '{}' instead of {expected}", shown(found));
    // Another content type of Connect is a fault of a Connect server. Any other type may come from a proxy.
    let known = [Format::Proto, Format::Json]
        .map(|format| [true, false].map(|is_framed| connect_media_type(format, is_framed)));
    let is_known = known.iter().flatten().any(|known| *known == found);
    Err(Status::new(if is_known { Code::Internal } else { Code::Unknown }, message))
}

async fn streaming(caller: &Arc<HttpCaller>, call: Call) -> Result<Answer, Status> {
    let deadlines = CallDeadlines::of(&call);
    let kind = call.kind();
    let format = caller.format_of(call.method())?;
    let mut head = head(caller, &call, format)?;
    if caller.framing.compresses() {
        Arc::make_mut(&mut head.headers).insert(CONNECT_CONTENT_ENCODING, HeaderValue::from_static(GZIP));
    }
    if caller.pool.dialer().settings.accept_gzip {
        Arc::make_mut(&mut head.headers).insert(CONNECT_ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
    }
    let content = match call.into_parts().1 {
        Body::One(message) => RequestContent::Whole(caller.framing.frame(message.into_bytes())?.into_whole()),
        Body::Many(messages) => RequestContent::stream(messages, caller.framing),
        _ => return Err(Status::internal("Connect does not support this kind of request body")),
    };
    let exchange = HttpExchange::begin(caller.pool.clone(), head, content, deadlines).await?;
    let caller = caller.clone();
    let open = move |parts, received| open(&caller, format, parts, received);
    answers::answer(kind, exchange, deadlines.whole, open).await
}

/// Reads the head of a response stream.
fn open(caller: &HttpCaller, format: Format, parts: Parts, received: ReceivedBody) -> Result<FramedResponse, Status> {
    if parts.status != StatusCode::OK {
        return Err(http_failure(parts.status));
    }
    check_type(&media_type(&parts.headers), connect_media_type(format, true))?;
    let coding = ContentCoding::from_headers(
        &parts.headers,
        &CONNECT_CONTENT_ENCODING,
        caller.pool.dialer().settings.accept_gzip,
    )?;
    let metadata = metadata_of(&parts.headers)?;
    Ok(FramedResponse::new(metadata, received, coding, caller.len_max(), EndOfStream))
}

/// The end of a Connect stream, sent as a frame.
struct EndOfStream;

impl ResponseEnd for EndOfStream {
    fn frame(&self, flags: u8, content: &Bytes) -> Option<Result<Metadata, Status>> {
        (flags == envelope::END_OF_STREAM).then(|| {
            let end = json::read_end_of_stream(content)?;
            end.failure.map_or(Ok(end.trailers), Err)
        })
    }

    fn body(&mut self, _: bool, _: Option<HeaderMap>) -> Result<Metadata, Status> {
        Err(Status::internal("the response ended without an end-of-stream frame"))
    }
}
