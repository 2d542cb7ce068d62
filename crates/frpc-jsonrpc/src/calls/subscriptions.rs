//! Response streams of services, sent as notifications. A subscription ends with an error or with `end`:
//!
//! ```text
//!   {"jsonrpc": "2.0", "method": "shop.Prices/Watch", "params": {"subscription": "1", "result": {…}}}
//!   {"jsonrpc": "2.0", "method": "shop.Prices/Watch", "params": {"subscription": "1", "error": {…}}}     the end of a failed one
//!   {"jsonrpc": "2.0", "method": "shop.Prices/Watch", "params": {"subscription": "1", "end": true}}
//! ```

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use frpc::{Status, Streaming};
use frpc_json::text::put_string;
use futures_core::Stream;
use futures_util::{
    StreamExt,
    stream::{AbortHandle, Abortable, SelectAll},
};

use crate::{failure::put_status, outbox::MessageOutbox};

/// The subscriptions of a connection.
pub(super) struct ServerSubscriptions {
    streams: SelectAll<Abortable<SubscribedStream>>,
    by_id: HashMap<u64, ServerSubscription>,
    next: u64,
    max: usize,
}

/// The kind of notifications that a subscription sends.
#[derive(Clone)]
pub(super) struct NotificationStyle {
    method: Arc<str>,
    tell_the_end: bool,
}

struct ServerSubscription {
    notices: NotificationStyle,
    abort: AbortHandle,
}

/// Messages of a subscription with its id, followed by the end of the stream.
struct SubscribedStream {
    id: u64,
    messages: Option<Streaming<Bytes>>,
}

enum NotificationEvent {
    Message(Bytes),
    Failed(Status),
    End,
}

impl NotificationStyle {
    /// Returns the notifications for a subscription made with the method `name`.
    ///
    /// For `eth_subscribe` they are named `eth_subscription`, as Ethereum clients expect. No end is sent to them: those
    /// clients would take it for a failure and discard unread messages.
    pub(super) fn of(name: &str) -> Self {
        match name.strip_suffix("_subscribe") {
            Some(namespace) => Self { method: format!("{namespace}_subscription").into(), tell_the_end: false },
            None => Self { method: name.into(), tell_the_end: true },
        }
    }
}

impl ServerSubscriptions {
    pub(super) fn new(max: usize) -> Self {
        Self { streams: SelectAll::new(), by_id: HashMap::new(), next: 1, max }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Adds a stream and returns its id. Its messages are sent from now on.
    ///
    /// # Errors
    ///
    /// Returns [`ResourceExhausted`](frpc::Code::ResourceExhausted) if the connection has the maximum number of
    /// subscriptions.
    pub(super) fn add(&mut self, notices: NotificationStyle, messages: Streaming<Bytes>) -> Result<u64, Status> {
        if self.by_id.len() >= self.max {
            return Err(Status::resource_exhausted(format!(
                "the connection has reached the limit of {} subscriptions: end one with unsubscribe",
                self.max
            )));
        }
        let id = self.next;
        self.next += 1;
        let (abort, registration) = AbortHandle::new_pair();
        self.by_id.insert(id, ServerSubscription { notices, abort });
        self.streams.push(Abortable::new(SubscribedStream { id, messages: Some(messages) }, registration));
        Ok(id)
    }

    /// Ends a subscription and returns `true` if it existed.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        let entry = id.parse().ok().and_then(|id: u64| self.by_id.remove(&id));
        entry.map(|entry| entry.abort.abort()).is_some()
    }

    /// Ends all subscriptions, each with an error notification.
    pub(super) fn end(&mut self, outbox: &mut MessageOutbox) {
        let status = Status::unavailable("the server closes this connection");
        let mut ids: Vec<u64> = self.by_id.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            self.put(id, NotificationEvent::Failed(status.clone()), outbox);
        }
        self.clear();
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.streams.clear();
    }

    /// Polls all subscriptions and writes the next message of any of them.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, outbox: &mut MessageOutbox) -> Poll<()> {
        match self.streams.poll_next_unpin(cx) {
            Poll::Ready(Some((id, event))) => {
                self.put(id, event, outbox);
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }

    fn put(&mut self, id: u64, event: NotificationEvent, outbox: &mut MessageOutbox) {
        let entry = match &event {
            NotificationEvent::Message(_) => self.by_id.get(&id).map(|entry| entry.notices.clone()),
            NotificationEvent::Failed(_) | NotificationEvent::End => self.by_id.remove(&id).map(|entry| entry.notices),
        };
        let Some(NotificationStyle { method, tell_the_end }) = entry else { return };
        if matches!(event, NotificationEvent::End) && !tell_the_end {
            return;
        }
        let start = outbox.len();
        let out = &mut outbox.bytes;
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
        put_string(out, &method);
        out.extend_from_slice(b",\"params\":{\"subscription\":\"");
        out.extend_from_slice(id.to_string().as_bytes());
        match event {
            NotificationEvent::Message(message) => {
                out.extend_from_slice(b"\",\"result\":");
                out.extend_from_slice(&message);
            }
            NotificationEvent::Failed(status) => {
                out.extend_from_slice(b"\",\"error\":");
                put_status(out, &status);
            }
            NotificationEvent::End => out.extend_from_slice(b"\",\"end\":true"),
        }
        out.extend_from_slice(b"}}");
        outbox.end(start);
    }
}

impl Stream for SubscribedStream {
    type Item = (u64, NotificationEvent);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
        let event = match std::task::ready!(messages.poll_next_unpin(cx)) {
            Some(Ok(message)) => NotificationEvent::Message(message),
            Some(Err(status)) => NotificationEvent::Failed(status),
            None => NotificationEvent::End,
        };
        if !matches!(event, NotificationEvent::Message(_)) {
            self.messages = None;
        }
        Poll::Ready(Some((self.id, event)))
    }
}
