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

use super::link::Link;

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
        let limit = whole.unwrap_or_else(|| call.opening_timeout());
        let start = Instant::now();
        let Body::One(message) = call.into_parts().1 else {
            return Err(Status::internal("the call does not have the messages of its kind"));
        };
        let message = message.into_bytes();
        let late = |_| Err(CallError::NotSent { limit }.into());
        let end = start.checked_add(limit);
        let link = match end {
            Some(end) => timeout_at(end, self.link()).await.unwrap_or_else(late)?,
            None => self.link().await?,
        };
        if !is_stream {
            let result = until(end, limit, link.unary(method, &message)).await?;
            return Ok(Answer::new(Body::from(result)));
        }
        let messages = until(end, limit, link.subscribe(method, &message)).await?;
        // The connection stays as long as the stream.
        let messages = messages.map(move |message| {
            let _ = &link;
            message
        });
        let end = whole.and_then(|limit| Some((start.checked_add(limit)?, limit)));
        let messages = match end {
            Some((end, limit)) => Streaming::new(until_end(messages.boxed(), end, limit)),
            None => Streaming::new(messages),
        };
        Ok(Answer::new(Body::Many(messages)))
    }
}

impl Caller for LinkCaller {
    fn format(&self) -> Format {
        Format::Json
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        Box::pin(self.make(call))
    }
}

/// Waits for no longer than the caller does.
async fn until<T>(
    end: Option<Instant>,
    limit: Duration,
    wait: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match end {
        Some(end) => timeout_at(end, wait).await.unwrap_or_else(|_| Err(CallError::TimedOut { limit }.into())),
        None => wait.await,
    }
}

/// Ends a stream with a status when the time is up.
fn until_end(
    messages: stream::BoxStream<'static, Result<Bytes, Status>>,
    end: Instant,
    limit: Duration,
) -> impl stream::Stream<Item = Result<Bytes, Status>> + Send + 'static {
    stream::try_unfold(messages, move |mut messages| async move {
        let next = until(Some(end), limit, async { messages.next().await.transpose() }).await?;
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
