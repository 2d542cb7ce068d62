//! Calls on one connection, which is made again when it was lost.

use std::{future::Future, io, sync::Arc, time::Duration};

use bytes::Bytes;
use frpc::{
    Address, Answer, Body, Call, CallError, Caller, ConnectError, ConnectSettings, Status, Streaming, codec::Format,
};
use futures_util::{
    future::BoxFuture,
    stream::{self, StreamExt},
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::link::{CallTime, Link};

/// Makes a connection.
pub(super) type Dial = Box<dyn Fn() -> BoxFuture<'static, Result<Link, ConnectError>> + Send + Sync>;

/// Makes calls over one connection at a time.
pub(super) struct LinkCaller {
    dial: Dial,
    link: Mutex<Arc<Link>>,
}

impl LinkCaller {
    pub(super) async fn connect(dial: Dial) -> Result<Self, ConnectError> {
        let link = Mutex::new(Arc::new(dial().await?));
        Ok(Self { dial, link })
    }

    /// Returns a connection that is not over. All calls that find one that is share the attempt to make another.
    async fn link(&self) -> Result<Arc<Link>, Status> {
        let mut link = self.link.lock().await;
        if link.is_over() {
            let made = (self.dial)().await.map_err(|error| CallError::Unreachable(Arc::new(error)))?;
            *link = Arc::new(made);
        }
        Ok(link.clone())
    }

    async fn make(&self, call: Call) -> Result<Answer, Status> {
        let method = call.method();
        if call.kind().has_request_stream() {
            return Err(Status::unimplemented("JSON-RPC carries no streams of requests: the call was not sent"));
        }
        if let Some(name) = call.head().metadata().keys().next() {
            return Err(CallError::MetadataNotCarried { name: name.to_owned() }.into());
        }
        let is_stream = call.kind().has_response_stream();
        let whole = call.head().timeout();
        let time = CallTime::start(whole.unwrap_or_else(|| call.opening_timeout()));
        let Body::One(message) = call.into_parts().1 else {
            return Err(Status::internal("the call does not have the messages of its kind"));
        };
        let message = message.into_bytes();
        let mut repeats = 0;
        loop {
            let link = time.bound(self.link()).await;
            let link = link.unwrap_or_else(|| Err(CallError::NotSent { limit: time.limit }.into()))?;
            let answered = if is_stream {
                link.subscribe(method, &message, time).await.map(|messages| {
                    // The connection stays as long as the stream.
                    let messages = messages.map(move |message| {
                        let _ = &link;
                        message
                    });
                    Body::Many(match (whole, time.end) {
                        (Some(limit), Some(end)) => Streaming::new(until_end(messages.boxed(), end, limit)),
                        _ => Streaming::new(messages),
                    })
                })
            } else {
                link.unary(method, &message, time).await.map(Body::from)
            };
            match answered {
                // Nothing of it was sent, so it cannot be executed twice.
                Err(status) if repeats < REPEATS_MAX && was_not_sent(&status) => repeats += 1,
                answered => return answered.map(Answer::new),
            }
        }
    }
}

/// Returns whether the connection was lost before a call was sent.
fn was_not_sent(status: &Status) -> bool {
    matches!(status.call_error(), Some(CallError::ConnectionLost { may_have_executed: false, .. }))
}

/// The number of connections that a call tries besides the first, if they are lost before it is sent.
const REPEATS_MAX: usize = 2;

impl Caller for LinkCaller {
    fn format(&self) -> Format {
        Format::Json
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        Box::pin(self.make(call))
    }
}

/// Ends a stream with a status when the time is up.
fn until_end(
    messages: stream::BoxStream<'static, Result<Bytes, Status>>,
    end: Instant,
    limit: Duration,
) -> impl stream::Stream<Item = Result<Bytes, Status>> + Send + 'static {
    stream::try_unfold(messages, move |mut messages| async move {
        let next = timeout_at(end, messages.next()).await.map_err(|_| CallError::TimedOut { limit })?.transpose()?;
        Ok(next.map(|message| (message, messages)))
    })
}

/// Connects, with as many attempts as there may be.
pub(super) async fn attempts<T, F>(
    url: &str,
    settings: &ConnectSettings,
    attempt: impl Fn() -> F,
) -> Result<T, ConnectError>
where
    F: Future<Output = io::Result<T>>,
{
    let mut backoff = frpc::frisbee::Backoff::new(settings.pause);
    let mut made = 0;
    loop {
        let limit = settings.connect_timeout;
        let error = match timeout(limit, attempt()).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {limit:?}")),
        };
        made += 1;
        let error = frpc::frisbee::ConnectError::new(Address::Url(url.to_owned()), made, error);
        if made >= settings.attempts || error.is_final() {
            return Err(error.into());
        }
        sleep(backoff.pause()).await;
    }
}
