//! Calls on one connection at a time, with reconnection.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use frpc::{
    Answer, Body, Call, CallError, Caller, ConnectError, Status, Streaming, TraceContext,
    client::{CallAttempts, CallTime, ReconnectingTransport, Redial, end_at_deadline, open, with_own_timeout},
    codec::Format,
};
use futures_util::{future::BoxFuture, stream::StreamExt};

use super::link::JsonRpcLink;

/// A function to open a connection.
pub(super) type DialFn = Box<dyn Fn() -> BoxFuture<'static, Result<JsonRpcLink, ConnectError>> + Send + Sync>;

/// A caller that uses one connection at a time.
pub(super) struct LinkCaller {
    current: Arc<CurrentLink>,
    is_secure: bool,
}

/// The connection of a channel.
struct CurrentLink {
    link: Mutex<Arc<JsonRpcLink>>,
    redial: Redial<JsonRpcLink>,
}

impl LinkCaller {
    pub(super) async fn connect(dial: DialFn, pause: Duration, is_secure: bool) -> Result<Self, ConnectError> {
        let first = dial().await?;
        let redial = Redial::new(dial, pause, first.heard());
        let current = Arc::new(CurrentLink { link: Mutex::new(Arc::new(first)), redial });
        Ok(Self { current, is_secure })
    }

    async fn make(&self, call: Call) -> Result<Answer, Status> {
        let method = call.method();
        if call.kind().has_request_stream() {
            return Err(Status::unimplemented("JSON-RPC does not support request streams: the call was not sent"));
        }
        // A trace ends here without an error.
        if let Some(name) = call.head().metadata().keys().find(|name| !TraceContext::NAMES.contains(name)) {
            return Err(CallError::MetadataNotCarried { name: name.to_owned() }.into());
        }
        let is_stream = call.kind().has_response_stream();
        let CallTime { opening, whole, .. } = call.time();
        let deadline = whole.unwrap_or(opening);
        let Body::One(message) = call.into_parts().1 else {
            return Err(Status::internal("the call needs exactly one request message"));
        };
        let message = message.into_bytes();
        if let Some(status) = self.current.current().take_mismatch() {
            return Err(status);
        }
        let mut attempts = CallAttempts::new(deadline);
        loop {
            let link = open(&self.current, deadline).await?;
            let answered = if is_stream {
                link.subscribe(method, &message, deadline).await.map(|messages| {
                    // Keep the connection open until the stream is dropped.
                    let messages = messages.map(move |message| {
                        let _ = &link;
                        message
                    });
                    Body::Many(match whole {
                        Some(whole) => Streaming::new(end_at_deadline(messages.boxed(), whole)),
                        None => Streaming::new(messages),
                    })
                })
            } else {
                link.unary(method, &message, deadline).await.map(Body::from)
            };
            match answered {
                Ok(body) => return Ok(Answer::new(body)),
                Err(status) => attempts.begin_another(with_own_timeout(status, Some(deadline))).await?,
            }
        }
    }
}

impl ReconnectingTransport for CurrentLink {
    type Connection = JsonRpcLink;

    fn redial(&self) -> Option<&Redial<JsonRpcLink>> {
        Some(&self.redial)
    }

    fn current(&self) -> Arc<JsonRpcLink> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(self: &Arc<Self>, next: Arc<JsonRpcLink>) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    fn takes_calls(link: &JsonRpcLink) -> bool {
        !link.is_over()
    }

    fn received_count(link: &JsonRpcLink) -> u64 {
        link.heard()
    }
}

impl Caller for LinkCaller {
    fn format(&self) -> Format {
        Format::Json
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        Box::pin(self.make(call))
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        let link = self.current.current();
        Box::pin(async move { link.ended().await })
    }

    fn is_secure(&self) -> bool {
        self.is_secure
    }
}
