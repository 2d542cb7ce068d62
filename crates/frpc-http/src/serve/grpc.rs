//! gRPC, and gRPC-Web, which differs from it by where trailers stand and by its text.

use std::time::Duration;

use base64::Engine;
use bytes::{Bytes, BytesMut};
use frpc::{
    Answer, Body, CancelGuard, Code, Metadata, Status,
    codec::{Format, Pieces},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version,
    header::{ALLOW, CONTENT_TYPE},
    request::Parts,
};
use http_body::Frame;

use super::{
    body::ResponseBody,
    coding::Coding,
    framed, grpc_web,
    requests::{RequestBody, Requests},
    responses::{Framing, Responses, put_message},
    site::{Site, refuse},
};
use crate::{
    headers::{metadata, percent, timeout},
    message::compression::GZIP,
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
    pub(super) fn of(media_type: &[u8]) -> Option<&'static Self> {
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
    parts: &Parts,
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
    let encoding = parts.headers.get(GRPC_ENCODING).map(HeaderValue::as_bytes);
    match Coding::agree(encoding, parts.headers.get(GRPC_ACCEPT_ENCODING), &site.settings) {
        Ok(coding) => {
            let answer = answer(site, dialect, coding, parts, body).await;
            answer.unwrap_or_else(|status| failed(dialect, &status))
        }
        Err(status) => {
            let mut response = failed(dialect, &status);
            response.headers_mut().insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
            response
        }
    }
}

async fn answer<B: RequestBody>(
    site: &Site,
    dialect: &'static Dialect,
    coding: Coding,
    parts: &Parts,
    body: B,
) -> Result<Response<ResponseBody>, Status> {
    let path = parts.uri.path();
    let found = site.endpoint.find(path).ok_or_else(|| Status::unimplemented(format!("no method {path} here")))?;
    let time = call_time(&parts.headers)?;
    let head = site.call_head(parts, time)?;
    let mut requests = Requests::new(body, coding.of_requests, site.settings.message_len_max);
    if dialect.kind == Kind::WebText {
        requests = requests.in_text();
    }
    let (answer, guard) = framed::call(site, found, dialect.format, head, time, requests).await?;
    respond(dialect, coding, answer, guard)
}

/// Returns the time that the caller gives the call.
fn call_time(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(timeout::GRPC_TIMEOUT) else { return Ok(None) };
    let time = timeout::parse_grpc(value.as_bytes());
    time.map(Some).ok_or_else(|| Status::invalid_argument(format!("{value:?} is no grpc-timeout")))
}

/// Makes the response of a call that did not fail.
fn respond(
    dialect: &'static Dialect,
    coding: Coding,
    answer: Answer,
    guard: Option<CancelGuard>,
) -> Result<Response<ResponseBody>, Status> {
    let mut headers = head_of(dialect);
    if coding.of_answers.is_some() {
        headers.insert(GRPC_ENCODING, HeaderValue::from_static(GZIP));
    }
    metadata::extend(&mut headers, answer.metadata(), "");
    let trailers = answer.trailers().clone();
    let body = match answer.into_body() {
        Body::One(content) => whole(dialect, coding, content, ok_trailers(&trailers))?,
        Body::Many(messages) => ResponseBody::stream(Responses::new(messages, trailers, coding, *dialect, guard)),
        body => return Err(Status::internal(format!("gRPC has no form for {body:?}"))),
    };
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    Ok(response)
}

/// Makes the body of an answer of one message.
fn whole(
    dialect: &'static Dialect,
    coding: Coding,
    content: Pieces,
    trailers: HeaderMap,
) -> Result<ResponseBody, Status> {
    let mut first = BytesMut::new();
    let mut second = put_message(&mut first, coding, content)?.unwrap_or_default();
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

/// Makes the response of a call that failed before there was an answer.
fn failed(dialect: &'static Dialect, status: &Status) -> Response<ResponseBody> {
    let mut headers = head_of(dialect);
    put_status(&mut headers, status);
    let mut response = Response::new(ResponseBody::empty());
    *response.headers_mut() = headers;
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

impl Framing for Dialect {
    fn data(&self, frames: Bytes) -> Bytes {
        if self.kind == Kind::WebText { grpc_web::encode(&frames) } else { frames }
    }

    fn end(&self, outcome: Result<&Metadata, &Status>) -> Option<Frame<Bytes>> {
        let trailers = match outcome {
            Ok(trailers) => ok_trailers(trailers),
            Err(status) => {
                let mut trailers = HeaderMap::new();
                put_status(&mut trailers, status);
                trailers
            }
        };
        match self.kind {
            Kind::Grpc => Some(Frame::trailers(trailers)),
            Kind::Web | Kind::WebText => {
                grpc_web::trailers_frame(&trailers).ok().map(|frame| Frame::data(self.data(frame)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DIALECTS;
    use crate::serve::may_stream;

    #[test]
    fn each_dialect_may_have_streams() {
        assert!(DIALECTS.iter().all(|dialect| may_stream(dialect.content_type.as_bytes())));
    }
}
