//! Calls to services in the same process.

use std::{mem, task::Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::{sync::oneshot, task::JoinSet, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::caller::Caller;
use crate::{
    call::{
        deadline::Deadline,
        exchange::{Answer, Body, Call},
        head::Head,
        method::MethodKind,
        status::Status,
        streaming::{MetadataSlot, Streaming},
    },
    codec::Format,
    service::{
        boxed::BoxFuture,
        endpoint::{Endpoint, IntoEndpoint},
        table::Collision,
    },
};

/// Services in this process, called without a wire.
pub(crate) struct Local {
    /// Or why no server would serve them.
    endpoint: Result<Endpoint, Collision>,
}

impl Local {
    pub(crate) fn new(services: impl IntoEndpoint) -> Self {
        Self { endpoint: Endpoint::new(services) }
    }
}

impl Caller for Local {
    fn format(&self) -> Format {
        Format::Polyglot
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        let endpoint = self.endpoint.clone();
        Box::pin(async move {
            let time = call.time();
            match call.method().kind {
                // The channel's timeout bounds only the opening of other calls, for which nobody waits here.
                MethodKind::Unary => one(endpoint, call, Some(time.opening)).await,
                MethodKind::ClientStreaming => one(endpoint, call, time.whole).await,
                MethodKind::ServerStreaming | MethodKind::Bidirectional => Ok(many(endpoint, call, time.whole)),
            }
        })
    }
}

/// Makes a call that one message answers.
async fn one(endpoint: Result<Endpoint, Collision>, call: Call, deadline: Option<Deadline>) -> Result<Answer, Status> {
    let (call, mut failure, given_up) = received(call, deadline);
    let answer = tokio::select! {
        biased;
        answer = answered(endpoint, call, deadline) => match failure.try_recv() {
            Ok(status) => Err(status),
            Err(_) => answer,
        },
        Ok(status) = &mut failure => Err(status),
    };
    let answer = answer?;
    given_up.disarm();
    Ok(answer.without_extensions())
}

/// Makes a call that a stream answers. As over a wire, the handler is under way when this returns, and its refusal comes
/// with the first message.
fn many(endpoint: Result<Endpoint, Collision>, call: Call, deadline: Option<Deadline>) -> Answer {
    let (call, failure, given_up) = received(call, deadline);
    // The handler fills them later.
    let (metadata, trailers) = (MetadataSlot::default(), MetadataSlot::default());
    let mut handler = JoinSet::new();
    handler.spawn(answered(endpoint, call, deadline));
    let handled = {
        let (metadata, trailers) = (metadata.clone(), trailers.clone());
        async move {
            let joined = handler.join_next().await.expect("there is one handler");
            let answer = joined.unwrap_or_else(|error| Err(Status::internal(error.to_string())))?;
            if !answer.metadata().is_empty() {
                let _ = metadata.set(answer.metadata().clone());
            }
            match answer.into_body() {
                Body::Many(contents) => {
                    let of_handler = contents.trailers_slot();
                    // Behind the last content, and in front of the end.
                    Ok(contents.chain(stream::poll_fn(move |_| {
                        if let Some(known) = of_handler.as_ref().and_then(|slot| slot.get()) {
                            let _ = trailers.set(known.clone());
                        }
                        Poll::Ready(None)
                    })))
                }
                Body::One(_) => Err(Status::internal("the handler answered with one message")),
            }
        }
    };
    let contents = until_failure(stream::once(handled).try_flatten(), failure, given_up);
    let contents = match deadline {
        None => Streaming::new(contents),
        Some(deadline) => Streaming::new(stream::try_unfold(Box::pin(contents), move |mut contents| async move {
            let next = deadline.bound(contents.try_next()).await?;
            Ok(next.map(|content| (content, contents)))
        })),
    };
    Answer::new(Body::Many(contents.with_metadata_slot(Some(metadata)).with_trailers_slot(Some(trailers))))
}

/// Finds the method and has it answer.
async fn answered(
    endpoint: Result<Endpoint, Collision>,
    call: Call,
    deadline: Option<Deadline>,
) -> Result<Answer, Status> {
    let endpoint = endpoint.map_err(|collision| Status::failed_precondition(collision.to_string()))?;
    let (method, format) = (call.method(), call.format());
    let Some(found) = endpoint.find_operation(method.operation).filter(|found| found.method() == method) else {
        return Err(Status::unimplemented(format!("no method {method} here")));
    };
    let (head, body) = call.into_parts();
    let answer = endpoint.call(found, format, head, body);
    match deadline {
        Some(deadline) => deadline.bound(answer).await,
        None => answer.await,
    }
}

/// Turns the call of the caller into the one of the handler. Returns also the failure that the requests may end with, and
/// what tells the handler if the caller gives up.
fn received(call: Call, deadline: Option<Deadline>) -> (Call, oneshot::Receiver<Status>, DropGuard) {
    let (method, format) = (call.method(), call.format());
    let (mut sent, body) = call.into_parts();
    let at = deadline.and_then(|deadline| deadline.at).map(Instant::into_std);
    let mut head = Head::received(None, at);
    if !sent.metadata().is_empty() {
        *head.metadata_mut() = mem::take(sent.metadata_mut());
    }
    let token = CancellationToken::new();
    head.set_cancellation(token.clone());
    let (body, failure) = watched(body);
    (Call::new(method, format, head, body), failure, token.drop_guard())
}

/// Returns the requests of a call, and their failure if there will be one. As over a wire, it ends the call whatever the
/// handler makes of it.
fn watched(body: Body) -> (Body, oneshot::Receiver<Status>) {
    let (sender, failure) = oneshot::channel();
    let body = match body {
        Body::Many(contents) => {
            let mut sender = Some(sender);
            Body::Many(Streaming::new(contents.inspect_err(move |status| {
                if let Some(sender) = sender.take() {
                    // A call that is over does not fail any more.
                    let _ = sender.send(status.clone());
                }
            })))
        }
        body => body,
    };
    (body, failure)
}

fn until_failure(
    contents: impl Stream<Item = Result<Bytes, Status>> + Send + 'static,
    failure: oneshot::Receiver<Status>,
    given_up: DropGuard,
) -> impl Stream<Item = Result<Bytes, Status>> + Send + 'static {
    let mut contents = Some(Box::pin(contents));
    let mut failure = failure.fuse();
    let mut given_up = Some(given_up);
    stream::poll_fn(move |cx| {
        let Some(answers) = &mut contents else { return Poll::Ready(None) };
        let next = answers.poll_next_unpin(cx);
        match failure.poll_unpin(cx) {
            Poll::Ready(Ok(status)) => {
                contents = None;
                Poll::Ready(Some(Err(status)))
            }
            _ => {
                if let Poll::Ready(None) = next {
                    given_up.take().map(DropGuard::disarm);
                }
                next
            }
        }
    })
}
