//! Messages that are the whole body of a request or a response, as unary calls of Connect and all calls of Twirp have them.

use std::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use frpc::{Answer, Body, Status};
use http::{
    HeaderMap, HeaderValue, Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE, VARY},
};
use tokio::time::timeout;

use super::{
    body::ResponseBody,
    coding::Coding,
    holding::Holding,
    requests::{RequestBody, not_read},
    site::Site,
};
use crate::{
    headers::metadata,
    message::compression::{self, GZIP},
    settings::Settings,
};

/// Reads the message that a body is, which takes memory of the connection.
///
/// # Errors
///
/// If it is too long, does not come in time, finds no room on the connection, or is not compressed as the caller said.
pub(super) async fn read<B: RequestBody>(
    body: B,
    coding: Coding,
    time: Option<Duration>,
    settings: &Settings,
    holding: &mut Holding,
) -> Result<Bytes, Status> {
    let message = receive(body, time, settings, holding).await?;
    let message = inflate(message, coding, settings)?;
    holding.set(message.len())?;
    Ok(message)
}

async fn receive<B: RequestBody>(
    body: B,
    time: Option<Duration>,
    settings: &Settings,
    holding: &mut Holding,
) -> Result<Bytes, Status> {
    let mut reading = pin!(read_all(body, settings.message_len_max, holding));
    // Most are here already and need no timer.
    match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        Poll::Ready(read) => read,
        Poll::Pending => {
            let time_max = settings.body_time(time);
            let late = |_| Err(Status::deadline_exceeded(format!("the request was not here within {time_max:?}")));
            // In a box, so that those which need none do not have the memory for it.
            Box::pin(timeout(time_max, reading)).await.unwrap_or_else(late)
        }
    }
}

async fn read_all<B: RequestBody>(mut body: B, len_max: usize, holding: &mut Holding) -> Result<Bytes, Status> {
    if body.size_hint().lower() > u64::try_from(len_max).unwrap_or(u64::MAX) {
        return Err(too_long(len_max));
    }
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| not_read(&*error.into()))?;
        // Trailers of a request say nothing.
        let Ok(data) = frame.into_data() else { continue };
        if data.len().saturating_add(whole.len()).saturating_add(first.len()) > len_max {
            return Err(too_long(len_max));
        }
        holding.set(first.len() + data.len() + whole.len())?;
        // Mostly all of it comes at once.
        if whole.is_empty() && first.is_empty() {
            first = data;
        } else {
            whole.extend_from_slice(&mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// Returns the status of a message that is too long.
fn too_long(len_max: usize) -> Status {
    Status::resource_exhausted(format!("the message is longer than the {len_max} bytes that are accepted"))
}

/// Returns a message as it was before the caller compressed it. One without bytes is not compressed, whatever its head says.
///
/// # Errors
///
/// If it is too long, before or afterwards, or is not compressed as the caller said.
pub(super) fn inflate(message: Bytes, coding: Coding, settings: &Settings) -> Result<Bytes, Status> {
    if message.len() > settings.message_len_max {
        return Err(too_long(settings.message_len_max));
    }
    if !coding.of_requests || message.is_empty() {
        return Ok(message);
    }
    compression::decompress(&message, settings.message_len_max)
}

/// Makes the response to a call that did not fail. Its trailers are headers with a prefix.
pub(super) fn respond(
    site: &Site,
    answer: Answer,
    coding: Coding,
    content_type: &'static str,
    trailer_prefix: &str,
) -> Result<Response<ResponseBody>, Status> {
    let mut headers = HeaderMap::with_capacity(4 + answer.metadata().len() + answer.trailers().len());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    metadata::extend(&mut headers, answer.metadata(), "");
    metadata::extend(&mut headers, answer.trailers(), trailer_prefix);
    site.check_answer_head(&headers)?;
    let Body::One(message) = answer.into_body() else {
        return Err(Status::internal("the handler of a unary call answered with a stream"));
    };
    let mut content = message.into_bytes();
    if coding.of_answers.is_some_and(|len_min| content.len() >= len_min && !content.is_empty()) {
        content = compression::compress(&content);
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(GZIP));
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
    let mut response = Response::new(ResponseBody::from(content));
    *response.headers_mut() = headers;
    Ok(response)
}
