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
use frpc::{
    Answer, Body, Call, Head, MethodKind, Status,
    client::{CallTime, note_arrival},
};
use futures_util::future::BoxFuture;

use super::{
    caller::HttpCaller,
    exchange::{CallDeadlines, HttpExchange, RequestHead},
    grpc,
    http2::{
        AddedHeaders, CallHead, Http2Content, Http2Request, Http2Response, ShortCall, ShortMessage, ShortOutcome,
        ShortResponse,
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
#[inline(always)] // The call is large, and is not moved.
pub(super) fn call(caller: &Arc<HttpCaller>, call: Call, time: CallTime) -> BoxFuture<'_, Result<Answer, Status>> {
    match unsent(caller, call, time) {
        Ok(call) => Box::pin(UnaryCall { caller, time, state: UnaryState::Unsent(Some(call)) }),
        Err(status) => Box::pin(ready(Err(status))),
    }
}

/// Returns the timeout of a unary call, unless the clock cannot represent its end.
fn limit(time: CallTime) -> Option<Duration> {
    time.opening.at.map(|_| time.opening.limit)
}

fn unsent(caller: &HttpCaller, call: Call, time: CallTime) -> Result<ShortCall, Status> {
    let limit = limit(time);
    let (method, said) = caller.method_head(call.method(), limit)?;
    let unsaid = limit.filter(|_| said.is_none());
    let (call_head, body) = call.into_parts();
    let message = match body {
        Body::One(message) => ShortMessage::new(message)?,
        _ => return Err(Status::internal("the call has no single message")),
    };
    let has_added = unsaid.is_some() || !call_head.metadata().is_empty();
    let added = if has_added { Some(added(call_head, unsaid)) } else { None };
    let head = CallHead { method, is_repeated: true, added };
    Ok(ShortCall::new(head, message, time.opening.at))
}

/// Returns the headers of a single call.
#[cold]
fn added(head: Head, timeout: Option<Duration>) -> Box<AddedHeaders> {
    let timeout = timeout.map(|limit| (timeout::GRPC_TIMEOUT, timeout::grpc(limit)));
    Box::new(AddedHeaders { timeout, head })
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
    /// `None` once the call is taken.
    Unsent(Option<ShortCall>),
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
                UnaryState::Unsent(call) => {
                    let Some(call) = call.take() else { return Poll::Ready(Err(is_over())) };
                    match send(caller, call, cx.waker()) {
                        // The response wakes this caller.
                        Ok(sent) => {
                            *state = sent;
                            return Poll::Pending;
                        }
                        Err(call) => match call.request() {
                            Some(request) => *state = resume(caller, *time, request, None),
                            None => return Poll::Ready(Err(is_over())),
                        },
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
            if let ShortOutcome::Plain(mut data, at) = outcome {
                if let UnaryState::Sent { place, .. } = state {
                    place.answered();
                }
                // Ends the call, and frees its place for another one.
                *state = UnaryState::Done;
                data.advance(envelope::HEADER_LEN);
                note_arrival(at.into_std());
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

/// Sends a call, if a connection has room for it. Otherwise returns the call.
#[inline]
fn send<'a>(caller: &Arc<HttpCaller>, call: ShortCall, waker: &Waker) -> Result<UnaryState<'a>, ShortCall> {
    let Some(place) = caller.pool.try_acquire().filter(|place| place.connection().is_http2()) else {
        return Err(call);
    };
    // The general way refuses metadata above the limit of the server.
    if let Some(added) = call.head().added.as_deref()
        && !added.head.metadata().is_empty()
        && let Some(max) = place.connection().head_len_max()
        && call.head().method.len(caller.pool.dialer().target.authority.as_str().len()) + added.len() > max
    {
        return Err(call);
    }
    let written = place.connection().written();
    let response = place.connection().send_short(call, waker).expect("the connection is one of HTTP/2");
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
