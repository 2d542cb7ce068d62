//! Calls to services in the same process.

use std::{mem, pin::pin, task::Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{FutureExt, StreamExt, TryStreamExt, future::OptionFuture, stream};
use tokio::{sync::oneshot, task::JoinSet, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    call::{
        deadline::{Deadline, DeadlineFuture},
        exchange::{Answer, Body, Call},
        head::Head,
        measure::CallArrival,
        method::MethodKind,
        status::{Code, Status},
        streaming::{MetadataSlot, StreamSender, Streaming},
        system::RpcSystem,
    },
    client::{caller::Caller, end_at_deadline},
    codec::Format,
    service::{
        boxed::BoxFuture,
        endpoint::{Endpoint, IntoEndpoint},
        table::Collision,
    },
};

/// Services in this process, called without a socket.
pub(crate) struct LocalCaller {
    /// The services, or the reason why no server would accept them.
    endpoint: Result<Endpoint, Collision>,
}

impl LocalCaller {
    pub(crate) fn new(services: impl IntoEndpoint) -> Self {
        Self { endpoint: Endpoint::new(services) }
    }
}

impl Caller for LocalCaller {
    fn format(&self) -> Format {
        Format::Polyglot
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        let endpoint = self.endpoint.clone();
        Box::pin(async move {
            match call.kind() {
                MethodKind::Unary | MethodKind::ClientStreaming => one(endpoint, call).await,
                MethodKind::ServerStreaming | MethodKind::Bidirectional => Ok(many(endpoint, call)),
            }
        })
    }
}

/// Makes a call with a single answer.
async fn one(endpoint: Result<Endpoint, Collision>, call: Call) -> Result<Answer, Status> {
    let (kind, time) = (call.kind(), call.time());
    // As over a wire, the channel's timeout bounds the answer to a request stream from the end of that stream.
    let deadline = if kind == MethodKind::Unary { Some(time.opening) } else { time.whole };
    let mut requests = None;
    let (call, given_up) = received(call, deadline, |contents| {
        let (sender, receiver) = Streaming::channel(REQUESTS_AHEAD);
        requests = Some((contents, sender));
        receiver
    });
    let answering = async {
        let mut handling = pin!(async {
            let answer = answered(endpoint, call).await;
            given_up.disarm();
            answer
        });
        let Some((contents, sender)) = requests else { return handling.await };
        tokio::select! {
            biased;
            answer = &mut handling => return answer,
            sent = send_all(contents, sender) => sent?,
        }
        bounded(deadline.or_else(|| Some(Deadline::after(time.opening.limit))), handling).await
    };
    Ok(bounded(deadline, answering).await?.without_extensions())
}

/// The number of requests of a stream that may be queued for the handler.
const REQUESTS_AHEAD: usize = 64;

/// Passes requests to the handler until they end. Requests that the handler no longer reads are discarded.
async fn send_all(mut contents: Streaming<Bytes>, sender: StreamSender<Bytes>) -> Result<(), Status> {
    while let Some(content) = contents.message().await? {
        let _ = sender.send(content).await;
    }
    Ok(())
}

/// Makes a call with a stream of answers.
///
/// As over a wire, this returns while the handler is running, and its error arrives with the first message.
fn many(endpoint: Result<Endpoint, Collision>, call: Call) -> Answer {
    // The channel's timeout bounds only the opening, which takes no time here.
    let deadline = call.time().whole;
    let mut failure = None;
    let (call, given_up) = received(call, deadline, |contents| {
        let (contents, failed) = watched(contents);
        failure = Some(failed);
        contents
    });
    // The handler fills the slots later.
    let (metadata, trailers) = (MetadataSlot::default(), MetadataSlot::default());
    let mut handler = JoinSet::new();
    handler.spawn(bounded(deadline, answered(endpoint, call)));
    let handled = {
        let (metadata, trailers) = (metadata.clone(), trailers.clone());
        async move {
            let joined = handler.join_next().await.expect("there is one handler");
            let answer = joined.unwrap_or_else(|error| Err(Status::internal(error.to_string())))?;
            if !answer.metadata().is_empty() {
                metadata.set(answer.metadata().clone());
            }
            match answer.into_body() {
                Body::Many(contents) => {
                    let of_handler = contents.trailers_slot();
                    // Set after the last content and before the end, so a reader at the end finds the trailers.
                    Ok(contents.map_err(without_source).chain(stream::poll_fn(move |_| {
                        if let Some(known) = of_handler.as_ref().and_then(|slot| slot.get()) {
                            trailers.set(known.clone());
                        }
                        Poll::Ready(None)
                    })))
                }
                Body::One(_) => Err(Status::internal("the handler answered with one message instead of a stream")),
            }
        }
    };
    let contents = until_failure(stream::once(handled).try_flatten(), failure, given_up);
    let contents = match deadline {
        None => Streaming::new(contents),
        Some(deadline) => Streaming::new(end_at_deadline(contents.boxed(), deadline)),
    };
    Answer::new(Body::Many(contents.with_metadata_slot(Some(metadata)).with_trailers_slot(Some(trailers))))
}

fn bounded<F>(deadline: Option<Deadline>, future: F) -> DeadlineFuture<F> {
    deadline.unwrap_or(Deadline::NEVER).bound(future)
}

/// Finds the method and runs its handler.
async fn answered(endpoint: Result<Endpoint, Collision>, call: Call) -> Result<Answer, Status> {
    let endpoint = endpoint.map_err(|collision| Status::failed_precondition(collision.to_string()))?;
    let (method, format) = (call.method(), call.format());
    let Some(found) = endpoint.find_method(method) else {
        endpoint.count_refused(None, RpcSystem::Frpc, Code::Unimplemented);
        return Err(Status::unimplemented(format!("no method {method} here")));
    };
    if call.kind() != method.kind {
        return Err(Status::unimplemented("the method is called as one of another kind"));
    }
    let (head, body) = call.into_parts();
    endpoint.begin(found, format, head, body, None, CallArrival::Now).await.map_err(without_source)
}

/// Returns the status of a handler without its source. The caller must not take it for a failure of its own side.
fn without_source(status: Status) -> Status {
    let details = Bytes::copy_from_slice(status.details());
    Status::with_details_and_metadata(status.code(), status.message(), details, status.metadata().clone())
}

/// Turns the caller's call into the handler's call, and passes its request stream through `requests`.
///
/// Dropping the returned guard tells the handler that the caller has given up.
fn received(
    call: Call,
    deadline: Option<Deadline>,
    requests: impl FnOnce(Streaming<Bytes>) -> Streaming<Bytes>,
) -> (Call, DropGuard) {
    let (method, kind, format) = (call.method(), call.kind(), call.format());
    let (mut sent, body) = call.into_parts();
    let at = deadline.and_then(|deadline| deadline.at).map(Instant::into_std);
    let mut head = Head::received(None, at);
    if !sent.metadata().is_empty() {
        *head.metadata_mut() = mem::take(sent.metadata_mut());
    }
    let token = CancellationToken::new();
    head.set_cancellation(token.clone());
    let body = match body {
        Body::Many(contents) => Body::Many(requests(contents)),
        body => body,
    };
    (Call::new(method, format, head, body).with_kind(kind), token.drop_guard())
}

/// Returns the requests of a call, and a receiver for their failure.
///
/// As over a wire, a failed request stream ends the call even if the handler ignores it.
fn watched(contents: Streaming<Bytes>) -> (Streaming<Bytes>, oneshot::Receiver<Status>) {
    let (sender, failure) = oneshot::channel();
    let mut sender = Some(sender);
    let contents = contents.inspect_err(move |status| {
        if let Some(sender) = sender.take() {
            // The receiver is gone if the call is over.
            let _ = sender.send(status.clone());
        }
    });
    (Streaming::new(contents), failure)
}

/// Ends a response stream early if the request stream fails. Cancels the handler unless it has ended.
fn until_failure(
    contents: impl Stream<Item = Result<Bytes, Status>> + Send + 'static,
    failure: Option<oneshot::Receiver<Status>>,
    given_up: DropGuard,
) -> impl Stream<Item = Result<Bytes, Status>> + Send + 'static {
    let mut call = Some((Box::pin(contents), given_up));
    let mut failure = OptionFuture::from(failure).fuse();
    stream::poll_fn(move |cx| {
        let Some((contents, _)) = &mut call else { return Poll::Ready(None) };
        let next = contents.poll_next_unpin(cx);
        if let Poll::Ready(Some(Ok(status))) = failure.poll_unpin(cx) {
            call = None;
            return Poll::Ready(Some(Err(status)));
        }
        let is_over = match &next {
            Poll::Ready(None) => true,
            // A status with a call error comes from the deadline: the caller gives up, so the handler must be
            // cancelled.
            Poll::Ready(Some(Err(status))) => status.call_error().is_none(),
            _ => false,
        };
        if is_over && let Some((_, given_up)) = call.take() {
            given_up.disarm();
        }
        next
    })
}
