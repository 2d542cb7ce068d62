//! Publications, requests and subscriptions over a session with a broker.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use frisbee::{Connection, Content, Packet, PacketName, Reconnecting, SendError, SendPosition, TrySendError};
use tokio::{sync::oneshot, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Backend, BackendFuture, EventSource, Message, Publication, PublishError, RequestError, SubscribeError,
    SubscribeOptions, Subscription, SubscriptionEnd, SubscriptionEvent, TryPublishError,
    remote::{
        feed::{EventFeed, cost},
        session::{ClientSession, MessageSink, NotReady},
    },
    wire::{ACKNOWLEDGE, MESSAGE_COST, PacketKind, VERSION, publication_flags, write_publish},
};

/// A backend for brokers on frisbee.
#[derive(Clone, Debug)]
pub(super) struct FrisbeeBackend {
    pub(super) session: Arc<ClientSession>,
    pub(super) wait_max: Duration,
    pub(super) answer_max: Duration,
    pub(super) keeper: ConnectionKeeper,
}

impl FrisbeeBackend {
    /// Sends a publication if credit and outbox allow it now.
    fn send_now(
        &self,
        connection: &Connection,
        id: u16,
        flags: u8,
        publication: &Publication<'_>,
    ) -> Result<SendPosition, NotReady> {
        let session = &self.session;
        if session.credit.load(Ordering::Relaxed) <= 0 {
            return Err(NotReady::Wait);
        }
        let name = PacketName { id, operation: session.base.operation(PacketKind::Publish) };
        let Publication { subject, reply, payload, .. } = publication;
        let flags = flags | publication_flags(publication);
        let (sent, len) = if payload.len() < COPIED_LEN_MAX {
            BUFFER.with_borrow_mut(|buffer| {
                buffer.clear();
                write_publish(flags, subject, *reply, buffer);
                buffer.extend_from_slice(payload);
                (connection.try_send_copied(name, buffer), buffer.len())
            })
        } else {
            let mut head = Vec::new();
            write_publish(flags, subject, *reply, &mut head);
            let content = Content::from(vec![head.into(), payload.clone()]);
            let len = content.len();
            let sent = connection.try_send(Packet::new(id, name.operation, content));
            (
                sent.map_err(|error| match error {
                    TrySendError::Full(_) => TrySendError::Full(()),
                    TrySendError::Failed(error) => TrySendError::Failed(error),
                }),
                len,
            )
        };
        match sent {
            Ok(sent) => {
                let cost = i64::try_from(len + MESSAGE_COST).unwrap_or(i64::MAX);
                session.credit.fetch_sub(cost, Ordering::Relaxed);
                // With an id, the caller waits for the acknowledgement and learns about a refusal.
                if id == 0 {
                    session.note_published();
                }
                Ok(sent)
            }
            // After a lost connection, either another one follows or the session ends. Both wake the caller.
            Err(TrySendError::Full(()) | TrySendError::Failed(SendError::Closed)) => Err(NotReady::Wait),
            Err(TrySendError::Failed(
                SendError::ContentTooLarge { len, limit } | SendError::TooLargeForPeer { len, limit },
            )) => Err(NotReady::Failed(PublishError::TooLarge { len, limit: limit as usize })),
            Err(TrySendError::Failed(error)) => Err(NotReady::Failed(PublishError::Backend(Arc::new(error)))),
        }
    }

    /// Repeats an attempt until it succeeds or fails. Waits at most `wait_max` for a connection.
    async fn retry_until_ready<T>(&self, mut attempt: impl FnMut() -> Result<T, NotReady>) -> Result<T, PublishError> {
        let possible = async {
            loop {
                let mut changed = pin!(self.session.changed.notified());
                // Register before the attempt. A change right after the attempt would not wake this task otherwise.
                changed.as_mut().enable();
                match attempt() {
                    Ok(done) => return Ok(done),
                    Err(NotReady::Failed(error)) => return Err(error),
                    Err(NotReady::Wait) => changed.await,
                }
            }
        };
        let mut possible = pin!(possible);
        loop {
            // The limit applies only without a connection. An existing connection eventually grants credit or ends.
            match timeout(self.wait_max, &mut possible).await {
                Ok(result) => return result,
                Err(_) if self.session.connection().is_ok() => {}
                Err(_) => return Err(PublishError::NotConnected),
            }
        }
    }

    async fn acknowledged(&self, publication: &Publication<'_>) -> Result<u32, PublishError> {
        let answer = self
            .retry_until_ready(|| {
                self.session
                    .await_acknowledgement(|connection, id| self.send_now(connection, id, ACKNOWLEDGE, publication))
            })
            .await?;
        self.answered(answer).await
    }

    /// Waits for the answer to a sent packet, at most `answer_max`.
    async fn answered(&self, answer: oneshot::Receiver<Result<u32, PublishError>>) -> Result<u32, PublishError> {
        match timeout(self.answer_max, answer).await {
            Ok(answer) => answer.unwrap_or(Err(PublishError::Lost { may_have_left: true })),
            Err(_) => Err(PublishError::NoAnswer { limit: self.answer_max }),
        }
    }

    /// Waits until the broker has processed all earlier packets. It answers in order, so the answer to another HELLO
    /// proves that.
    async fn round_trip(&self) -> Result<(), PublishError> {
        let hello = |connection: &Connection, id| {
            let packet = Packet::new(id, self.session.base.operation(PacketKind::Hello), vec![VERSION]);
            connection.try_send(packet).map_err(|error| match error {
                TrySendError::Full(_) | TrySendError::Failed(SendError::Closed) => NotReady::Wait,
                TrySendError::Failed(error) => NotReady::Failed(PublishError::Backend(Arc::new(error))),
            })
        };
        let answer = self.retry_until_ready(|| self.session.await_acknowledgement(hello)).await?;
        self.answered(answer).await.map(drop)
    }

    async fn request_reply(&self, request: Publication<'_>) -> Result<Message, RequestError> {
        self.session.replies_ready().await.map_err(RequestError::Subscribe)?;
        let (number, answer) = self.session.replies.register_request();
        // Unregisters the request if this call is dropped or times out.
        let _awaited = PendingRequest { session: &self.session, number };
        let reply = format!("{}{number}", self.session.replies.prefix);
        if self.acknowledged(&request.reply(&reply)).await? == 0 {
            return Err(RequestError::NoResponders);
        }
        answer.await.map_err(|_| PublishError::Lost { may_have_left: true }.into())
    }
}

/// Keeps the connection open while a client or a subscription refers to it.
#[derive(Clone)]
pub(super) enum ConnectionKeeper {
    /// The owner of the connection keeps it open.
    Others,
    Task {
        _ends_with_this: Arc<AbortOnDropHandle<()>>,
    },
    Link(Reconnecting),
}

impl fmt::Debug for ConnectionKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

/// A pending request. Dropping it stops waiting for the answer.
struct PendingRequest<'a> {
    session: &'a ClientSession,
    number: u64,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.session.replies.unregister_request(self.number);
    }
}

impl Backend for FrisbeeBackend {
    fn try_publish(&self, publication: Publication<'_>) -> Result<(), TryPublishError> {
        let sent = self.session.connection().and_then(|connection| self.send_now(&connection, 0, 0, &publication));
        match sent {
            Ok(_) => Ok(()),
            Err(NotReady::Wait) => Err(TryPublishError::Full(publication.payload)),
            Err(NotReady::Failed(error)) => Err(TryPublishError::Failed(error)),
        }
    }

    fn publish<'a>(&'a self, publication: Publication<'a>) -> BackendFuture<'a, Result<(), PublishError>> {
        Box::pin(async move {
            let send = || self.send_now(&self.session.connection()?, 0, 0, &publication);
            self.retry_until_ready(send).await.map(|_| ())
        })
    }

    fn publish_acknowledged<'a>(
        &'a self,
        publication: Publication<'a>,
    ) -> BackendFuture<'a, Result<Option<u32>, PublishError>> {
        Box::pin(async move { self.acknowledged(&publication).await.map(Some) })
    }

    fn request<'a>(
        &'a self,
        request: Publication<'a>,
        limit: Duration,
    ) -> BackendFuture<'a, Result<Message, RequestError>> {
        Box::pin(
            async move { timeout(limit, self.request_reply(request)).await.unwrap_or(Err(RequestError::TimedOut)) },
        )
    }

    fn subscribe(&self, options: SubscribeOptions) -> BackendFuture<'_, Result<Subscription, SubscribeError>> {
        Box::pin(async move {
            let feed = Arc::new(EventFeed::new(options.window));
            let (key, answer) = self.session.subscribe(options, MessageSink::Feed(feed.clone()))?;
            // Create the reader before awaiting the answer. Dropping the call then drops the reader and unsubscribes.
            let reader = FeedReader { backend: self.clone(), key, feed, events: VecDeque::new(), owed: 0 };
            let limit = self.answer_max;
            let answered = timeout(limit, answer).await.map_err(|_| SubscribeError::NoAnswer { limit })?;
            answered.unwrap_or(Err(SubscribeError::Lost))?;
            Ok(Subscription::new(Box::new(reader)))
        })
    }

    fn flush(&self) -> BackendFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let session = &self.session;
            let settled = match (session.connection(), session.unsettled()) {
                (Err(NotReady::Failed(error)), _) => Err(error),
                (Err(NotReady::Wait), _) => Err(PublishError::NotConnected),
                (Ok(_), None) => Ok(()),
                (Ok(_), Some(published)) => self.round_trip().await.map(|()| session.settle(published)),
            };
            // An earlier failure takes precedence over one of this round trip.
            session.take_failure().map_or(settled, Err)
        })
    }

    fn close(&self) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            let connection = self.session.connection();
            // Before the end of the link, which would end the session as lost.
            self.session.close(SubscriptionEnd::Closed);
            if let ConnectionKeeper::Link(link) = &self.keeper {
                link.close();
            }
            if let (Ok(connection), ConnectionKeeper::Link(_) | ConnectionKeeper::Task { .. }) =
                (connection, &self.keeper)
            {
                connection.closed().await;
            }
        })
    }
}

/// Receiving end of a subscription, polled by the subscriber's task.
struct FeedReader {
    backend: FrisbeeBackend,
    key: u16,
    feed: Arc<EventFeed>,
    /// Events taken from the feed, but not by the subscriber yet.
    events: VecDeque<SubscriptionEvent>,
    /// Cost of messages taken by the subscriber and not returned to the broker as credit yet.
    owed: usize,
}

impl EventSource for FeedReader {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<SubscriptionEvent, SubscriptionEnd>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                match &event {
                    SubscriptionEvent::Message(message) => self.owed += cost(message),
                    // The new subscription starts with a full window.
                    SubscriptionEvent::Reconnected => self.owed = 0,
                    SubscriptionEvent::Missing(_) => {}
                }
                // Return credit for half a window at a time, to save packets.
                if self.owed * 2 >= self.feed.window() as usize && self.owed > 0 {
                    self.backend.session.give_credit(self.key, std::mem::take(&mut self.owed));
                }
                return Poll::Ready(Ok(event));
            }
            ready!(self.feed.poll_take(cx, &mut self.events))?;
        }
    }
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        self.backend.session.unsubscribe(self.key);
    }
}

thread_local! {
    /// Scratch space for encoding small publications.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Larger payloads are sent without a copy.
const COPIED_LEN_MAX: usize = 4096;
