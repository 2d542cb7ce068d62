//! Unary gRPC calls with a short request: the fast path of HTTP/2.

use std::{
    future::ready,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Buf;
use frpc::{Answer, Body, Call, MethodKind, Status, client::CallTime};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{
    caller::HttpCaller,
    exchange::{CallDeadlines, HttpExchange, RequestHead},
    grpc,
    http2::{
        AddedHeaders, CallHead, Http2Content, Http2Request, Http2Response, ShortMessage, ShortOutcome, ShortResponse,
    },
    incoming::PendingResponse,
    outgoing::RequestContent,
    pool::CallSlot,
    target::RpcProtocol,
};
use crate::{headers::timeout, message::envelope};

/// Returns `true` for calls of this path: a short message with little metadata, without compression.
pub(super) fn takes(caller: &HttpCaller, call: &Call) -> bool {
    let Body::One(message) = call.body() else { return false };
    let len = message.len();
    call.kind() == MethodKind::Unary
        && caller.protocol() == RpcProtocol::Grpc
        && AddedHeaders::carry(call.head().metadata())
        && call.method().codec().is_none()
        && len <= ShortMessage::LEN_MAX
        && caller.framing.gzip_len_min.is_none_or(|min| len < min)
}

/// Makes a call for which [`takes`] returns `true`.
pub(super) fn call(caller: &Arc<HttpCaller>, call: Call, time: CallTime) -> BoxFuture<'_, Result<Answer, Status>> {
    match request(caller, call, limit(time)) {
        Ok(request) => Box::pin(UnaryCall { caller, time, state: UnaryState::Unsent(Some(request)) }),
        Err(status) => Box::pin(ready(Err(status))),
    }
}

/// Returns the timeout of a unary call, unless the clock cannot represent its end.
fn limit(time: CallTime) -> Option<Duration> {
    time.opening.at.map(|_| time.opening.limit)
}

fn request(caller: &HttpCaller, call: Call, limit: Option<Duration>) -> Result<Http2Request, Status> {
    let (method, said) = caller.method_head(call.method(), limit)?;
    let timeout = limit.filter(|_| said.is_none());
    let timeout = timeout.map(|limit| (timeout::GRPC_TIMEOUT, timeout::grpc(limit)));
    let (call_head, body) = call.into_parts();
    let message = match body {
        Body::One(message) => ShortMessage::new(message)?,
        _ => return Err(Status::internal("the call has no single message")),
    };
    let has_added = timeout.is_some() || !call_head.metadata().is_empty();
    let added = has_added.then(|| Box::new(AddedHeaders { timeout, head: call_head }));
    let head = CallHead { method, is_repeated: true, added };
    Ok(Http2Request { head, content: Http2Content::Short(message) })
}

/// A call in progress.
struct UnaryCall<'a> {
    caller: &'a Arc<HttpCaller>,
    time: CallTime,
    state: UnaryState<'a>,
}

/// ```text
///   Unsent ───▶ Sent ─────────▶ Done
///     └──────────┴─▶ General ────▲
/// ```
enum UnaryState<'a> {
    /// `None` once the request is taken.
    Unsent(Option<Http2Request>),
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
        let Self { caller, time, state } = self.get_mut();
        let caller = *caller;
        loop {
            let outcome = match state {
                UnaryState::Unsent(request) => {
                    let Some(request) = request.take() else { return Poll::Ready(Err(is_over())) };
                    match send(caller, time.opening.at, request, cx.waker()) {
                        // The response wakes this caller.
                        Ok(sent) => {
                            *state = sent;
                            return Poll::Pending;
                        }
                        Err(request) => *state = resume(caller, *time, request, None),
                    }
                    continue;
                }
                UnaryState::Sent { response, .. } => ready!(response.poll(cx)),
                UnaryState::General(answering) => {
                    let answer = ready!(answering.as_mut().poll(cx));
                    *state = UnaryState::Done;
                    return Poll::Ready(answer);
                }
                UnaryState::Done => return Poll::Ready(Err(is_over())),
            };
            if let ShortOutcome::Plain(mut data) = outcome {
                if let UnaryState::Sent { place, .. } = state {
                    place.answered();
                }
                // Ends the call, and frees its place for another one.
                *state = UnaryState::Done;
                data.advance(envelope::HEADER_LEN);
                return Poll::Ready(Ok(Answer::new(data.into())));
            }
            let sent = mem::replace(state, UnaryState::Done);
            match (outcome, sent) {
                (ShortOutcome::Other(response, Some(request)), UnaryState::Sent { place, written, .. }) => {
                    *state = resume(caller, *time, request, Some((response, place, written)));
                }
                _ => return Poll::Ready(Err(time.opening.passed())),
            }
        }
    }
}

#[cold]
fn is_over() -> Status {
    Status::internal("the call is over")
}

/// Sends a request, if a connection has room for it. Otherwise returns the request.
#[inline]
fn send<'a>(
    caller: &Arc<HttpCaller>,
    deadline: Option<Instant>,
    request: Http2Request,
    waker: &Waker,
) -> Result<UnaryState<'a>, Http2Request> {
    let Some(place) = caller.pool.try_acquire().filter(|place| place.connection().is_http2()) else {
        return Err(request);
    };
    // The general way refuses metadata above the limit of the server.
    if let Some(added) = request.head.added.as_deref()
        && !added.head.metadata().is_empty()
        && let Some(max) = place.connection().head_len_max()
        && request.head.method.len(caller.pool.dialer().target.authority.as_str().len()) + added.len() > max
    {
        return Err(request);
    }
    let written = place.connection().written();
    let response = place.connection().send_short(request, deadline, waker).expect("the connection is one of HTTP/2");
    Ok(UnaryState::Sent { response, place, written })
}

/// Continues a call in the general way, with the same request.
#[cold]
fn resume<'a>(
    caller: &'a Arc<HttpCaller>,
    time: CallTime,
    request: Http2Request,
    sent: Option<(Http2Response, CallSlot, u64)>,
) -> UnaryState<'a> {
    let Http2Request { head: CallHead { method: head, added, .. }, content } = request;
    let (method, path, headers) = (head.method.clone(), head.path.clone(), head.headers.clone());
    let has_timeout = added.as_ref().is_some_and(|added| added.timeout.is_some());
    let said = if has_timeout { None } else { limit(time) };
    let metadata = added.map(|added| added.head.metadata().clone()).unwrap_or_default();
    let timeout = Some((timeout::GRPC_TIMEOUT, timeout::grpc as _));
    let head = RequestHead { method, path, headers, metadata, timeout, said, is_repeated: true };
    let deadlines = CallDeadlines::new(time, MethodKind::Unary);
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
