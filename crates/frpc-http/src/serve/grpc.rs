//! gRPC, and gRPC-Web, which differs in the place of trailers and in its base64 form.

use std::time::Duration;

use bytes::Bytes;
use frpc::{
    Answer, Body, CancelGuard, Endpoint, Metadata, MethodHandle, RpcSystem, Status,
    codec::{EncodedMessage, Format},
    shown,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version,
    header::{ALLOW, CONTENT_TYPE},
    request::Parts,
};
use http_body::Frame;

use super::{
    body::ResponseBody,
    coding::CallCompression,
    framed, grpc_web,
    requests::{RequestBody, RequestMessages},
    responses::{FramedBody, ResponseFraming, put_message},
    site::{ServeContext, check_codec, check_len, refuse},
};
use crate::{
    headers::{ADDED_LEN, metadata, timeout},
    message::compression::GZIP,
    settings::HttpSettings,
    status::{
        self,
        grpc::{GRPC_STATUS, HEAD_LEN_MAX},
    },
};

/// A variant of gRPC or gRPC-Web, with its message format.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrpcDialect {
    kind: GrpcVariant,
    format: Format,
    /// The content type of both requests and responses.
    content_type: &'static str,
    /// The codec of the method, if the content type ends with its name.
    codec: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrpcVariant {
    Grpc,
    Web,
    WebText,
}

const DIALECTS: [GrpcDialect; 9] = {
    const fn dialect(kind: GrpcVariant, format: Format, content_type: &'static str) -> GrpcDialect {
        GrpcDialect { kind, format, content_type, codec: None }
    }
    [
        dialect(GrpcVariant::Grpc, Format::Proto, "application/grpc"),
        dialect(GrpcVariant::Grpc, Format::Proto, "application/grpc+proto"),
        dialect(GrpcVariant::Grpc, Format::Json, "application/grpc+json"),
        dialect(GrpcVariant::Web, Format::Proto, "application/grpc-web"),
        dialect(GrpcVariant::Web, Format::Proto, "application/grpc-web+proto"),
        dialect(GrpcVariant::Web, Format::Json, "application/grpc-web+json"),
        dialect(GrpcVariant::WebText, Format::Proto, "application/grpc-web-text"),
        dialect(GrpcVariant::WebText, Format::Proto, "application/grpc-web-text+proto"),
        dialect(GrpcVariant::WebText, Format::Json, "application/grpc-web-text+json"),
    ]
};

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

impl GrpcDialect {
    /// Returns the dialect with this content type.
    pub(super) fn of(media_type: &[u8]) -> Option<Self> {
        DIALECTS.iter().find(|dialect| media_type.eq_ignore_ascii_case(dialect.content_type.as_bytes())).copied()
    }

    /// Returns the dialect with this content type, if that names the codec of the method with this path.
    pub(super) fn of_codec(media_type: &[u8], endpoint: &Endpoint, path: &str) -> Option<Self> {
        let plus = media_type.iter().position(|byte| *byte == b'+')?;
        let (family, name) = media_type.split_at(plus);
        let dialect = Self::of(family)?;
        let codec = endpoint.find(path)?.method().codec()?;
        codec.as_bytes().eq_ignore_ascii_case(&name[1..]).then_some(Self { codec: Some(codec), ..dialect })
    }

    /// Returns `true` if the content type names no message format. The codec of the method decides it then.
    fn accepts_any_codec(&self) -> bool {
        self.codec.is_some() || !self.content_type.contains('+')
    }

    /// Returns `true` for gRPC itself, not gRPC-Web.
    #[cfg(feature = "http2")]
    pub(super) fn is_grpc(&self) -> bool {
        self.kind == GrpcVariant::Grpc
    }

    /// Returns the format of the messages.
    #[cfg(feature = "http2")]
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Returns the content type of requests and responses.
    #[cfg(feature = "http2")]
    pub(super) fn content_type(&self) -> &'static str {
        self.content_type
    }

    /// Returns `true` if the settings enable this dialect.
    pub(super) fn is_enabled(&self, settings: &HttpSettings) -> bool {
        match self.kind {
            GrpcVariant::Grpc => settings.grpc,
            GrpcVariant::Web | GrpcVariant::WebText => settings.grpc_web,
        }
    }
}

/// Answers a request in this dialect.
pub(super) async fn serve<B: RequestBody>(
    site: &ServeContext,
    dialect: GrpcDialect,
    parts: &Parts,
    body: B,
) -> Response<ResponseBody> {
    if parts.method != Method::POST {
        let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "gRPC calls must use POST\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    if dialect.kind == GrpcVariant::Grpc && parts.version < Version::HTTP_2 {
        return refuse(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC requires HTTP/2; over HTTP/1.1, use gRPC-Web\n");
    }
    let coding = match negotiate(site, parts) {
        Ok(coding) => coding,
        Err(status) => {
            let mut response = failed(site, dialect, &status);
            response.headers_mut().insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
            return response;
        }
    };
    let answer = async {
        let read = GrpcHead::read(site, dialect, parts);
        let GrpcHead { method, time, metadata } = read.inspect_err(|status| {
            site.endpoint.count_refused(site.endpoint.find(parts.uri.path()), RpcSystem::Grpc, status.code());
        })?;
        let head = site.head_of(&metadata, time, site.peer(&parts.extensions))?;
        let mut requests = RequestMessages::new(body, coding.of_requests, site.settings.message_len_max, &site.account);
        if dialect.kind == GrpcVariant::WebText {
            requests = requests.with_base64();
        }
        let (answer, guard) = framed::call(site, method, dialect.format, head, time, requests).await?;
        respond(site, dialect, coding, answer, guard)
    };
    answer.await.unwrap_or_else(|status| failed(site, dialect, &status))
}

pub(super) fn negotiate(site: &ServeContext, parts: &Parts) -> Result<CallCompression, Status> {
    let encoding = parts.headers.get(GRPC_ENCODING).map(HeaderValue::as_bytes);
    CallCompression::negotiate(encoding, parts.headers.get(GRPC_ACCEPT_ENCODING), &site.settings)
}

/// The parts of a request head that belong to the call.
#[derive(Clone, Debug)]
pub(super) struct GrpcHead {
    pub(super) method: MethodHandle,
    pub(super) time: Option<Duration>,
    pub(super) metadata: Metadata,
}

impl GrpcHead {
    pub(super) fn read(site: &ServeContext, dialect: GrpcDialect, parts: &Parts) -> Result<Self, Status> {
        let path = parts.uri.path();
        let found = site.endpoint.find(path);
        let method =
            found.ok_or_else(|| Status::unimplemented(format!("this server has no method {}", shown(path))))?;
        if !dialect.accepts_any_codec() {
            check_codec(method.method(), dialect.format)?;
        }
        let time = call_time(&parts.headers)?;
        let metadata = site.metadata(&parts.headers)?;
        Ok(Self { method: method.over(RpcSystem::Grpc), time, metadata })
    }
}

/// Returns the timeout set by the caller.
fn call_time(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(timeout::GRPC_TIMEOUT) else { return Ok(None) };
    let time = timeout::parse_grpc(value.as_bytes());
    time.map(Some).ok_or_else(|| Status::invalid_argument(format!("invalid grpc-timeout \"{}\"", shown(value))))
}

/// Builds the response to a successful call.
pub(super) fn respond(
    site: &ServeContext,
    dialect: GrpcDialect,
    coding: CallCompression,
    answer: Answer,
    guard: Option<CancelGuard>,
) -> Result<Response<ResponseBody>, Status> {
    let mut headers = head_of(dialect);
    if coding.of_answers.is_some() {
        headers.insert(GRPC_ENCODING, HeaderValue::from_static(GZIP));
    }
    metadata::extend(&mut headers, answer.metadata(), "");
    site.check_answer_head(&headers)?;
    let trailers = answer.trailers().clone();
    let ends = GrpcFraming { kind: dialect.kind, said_len_max: site.answer_head_len_max };
    let body = match answer.into_body() {
        Body::One(content) => whole(dialect, coding, content, ends.trailers(Ok(&trailers)))?,
        Body::Many(messages) => ResponseBody::stream(FramedBody::new(messages, trailers, coding, ends, guard)),
        body => return Err(Status::internal(format!("gRPC does not support this kind of response body: {body:?}"))),
    };
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    Ok(response)
}

/// Builds the body of a response with a single message.
fn whole(
    dialect: GrpcDialect,
    coding: CallCompression,
    content: EncodedMessage,
    trailers: HeaderMap,
) -> Result<ResponseBody, Status> {
    let mut first = Vec::new();
    let mut second = put_message(&mut first, coding, content)?.unwrap_or_default();
    if dialect.kind == GrpcVariant::Grpc {
        return Ok(ResponseBody::whole(first.into(), second, Some(trailers)));
    }
    let end = grpc_web::trailers_frame(&trailers)?;
    if second.is_empty() {
        second = end;
    } else {
        first.extend_from_slice(&second);
        second = end;
    }
    Ok(match dialect.kind {
        GrpcVariant::WebText => grpc_web::encode(&[&first[..], &second[..]].concat()).into(),
        _ => ResponseBody::whole(first.into(), second, None),
    })
}

/// Builds the response to a call that failed before its first response message.
pub(super) fn failed(site: &ServeContext, dialect: GrpcDialect, status: &Status) -> Response<ResponseBody> {
    let mut headers = head_of(dialect);
    let len_max = site.answer_head_len_max.unwrap_or(HEAD_LEN_MAX);
    status::grpc::put(&mut headers, status, len_max.saturating_sub(ADDED_LEN));
    let mut response = Response::new(ResponseBody::empty());
    *response.headers_mut() = headers;
    response
}

fn head_of(dialect: GrpcDialect) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    let content_type = match dialect.codec {
        // The name equals a part of the request header, so it is valid in a header.
        Some(codec) => HeaderValue::try_from(format!("{}+{codec}", dialect.content_type)).ok(),
        None => None,
    };
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static(dialect.content_type)));
    headers
}

/// Builds the trailers of a successful call.
pub(super) fn ok_trailers(trailers: &Metadata) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(1 + trailers.len());
    headers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    metadata::extend(&mut headers, trailers, "");
    headers
}

/// The framing of gRPC responses.
struct GrpcFraming {
    kind: GrpcVariant,
    /// The header size limit announced by the caller, if any.
    said_len_max: Option<usize>,
}

impl GrpcFraming {
    /// Builds trailers within the limit of the caller. If the trailers are too large, the call fails instead.
    fn trailers(&self, outcome: Result<&Metadata, &Status>) -> HeaderMap {
        // gRPC-Web sends trailers in the body, so no header limit applies. The limit is lowered by one because some
        // peers accept only less than they announce.
        let said_len_max =
            self.said_len_max.filter(|_| self.kind == GrpcVariant::Grpc).map(|max| max.saturating_sub(1));
        let too_large = match outcome {
            Ok(trailers) => {
                let headers = ok_trailers(trailers);
                match check_len(&headers, said_len_max.unwrap_or(usize::MAX)) {
                    Ok(()) => return headers,
                    Err(status) => status,
                }
            }
            Err(status) => status.clone(),
        };
        let mut trailers = HeaderMap::new();
        let default = if self.kind == GrpcVariant::Grpc { HEAD_LEN_MAX } else { usize::MAX };
        status::grpc::put(&mut trailers, &too_large, said_len_max.unwrap_or(default));
        trailers
    }
}

impl ResponseFraming for GrpcFraming {
    fn data(&self, frames: Bytes) -> Bytes {
        if self.kind == GrpcVariant::WebText { grpc_web::encode(&frames) } else { frames }
    }

    fn end(&self, outcome: Result<&Metadata, &Status>) -> Option<Frame<Bytes>> {
        let trailers = self.trailers(outcome);
        match self.kind {
            GrpcVariant::Grpc => Some(Frame::trailers(trailers)),
            GrpcVariant::Web | GrpcVariant::WebText => {
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
    fn every_dialect_may_stream() {
        assert!(DIALECTS.iter().all(|dialect| may_stream(dialect.content_type.as_bytes())));
    }
}
