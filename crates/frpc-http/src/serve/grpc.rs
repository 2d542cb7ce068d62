//! gRPC, and gRPC-Web, which differs from it by where trailers stand and by its text.

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use base64::Engine;
use bytes::{BufMut, Bytes, BytesMut};
use frpc::{
    Answer, Body, CancelGuard, Code, Metadata, Status, Streaming,
    codec::{Format, Pieces},
};
use futures_core::Stream;
use futures_util::FutureExt;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version,
    header::{ALLOW, CONTENT_TYPE},
    request::Parts,
};
use http_body::Frame;
use tokio::time::Instant;

use super::{
    body::ResponseBody,
    grpc_web,
    requests::{RequestBody, Requests},
    site::{Site, refuse},
};
use crate::{
    headers::{metadata, percent, timeout},
    message::{
        compression::{self, GZIP},
        envelope::{self, HEADER_LEN},
    },
    settings::Settings,
};

/// gRPC or gRPC-Web, with the format of the messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    kind: Kind,
    format: Format,
    /// Of requests and responses alike.
    content_type: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Grpc,
    Web,
    WebText,
}

const DIALECTS: [Dialect; 9] = {
    const fn dialect(kind: Kind, format: Format, content_type: &'static str) -> Dialect {
        Dialect { kind, format, content_type }
    }
    [
        dialect(Kind::Grpc, Format::Proto, "application/grpc"),
        dialect(Kind::Grpc, Format::Proto, "application/grpc+proto"),
        dialect(Kind::Grpc, Format::Json, "application/grpc+json"),
        dialect(Kind::Web, Format::Proto, "application/grpc-web"),
        dialect(Kind::Web, Format::Proto, "application/grpc-web+proto"),
        dialect(Kind::Web, Format::Json, "application/grpc-web+json"),
        dialect(Kind::WebText, Format::Proto, "application/grpc-web-text"),
        dialect(Kind::WebText, Format::Proto, "application/grpc-web-text+proto"),
        dialect(Kind::WebText, Format::Json, "application/grpc-web-text+json"),
    ]
};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

impl Dialect {
    /// Returns the dialect with this content type.
    pub(super) fn of(content_type: &[u8]) -> Option<&'static Self> {
        // Parameters, such as a character set, say nothing here.
        let end = content_type.iter().position(|byte| matches!(byte, b';' | b' '));
        let media_type = &content_type[..end.unwrap_or(content_type.len())];
        DIALECTS.iter().find(|dialect| media_type.eq_ignore_ascii_case(dialect.content_type.as_bytes()))
    }

    /// Tells whether the settings have it served.
    pub(super) fn is_on(&self, settings: &Settings) -> bool {
        match self.kind {
            Kind::Grpc => settings.grpc,
            Kind::Web | Kind::WebText => settings.grpc_web,
        }
    }
}

/// Answers a request of this dialect.
pub(super) async fn serve<B: RequestBody>(
    site: &Site,
    dialect: &'static Dialect,
    parts: Parts,
    body: B,
) -> Response<ResponseBody> {
    if parts.method != Method::POST {
        let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "calls of gRPC are made with POST\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    if dialect.kind == Kind::Grpc && parts.version < Version::HTTP_2 {
        return refuse(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC needs HTTP/2, gRPC-Web does not\n");
    }
    let Some(compression) = Compression::agree(&parts.headers, &site.settings) else {
        return unknown_encoding(dialect, &parts.headers);
    };
    answer(site, dialect, compression, parts, body).await.unwrap_or_else(|status| failed(dialect, &status))
}

async fn answer<B: RequestBody>(
    site: &Site,
    dialect: &'static Dialect,
    compression: Compression,
    parts: Parts,
    body: B,
) -> Result<Response<ResponseBody>, Status> {
    let Site { endpoint, settings, .. } = site;
    let path = parts.uri.path();
    let found = endpoint.find(path).ok_or_else(|| Status::unimplemented(format!("no method {path} here")))?;
    let kind = found.method().kind;
    let mut head = site.call_head(&parts.headers)?;
    let mut time_max = settings.body_time_max;
    if let Some(time) = call_time(&parts.headers)? {
        time_max = time_max.min(time);
        if let Some(at) = Instant::now().checked_add(time) {
            head.set_deadline(at.into_std());
        }
    }
    // A handler that answers with one message is dropped with this, which it can tell others itself.
    let guard = kind.has_response_stream().then(|| head.cancel_on_drop());

    let mut requests = Requests::new(body, compression.of_requests, settings.message_len_max);
    if dialect.kind == Kind::WebText {
        requests = requests.in_text();
    }
    let body = if kind.has_request_stream() {
        Body::Many(requests.into_stream())
    } else {
        Body::from(requests.one(time_max).await?)
    };
    let answer = endpoint.call(found, dialect.format, head, body).await;
    match answer {
        Ok(answer) => respond(dialect, compression, answer, guard),
        Err(status) => {
            // The handler was not given up.
            guard.into_iter().for_each(CancelGuard::disarm);
            Err(status)
        }
    }
}

/// Returns the time that the caller gives the call.
fn call_time(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(timeout::GRPC_TIMEOUT) else { return Ok(None) };
    let time = timeout::parse_grpc(value.as_bytes());
    time.map(Some).ok_or_else(|| Status::invalid_argument(format!("{value:?} is no grpc-timeout")))
}

/// The compression of a call, which is gzip or none.
#[derive(Clone, Copy, Debug)]
struct Compression {
    of_requests: bool,
    /// From this length on, if at all.
    of_answers: Option<usize>,
}

impl Compression {
    /// Reads what the caller has compressed, and what it accepts. `None` if nobody here can read its requests.
    fn agree(headers: &HeaderMap, settings: &Settings) -> Option<Self> {
        let of_requests = match headers.get(GRPC_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"identity") => false,
            Some(b"gzip") => true,
            Some(_) => return None,
        };
        let is_gzip = |name: &[u8]| name.trim_ascii() == GZIP.as_bytes();
        let is_accepted = || match headers.get(GRPC_ACCEPT_ENCODING) {
            Some(names) => names.as_bytes().split(|byte| *byte == b',').any(is_gzip),
            None => of_requests,
        };
        let is_wanted = of_requests || settings.send_compressed;
        Some(Self { of_requests, of_answers: (is_wanted && is_accepted()).then_some(settings.compression_len_min) })
    }
}

/// Makes the response of a call that did not fail.
fn respond(
    dialect: &'static Dialect,
    compression: Compression,
    answer: Answer,
    guard: Option<CancelGuard>,
) -> Result<Response<ResponseBody>, Status> {
    let mut headers = head_of(dialect);
    if compression.of_answers.is_some() {
        headers.insert(GRPC_ENCODING, HeaderValue::from_static(GZIP));
    }
    metadata::extend(&mut headers, answer.metadata(), "");
    let trailers = ok_trailers(answer.trailers());
    let body = match answer.into_body() {
        Body::One(content) => whole(dialect, compression, content, trailers)?,
        Body::Many(messages) => ResponseBody::stream(Messages {
            messages,
            dialect,
            compression,
            buffer: BytesMut::new(),
            content: None,
            end: End::Ahead(trailers),
            guard,
        }),
        body => return Err(Status::internal(format!("gRPC has no form for {body:?}"))),
    };
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    Ok(response)
}

/// Makes the body of an answer of one message.
fn whole(
    dialect: &'static Dialect,
    compression: Compression,
    content: Pieces,
    trailers: HeaderMap,
) -> Result<ResponseBody, Status> {
    let mut first = BytesMut::new();
    let mut second = put_message(&mut first, compression, content)?.unwrap_or_default();
    if dialect.kind == Kind::Grpc {
        return Ok(ResponseBody::whole(first.freeze(), second, Some(trailers)));
    }
    let end = grpc_web::trailers_frame(&trailers)?;
    if second.is_empty() {
        second = end;
    } else {
        first.extend_from_slice(&second);
        second = end;
    }
    Ok(match dialect.kind {
        Kind::WebText => grpc_web::encode(&[&first[..], &second[..]].concat()).into(),
        _ => ResponseBody::whole(first.freeze(), second, None),
    })
}

/// Adds the frame of a message. Returns the content of one that is too long to be copied, which is to follow.
fn put_message(out: &mut BytesMut, compression: Compression, content: Pieces) -> Result<Option<Bytes>, Status> {
    let len = content.len();
    if compression.of_answers.is_some_and(|len_min| len >= len_min) {
        let compressed = compression::compress(&content.into_bytes());
        out.reserve(HEADER_LEN + compressed.len());
        out.put_slice(&envelope::header(envelope::COMPRESSED, compressed.len())?);
        out.put_slice(&compressed);
        return Ok(None);
    }
    let header = envelope::header(0, len)?;
    if len > COPIED_LEN_MAX {
        out.put_slice(&header);
        return Ok(Some(content.into_bytes()));
    }
    out.reserve(HEADER_LEN + len);
    out.put_slice(&header);
    match content {
        Pieces::One(bytes) => out.put_slice(&bytes),
        Pieces::Small(bytes) => out.put_slice(&bytes),
        Pieces::Several(pieces) => pieces.iter().for_each(|piece| out.put_slice(piece)),
    }
    Ok(None)
}

/// The longest content that is copied behind the head of its frame.
const COPIED_LEN_MAX: usize = 8 * 1024;

/// Makes the response of a call that failed before there was an answer.
fn failed(dialect: &'static Dialect, status: &Status) -> Response<ResponseBody> {
    let mut headers = head_of(dialect);
    put_status(&mut headers, status);
    let mut response = Response::new(ResponseBody::empty());
    *response.headers_mut() = headers;
    response
}

fn unknown_encoding(dialect: &'static Dialect, headers: &HeaderMap) -> Response<ResponseBody> {
    let encoding = headers.get(GRPC_ENCODING);
    let mut response =
        failed(dialect, &Status::unimplemented(format!("no compression {encoding:?} here: gzip or none")));
    response.headers_mut().insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
    response
}

fn head_of(dialect: &'static Dialect) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(dialect.content_type));
    headers
}

fn ok_trailers(trailers: &Metadata) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(1 + trailers.len());
    headers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    metadata::extend(&mut headers, trailers, "");
    headers
}

/// Writes a status into headers or trailers.
fn put_status(headers: &mut HeaderMap, status: &Status) {
    // A failed call is never Ok, which would be a mistake of the handler.
    let code = if status.code() == Code::Ok { Code::Unknown } else { status.code() };
    headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(u8::from(code))));
    if !status.message().is_empty() {
        headers.insert(GRPC_MESSAGE, percent::encode(status.message()));
    }
    if !status.details().is_empty()
        && let Ok(details) = HeaderValue::try_from(metadata::BASE64.encode(status.details()))
    {
        headers.insert(GRPC_STATUS_DETAILS, details);
    }
    metadata::extend(headers, status.metadata(), "");
}

/// The body of an answer of many messages.
struct Messages {
    messages: Streaming<Bytes>,
    dialect: &'static Dialect,
    compression: Compression,
    /// Frames that were made and not yet taken.
    buffer: BytesMut,
    /// Content that follows what was taken last.
    content: Option<Bytes>,
    end: End,
    /// Tells the handler if the body is dropped before its end.
    guard: Option<CancelGuard>,
}

/// The end of the body of an answer of many messages.
enum End {
    /// There may be more messages. These trailers were known before the first.
    Ahead(HeaderMap),
    /// There are no more messages.
    Next(HeaderMap),
    Over,
}

impl Messages {
    /// Gathers frames of messages that are here. Returns whether there is something to be taken.
    fn poll_gather(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let End::Ahead(trailers) = &mut self.end
            && self.buffer.len() < BUFFER_LEN
        {
            let put = match Pin::new(&mut self.messages).poll_next(cx) {
                Poll::Ready(Some(content)) => {
                    content.and_then(|content| put_message(&mut self.buffer, self.compression, content.into()))
                }
                Poll::Ready(None) => {
                    // Known by now, since the end was read.
                    if let Some(Ok(Some(last))) = self.messages.trailers().now_or_never() {
                        metadata::extend(trailers, &last, "");
                    }
                    self.end = End::Next(mem::take(trailers));
                    break;
                }
                Poll::Pending if self.buffer.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            };
            match put {
                Ok(None) => {}
                Ok(content) => {
                    self.content = content;
                    break;
                }
                Err(status) => {
                    let mut trailers = HeaderMap::new();
                    put_status(&mut trailers, &status);
                    self.end = End::Next(trailers);
                }
            }
        }
        Poll::Ready(())
    }

    fn data(&self, data: Bytes) -> Frame<Bytes> {
        Frame::data(if self.dialect.kind == Kind::WebText { grpc_web::encode(&data) } else { data })
    }
}

impl http_body::Body for Messages {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(content) = self.content.take() {
            return Poll::Ready(Some(Ok(self.data(content))));
        }
        ready!(self.poll_gather(cx));
        if !self.buffer.is_empty() {
            let frames = self.buffer.split().freeze();
            return Poll::Ready(Some(Ok(self.data(frames))));
        }
        self.guard.take().into_iter().for_each(CancelGuard::disarm);
        let frame = match mem::replace(&mut self.end, End::Over) {
            End::Next(trailers) if self.dialect.kind == Kind::Grpc => Some(Frame::trailers(trailers)),
            // Trailers of 4 GiB, which no frame holds, are nothing that a handler makes.
            End::Next(trailers) => grpc_web::trailers_frame(&trailers).ok().map(|frame| self.data(frame)),
            End::Ahead(_) | End::Over => None,
        };
        Poll::Ready(frame.map(Ok))
    }
}

/// So many bytes of small messages go out together.
const BUFFER_LEN: usize = 8 * 1024;
