//! Unary gRPC calls with a short request: the fast path of HTTP/2.

use std::{
    future::ready,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Buf;
use frpc::{Answer, Body, Call, Metadata, MethodKind, Status, codec::Format};
use frpc_http2::Head;
use futures_util::future::BoxFuture;

use super::{
    caller::HttpCaller,
    exchange::{CallDeadlines, HttpExchange, RequestHead},
    grpc,
    http2::{Http2Content, Http2Request, Http2Response, ShortMessage, ShortOutcome, ShortResponse},
    incoming::PendingResponse,
    outgoing::RequestContent,
    pool::CallSlot,
    target::RpcProtocol,
};
use crate::{headers::timeout, message::envelope};

/// Returns `true` for calls of this path: a short message without metadata and compression.
pub(super) fn takes(caller: &HttpCaller, call: &Call) -> bool {
    let Body::One(message) = call.body() else { return false };
    let len = message.len();
    call.kind() == MethodKind::Unary
        && caller.protocol() == RpcProtocol::Grpc
        && call.head().metadata().is_empty()
        && call.method().codec().is_none()
        && len <= ShortMessage::LEN_MAX
        && caller.framing.gzip_len_min.is_none_or(|min| len < min)
}

/// Makes a call for which [`takes`] returns `true`. Sends it now, if a connection has room.
pub(super) fn call(caller: &Arc<HttpCaller>, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
    let deadlines = CallDeadlines::of(&call);
    match request(caller, call, deadlines.limit()) {
        Ok(request) => Box::pin(UnaryCall { caller, deadlines, state: send(caller, deadlines, request) }),
        Err(status) => Box::pin(ready(Err(status))),
    }
}

fn request(caller: &HttpCaller, call: Call, limit: Option<Duration>) -> Result<Http2Request, Status> {
    let (head, said) = caller.method_head(call.method(), limit)?;
    let timeout = limit.filter(|_| said.is_none());
    let timeout = timeout.map(|limit| Box::new((timeout::GRPC_TIMEOUT, timeout::grpc(limit))));
    let message = match call.into_parts().1 {
        Body::One(message) => ShortMessage::new(message.into_bytes())?,
        _ => return Err(Status::internal("the call has no single message")),
    };
    let content = Http2Content::Short(message);
    Ok(Http2Request { head, is_repeated: true, timeout, content })
}

/// A call in progress.
struct UnaryCall<'a> {
    caller: &'a Arc<HttpCaller>,
    deadlines: CallDeadlines,
    state: UnaryState<'a>,
}

/// ```text
///   Sent ─────────────▶ Done
///     │                  ▲
///     └───▶ General ─────┘
/// ```
enum UnaryState<'a> {
    Sent {
        response: ShortResponse,
        place: CallSlot,
        /// The number of bytes written on the connection before this request.
        written: u64,
    },
    /// A call that waits for a connection, or whose response is not plain.
    General(BoxFuture<'a, Result<Answer, Status>>),
    Done,
}

impl Future for UnaryCall<'_> {
    type Output = Result<Answer, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { caller, deadlines, state } = self.get_mut();
        let caller = *caller;
        loop {
            let outcome = match state {
                UnaryState::Sent { response, .. } => {
                    let is_plain =
                        |head: &Head, trailers: &Head| is_plain_head(caller.format(), head) && is_success(trailers);
                    ready!(response.poll(cx, |data| is_message(caller, data), is_plain))
                }
                UnaryState::General(answering) => {
                    let answer = ready!(answering.as_mut().poll(cx));
                    *state = UnaryState::Done;
                    return Poll::Ready(answer);
                }
                UnaryState::Done => return Poll::Ready(Err(Status::internal("the call is over"))),
            };
            // Ends the call, and frees its place for another one.
            let sent = mem::replace(state, UnaryState::Done);
            match (outcome, sent) {
                (ShortOutcome::Plain(mut data), UnaryState::Sent { .. }) => {
                    data.advance(envelope::HEADER_LEN);
                    return Poll::Ready(Ok(Answer::new(data.into())));
                }
                (ShortOutcome::Other(response, Some(request)), UnaryState::Sent { place, written, .. }) => {
                    *state = resume(caller, *deadlines, request, Some((response, place, written)));
                }
                _ => return Poll::Ready(Err(deadlines.passed())),
            }
        }
    }
}

/// Sends a request, if a connection has room for it.
fn send<'a>(caller: &'a Arc<HttpCaller>, deadlines: CallDeadlines, request: Http2Request) -> UnaryState<'a> {
    let place = caller.pool.try_acquire().filter(|place| place.connection().is_http2());
    let Some(place) = place else { return resume(caller, deadlines, request, None) };
    let written = place.connection().written();
    let response = place.connection().send_short(request, deadlines.at()).expect("the connection is one of HTTP/2");
    UnaryState::Sent { response, place, written }
}

/// Continues a call in the general way, with the same request.
#[cold]
fn resume<'a>(
    caller: &'a Arc<HttpCaller>,
    deadlines: CallDeadlines,
    request: Http2Request,
    sent: Option<(Http2Response, CallSlot, u64)>,
) -> UnaryState<'a> {
    let Http2Request { head, timeout: added, content, .. } = request;
    let (method, path, headers) = (head.method.clone(), head.path.clone(), head.headers.clone());
    let said = if added.is_none() { deadlines.limit() } else { None };
    let timeout = Some((timeout::GRPC_TIMEOUT, timeout::grpc as _));
    let head = RequestHead { method, path, headers, metadata: Metadata::new(), timeout, said, is_repeated: true };
    UnaryState::General(Box::pin(async move {
        let Http2Content::Short(message) = content else {
            return Err(Status::internal("the request has no short message"));
        };
        let content = RequestContent::Framed(message.frame());
        let exchange = match sent {
            None => HttpExchange::begin(caller.pool.clone(), head, content, deadlines).await?,
            Some((response, place, written)) => {
                HttpExchange::resume(head, content, deadlines, PendingResponse::Http2(response), (place, written))
            }
        };
        grpc::answer(caller, None, MethodKind::Unary, exchange, deadlines).await
    }))
}

/// Returns `true` for the data of one uncompressed message within the limit.
fn is_message(caller: &HttpCaller, data: &[u8]) -> bool {
    let header = data.first_chunk().map(envelope::parse);
    header.is_some_and(|(flags, len)| flags == 0 && len <= caller.len_max() && data.len() == envelope::HEADER_LEN + len)
}

/// Returns `true` for the head of a response without metadata.
fn is_plain_head(format: Format, head: &Head) -> bool {
    let mut has_type = false;
    for (name, value) in head.iter() {
        match name {
            b"content-type" => {
                let is_known = match format {
                    Format::Proto => matches!(value, b"application/grpc" | b"application/grpc+proto"),
                    _ => value == grpc::content_type(RpcProtocol::Grpc, format).as_bytes(),
                };
                if !is_known {
                    return false;
                }
                has_type = true;
            }
            // No metadata.
            b"date" | b"grpc-accept-encoding" | b"accept-encoding" => {}
            b"grpc-encoding" if value == b"identity" => {}
            _ => return false,
        }
    }
    has_type && head.status() == Some(200)
}

fn is_success(trailers: &Head) -> bool {
    let mut trailers = trailers.iter();
    matches!(trailers.next(), Some((b"grpc-status", b"0")))
        && trailers.all(|field| matches!(field, (b"grpc-message", b"")))
}
