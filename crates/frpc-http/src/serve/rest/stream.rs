//! Response streams: JSON lines, server-sent events, or the bytes of a `google.api.HttpBody`.

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use frpc::{Answer, Body, CancelGuard, Status, Streaming, codec::json::Types};
use frpc_rest::{ResponseContent, RouteCall};
use futures_core::Stream;
use http::{
    HeaderMap, HeaderValue, Response,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE},
};
use http_body::Frame;

use super::response_type;
use crate::{
    headers::metadata,
    serve::{body::ResponseBody, site::ServeContext},
    status,
};

/// Builds the response to a call with a response stream.
///
/// Lines and bytes begin with the first message, so that an earlier error has its HTTP status. Events begin immediately,
/// because browsers report an open connection then.
pub(super) async fn respond(
    site: &ServeContext,
    call: &RouteCall,
    request: &HeaderMap,
    answer: Answer,
    mut guard: Option<CancelGuard>,
) -> Result<Response<ResponseBody>, Status> {
    let mut headers = HeaderMap::new();
    metadata::extend(&mut headers, answer.metadata(), "");
    let Body::Many(mut messages) = answer.into_body() else {
        return Err(Status::internal("the handler of a method with a response stream returned a single message"));
    };
    let format = match (call.has_http_body(), accepts_events(request)) {
        (true, _) => LineFormat::Bytes,
        (false, true) => LineFormat::Events,
        (false, false) => LineFormat::Lines,
    };
    let mut first = None;
    if format != LineFormat::Events {
        first = match messages.message().await {
            Ok(Some(message)) => Some(content(call, message)?),
            Ok(None) => None,
            Err(status) => {
                guard.take().into_iter().for_each(CancelGuard::disarm);
                return Err(status);
            }
        };
    }
    let content_type = match (format, &first) {
        (LineFormat::Lines, _) => HeaderValue::from_static("application/x-ndjson"),
        (LineFormat::Events, _) => HeaderValue::from_static("text/event-stream"),
        (LineFormat::Bytes, first) => {
            response_type(Some(first.as_ref().and_then(|first| first.content_type.as_deref()).unwrap_or_default()))?
        }
    };
    headers.insert(CONTENT_TYPE, content_type);
    if format == LineFormat::Events {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
    site.check_answer_head(&headers)?;
    let mut body = LineBody {
        messages,
        call: call.clone(),
        format,
        any_types: site.endpoint.any_types(),
        buffer: Vec::new(),
        is_over: false,
        guard,
    };
    if let Some(first) = first {
        body.put(&first);
    }
    let mut response = Response::new(ResponseBody::stream(body));
    *response.headers_mut() = headers;
    Ok(response)
}

fn accepts_events(request: &HeaderMap) -> bool {
    let accepted = request.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let types = accepted.flat_map(|value| value.split(',')).filter_map(|one| one.split(';').next());
    types.into_iter().any(|one| one.trim().eq_ignore_ascii_case("text/event-stream"))
}

fn content(call: &RouteCall, message: Bytes) -> Result<ResponseContent, Status> {
    call.response(message).ok_or_else(|| Status::internal("the response does not have the type of its method"))
}

/// The form of the messages in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineFormat {
    Lines,
    Events,
    Bytes,
}

/// The body of a response stream.
struct LineBody {
    messages: Streaming<Bytes>,
    call: RouteCall,
    format: LineFormat,
    any_types: &'static Types,
    /// Encoded messages, not sent yet.
    buffer: Vec<u8>,
    is_over: bool,
    /// Cancels the handler if the body is dropped before its end.
    guard: Option<CancelGuard>,
}

impl LineBody {
    fn put(&mut self, message: &ResponseContent) {
        let [before, after] = match self.format {
            LineFormat::Lines => [&b"{\"result\":"[..], &b"}\n"[..]],
            LineFormat::Events => [b"data: ", &b"\n\n"[..]],
            LineFormat::Bytes => [&b""[..], &b""[..]],
        };
        for part in [before, &message.content, after] {
            self.buffer.extend_from_slice(part);
        }
    }

    fn end(&mut self, outcome: Result<(), &Status>) {
        self.is_over = true;
        if let Err(status) = outcome {
            let error = status::rest::error(status, self.any_types);
            let [before, after] = match self.format {
                LineFormat::Lines | LineFormat::Bytes => [&b"{\"error\":"[..], &b"}\n"[..]],
                LineFormat::Events => [b"event: error\ndata: ", &b"\n\n"[..]],
            };
            for part in [before, &error, after] {
                self.buffer.extend_from_slice(part);
            }
        } else if self.format == LineFormat::Events {
            // Browsers connect again after the end of a body, unless the script closes the source.
            self.buffer.extend_from_slice(b"event: end\ndata: {}\n\n");
        }
    }
}

impl http_body::Body for LineBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        while !self.is_over && self.buffer.len() < BUFFER_LEN {
            let next = match Pin::new(&mut self.messages).poll_next(cx) {
                Poll::Pending if !self.buffer.is_empty() => break,
                next => ready!(next),
            };
            let next = next.map(|message| message.and_then(|message| content(&self.call, message)));
            match next {
                Some(Ok(message)) => self.put(&message),
                Some(Err(status)) => self.end(Err(&status)),
                None => self.end(Ok(())),
            }
        }
        if self.is_over
            && let Some(guard) = self.guard.take()
        {
            guard.disarm();
        }
        if self.buffer.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(mem::take(&mut self.buffer).into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over && self.buffer.is_empty()
    }
}

/// The target length of messages sent together.
const BUFFER_LEN: usize = 12 << 10;
