//! Streaming calls: frames in both bodies. The last frame of a response holds the outcome.

use bytes::Bytes;
use frpc::{Answer, Body, CancelGuard, Metadata, MethodHandle, Status, Streaming, codec::Format};
use http::{HeaderMap, HeaderValue, Response, header::CONTENT_TYPE, request::Parts};
use http_body::Frame;

use super::head::{ConnectContentType, call_time, check_version};
use crate::{
    headers::{CONNECT_ACCEPT_ENCODING, CONNECT_CONTENT_ENCODING, CONNECT_PROTOCOL_VERSION, metadata},
    message::{compression::GZIP, envelope},
    serve::{
        body::ResponseBody,
        coding::CallCompression,
        framed,
        requests::{RequestBody, RequestMessages},
        responses::{FramedBody, ResponseFraming},
        site::{ServeContext, check_codec},
    },
    status,
};

/// Answers a streaming call.
pub(super) async fn serve<B: RequestBody>(
    site: &ServeContext,
    method: MethodHandle,
    format: Format,
    parts: &Parts,
    body: B,
) -> Response<ResponseBody> {
    let content_type = ConnectContentType::Frames(format).media_type();
    let answered = async {
        let settings = &site.settings;
        let version = parts.headers.get(CONNECT_PROTOCOL_VERSION).map(HeaderValue::as_bytes);
        check_codec(method.method(), format)?;
        check_version(version, "1", settings.connect_version_required)?;
        let sent = parts.headers.get(CONNECT_CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let coding = CallCompression::negotiate(sent, parts.headers.get(CONNECT_ACCEPT_ENCODING), settings)?;
        let time = call_time(&parts.headers)?;
        let head = site.call_head(parts, time)?;
        let requests = RequestMessages::new(body, coding.of_requests, settings.message_len_max, &site.account);
        let (answer, guard) = framed::call(site, method, format, head, time, requests).await?;
        respond(site, answer, coding, guard)
    };
    let (mut headers, body) = answered.await.unwrap_or_else(|status: Status| {
        (HeaderMap::new(), end(Err(&status)).map_or_else(|_| ResponseBody::empty(), ResponseBody::from))
    });
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    response
}

/// Builds the headers and the body of the response to a call without a failure so far.
fn respond(
    site: &ServeContext,
    answer: Answer,
    coding: CallCompression,
    guard: Option<CancelGuard>,
) -> Result<(HeaderMap, ResponseBody), Status> {
    let mut headers = HeaderMap::with_capacity(4 + answer.metadata().len());
    if coding.of_answers.is_some() {
        headers.insert(CONNECT_CONTENT_ENCODING, HeaderValue::from_static(GZIP));
    }
    metadata::extend(&mut headers, answer.metadata(), "");
    site.check_answer_head(&headers)?;
    let trailers = answer.trailers().clone();
    let messages = match answer.into_body() {
        Body::One(content) => Streaming::from_iter([content.into_bytes()]),
        Body::Many(messages) => messages,
        body => return Err(Status::internal(format!("Connect does not support this kind of response body: {body:?}"))),
    };
    let body = ResponseBody::stream(FramedBody::new(messages, trailers, coding, ConnectFraming, guard));
    Ok((headers, body))
}

/// Returns the last frame of a response.
///
/// # Errors
///
/// If the trailers are too long for a frame. The limit is 4 GiB.
fn end(outcome: Result<&Metadata, &Status>) -> Result<Bytes, Status> {
    envelope::frame(envelope::END_OF_STREAM, &status::connect::end_of_stream(outcome))
}

/// The framing of Connect responses.
struct ConnectFraming;

impl ResponseFraming for ConnectFraming {
    fn data(&self, frames: Bytes) -> Bytes {
        frames
    }

    fn end(&self, outcome: Result<&Metadata, &Status>) -> Option<Frame<Bytes>> {
        end(outcome).ok().map(Frame::data)
    }
}
