//! Messages sent as a whole body: unary calls of Connect and REST, and all Twirp calls.

use std::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use frpc::{Answer, Body, Status};
use http::{
    HeaderMap, HeaderValue, Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE, VARY},
};

use super::{
    body::ResponseBody,
    coding::CallCompression,
    request_memory::RequestMemory,
    requests::{RequestBody, body_error, within},
    site::ServeContext,
};
use crate::{
    headers::metadata,
    message::compression::{self, GZIP},
    settings::HttpSettings,
};

/// Reads the message of a request. Its memory is charged to the account of the connection.
///
/// # Errors
///
/// If the message is too long, arrives too late, exceeds the memory of the connection, or is not compressed as
/// announced.
pub(super) async fn collect_message<B: RequestBody>(
    body: B,
    coding: CallCompression,
    time: Option<Duration>,
    settings: &HttpSettings,
    holding: &mut RequestMemory,
) -> Result<Bytes, Status> {
    let message = {
        let reading = pin!(read_all(body, settings.message_len_max, holding));
        within(settings.body_time(time), reading).await?
    };
    let message = inflate(message, coding, settings)?;
    holding.set(message.len())?;
    Ok(message)
}

async fn read_all<B: RequestBody>(mut body: B, len_max: usize, holding: &mut RequestMemory) -> Result<Bytes, Status> {
    if body.size_hint().lower() > u64::try_from(len_max).unwrap_or(u64::MAX) {
        return Err(too_long(len_max));
    }
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| body_error(&*error.into()))?;
        // Trailers of a request have no meaning here.
        let Ok(data) = frame.into_data() else { continue };
        if data.len().saturating_add(whole.len()).saturating_add(first.len()) > len_max {
            return Err(too_long(len_max));
        }
        holding.set(first.len() + data.len() + whole.len())?;
        // Most bodies arrive in one piece and are not copied.
        if whole.is_empty() && first.is_empty() {
            first = data;
        } else {
            whole.extend_from_slice(&mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// Returns the status of a message above the limit.
fn too_long(len_max: usize) -> Status {
    Status::resource_exhausted(format!("the message exceeds the limit of {len_max} bytes"))
}

/// Decompresses a message, if its headers announce compression. An empty message is never compressed.
///
/// # Errors
///
/// If the message is too long before or after decompression, or is not compressed as announced.
pub(super) fn inflate(message: Bytes, coding: CallCompression, settings: &HttpSettings) -> Result<Bytes, Status> {
    if message.len() > settings.message_len_max {
        return Err(too_long(settings.message_len_max));
    }
    if !coding.of_requests || message.is_empty() {
        return Ok(message);
    }
    compression::decompress(&message, settings.message_len_max)
}

/// Builds the response to a successful call. Trailers become headers with a prefix.
pub(super) fn respond(
    site: &ServeContext,
    answer: Answer,
    coding: CallCompression,
    content_type: HeaderValue,
    trailer_prefix: &str,
) -> Result<Response<ResponseBody>, Status> {
    let mut headers = HeaderMap::with_capacity(4 + answer.metadata().len() + answer.trailers().len());
    headers.insert(CONTENT_TYPE, content_type);
    metadata::extend(&mut headers, answer.metadata(), "");
    metadata::extend(&mut headers, answer.trailers(), trailer_prefix);
    site.check_answer_head(&headers)?;
    let Body::One(message) = answer.into_body() else {
        return Err(Status::internal("the handler of a unary method returned a stream"));
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
