//! A client's state across connections to a broker: subscriptions, pending acknowledgements and credit.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use frisbee::{Connection, Packet, SendPosition, TrySendError};
use tokio::sync::{Notify, oneshot, watch};
use tracing::warn;

use crate::{
    Message, Pattern, Policy, PublishError, Refusal, SubscribeError, SubscribeOptions, SubscriptionEnd,
    SubscriptionEvent,
    lock::{lock, take},
    remote::feed::EventFeed,
    sync::Mutex,
    wire::{MalformedPacket, OperationBase, PacketKind, SubscribePacket, VERSION, write_credit},
};

/// The client side of the protocol, independent of how connections are established.
#[derive(Debug)]
pub(super) struct ClientSession {
    pub(super) base: OperationBase,
    connections: ConnectionOwnership,
    link: Mutex<SessionLink>,
    sinks: Mutex<MessageSinks>,
    /// Bytes the client may still publish before the broker grants more.
    pub(super) credit: AtomicI64,
    unacknowledged: UnacknowledgedMessages,
    /// Notified when a blocked publication may be possible.
    pub(super) changed: Notify,
    pub(super) replies: PendingReplies,
}

/// Messages published without an acknowledgement.
#[derive(Debug, Default)]
struct UnacknowledgedMessages {
    published: AtomicU64,
    /// Number of these messages whose outcome is settled, counted from the first. The broker reports nothing more about
    /// them.
    settled: AtomicU64,
    /// First failure not returned by `flush` yet.
    failure: Mutex<Option<PublishError>>,
}

/// Ownership of the session's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionOwnership {
    /// A single connection, owned by the session.
    One,
    /// A sequence of connections, owned by the session.
    Several,
    /// Connections owned and also used by other code.
    Foreign,
}

/// Subscriptions on the current connection, by the numbers its broker assigned. Messages from other connections are
/// ignored, because both the old and the new connection may carry them during a switch.
#[derive(Debug, Default)]
struct MessageSinks {
    connection: Option<Connection>,
    by_number: HashMap<u32, MessageSink>,
}

/// The connection, with all state tied to it.
#[derive(Debug)]
struct SessionLink {
    state: LinkState,
    /// Packets waiting for room in the outbox. Publications are not among them.
    unsent: VecDeque<Packet>,
    subscriptions: HashMap<u16, SubscriptionEntry>,
    /// Used slots per pattern, for subscriptions outside of groups.
    slots: HashMap<Pattern, HashSet<u8>>,
    last_key: u16,
    acknowledgements: HashMap<u16, PendingAcknowledgement>,
    last_id: u16,
}

/// ```text
///   Down ──opened──▶ Greeting ──WELCOME──▶ Up
///     ▲────── connection ended ──┴──────────┘      and from each to Closed
/// ```
#[derive(Debug)]
enum LinkState {
    Down,
    Greeting(Connection),
    Up(Connection),
    Closed,
}

/// A subscription requested on this side.
#[derive(Debug)]
struct SubscriptionEntry {
    options: SubscribeOptions,
    slot: u8,
    sink: MessageSink,
    /// Number on the current connection. `None` until the broker has answered.
    number: Option<u32>,
    /// Notified of the broker's first answer.
    made: Option<oneshot::Sender<Result<(), SubscribeError>>>,
    /// Set if the subscription was dropped before the broker's answer. It ends as soon as the answer arrives.
    is_abandoned: bool,
}

/// Destination of a subscription's messages.
#[derive(Clone, Debug)]
pub(super) enum MessageSink {
    Feed(Arc<EventFeed>),
    Replies,
}

#[derive(Debug)]
struct PendingAcknowledgement {
    connection: Connection,
    sent: SendPosition,
    told: oneshot::Sender<Result<u32, PublishError>>,
}

/// Pending requests. All their answers arrive under subjects of this client.
#[derive(Debug)]
pub(super) struct PendingReplies {
    /// Common prefix of these subjects, with a final dot.
    pub(super) prefix: String,
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Message>>>,
    subscription: watch::Sender<ReplySubscription>,
}

/// State of the subscription to answers. All requests share it, so it survives a dropped first request.
#[derive(Clone, Debug)]
enum ReplySubscription {
    /// No subscription was requested yet, or it failed or ended. Contains the error, if any.
    Missing(Option<SubscribeError>),
    Asked,
    Ready,
}

/// Reason why a publication is not possible now.
pub(super) enum NotReady {
    /// A later change may make it possible.
    Wait,
    Failed(PublishError),
}

impl ClientSession {
    pub(super) fn new(base: OperationBase, connections: ConnectionOwnership) -> Arc<Self> {
        let link = SessionLink {
            state: LinkState::Down,
            unsent: VecDeque::new(),
            subscriptions: HashMap::new(),
            slots: HashMap::new(),
            last_key: 0,
            acknowledgements: HashMap::new(),
            last_id: 0,
        };
        Arc::new(Self {
            base,
            connections,
            link: Mutex::new(link),
            sinks: Mutex::default(),
            credit: AtomicI64::new(0),
            unacknowledged: UnacknowledgedMessages::default(),
            changed: Notify::new(),
            replies: PendingReplies::new(),
        })
    }

    /// Starts the handshake on a new connection and replaces the previous one.
    pub(super) fn start_handshake(&self, connection: &Connection) {
        let mut link = lock(&self.link);
        if matches!(link.state, LinkState::Closed) {
            return;
        }
        link.begin(LinkState::Greeting(connection.clone()));
        *lock(&self.sinks) = MessageSinks { connection: Some(connection.clone()), by_number: HashMap::new() };
        link.send(Packet::new(0, self.base.operation(PacketKind::Hello), vec![VERSION]));
    }

    /// Completes the handshake and requests all subscriptions again.
    pub(super) fn complete_handshake(&self, connection: &Connection, window: u32) {
        let mut link = lock(&self.link);
        match &link.state {
            LinkState::Greeting(current) if current == connection => {}
            _ => return,
        }
        link.state = LinkState::Up(connection.clone());
        // Replace the credit left from the previous connection.
        self.credit.store(i64::from(window), Ordering::Relaxed);
        let keys: Vec<u16> = link.subscriptions.keys().copied().collect();
        for key in keys {
            self.send_subscribe(&mut link, key);
        }
        drop(link);
        self.changed.notify_waiters();
    }

    /// Adds credit for publishing on the current connection.
    pub(super) fn allow(&self, connection: &Connection, bytes: u32) {
        if lock(&self.link).is_current(connection) {
            self.credit.fetch_add(i64::from(bytes), Ordering::Relaxed);
            self.changed.notify_waiters();
        }
    }

    /// Handles the end of a connection. Fails everything waiting for its broker.
    pub(super) fn handle_disconnect(&self, connection: &Connection) {
        let mut link = lock(&self.link);
        let is_current = link.is_current(connection);
        if is_current {
            link.begin(LinkState::Down);
            *lock(&self.sinks) = MessageSinks::default();
            self.unacknowledged.mark_lost();
        }
        // `start_handshake` may have replaced the connection already, so take only the acknowledgements of this one.
        let on_it = |_: &u16, waiting: &mut PendingAcknowledgement| waiting.connection == *connection;
        let acknowledgements: Vec<_> = link.acknowledgements.extract_if(on_it).collect();
        drop(link);
        for (_, PendingAcknowledgement { sent, told, .. }) in acknowledgements {
            // The receiver may have been dropped.
            let _ = told.send(Err(PublishError::Lost { may_have_left: connection.may_have_left(sent) }));
        }
        if !is_current {
            return;
        }
        self.replies.drop_requests();
        if self.connections == ConnectionOwnership::One {
            self.close(SubscriptionEnd::Lost);
        } else {
            self.changed.notify_waiters();
        }
    }

    /// Closes the session and ends all subscriptions with the given reason.
    pub(super) fn close(&self, end: SubscriptionEnd) {
        let mut link = lock(&self.link);
        if matches!(link.state, LinkState::Closed) {
            return;
        }
        // The connection stays open for its owner, so end the subscriptions one by one.
        if self.connections == ConnectionOwnership::Foreign {
            let numbers: Vec<_> = link.subscriptions.values().filter_map(|entry| entry.number).collect();
            for number in numbers {
                link.send(self.unsubscribe_packet(number));
            }
        }
        let state = std::mem::replace(&mut link.state, LinkState::Closed);
        let entries = std::mem::take(&mut link.subscriptions);
        let acknowledgements = std::mem::take(&mut link.acknowledgements);
        drop(link);
        *lock(&self.sinks) = MessageSinks::default();
        self.replies.drop_requests();
        let is_lost = matches!(end, SubscriptionEnd::Lost);
        let error = if is_lost { SubscribeError::Lost } else { SubscribeError::Closed };
        for SubscriptionEntry { sink, made, .. } in entries.into_values() {
            if let MessageSink::Feed(feed) = sink {
                feed.end(end.clone());
            }
            if let Some(made) = made {
                let _ = made.send(Err(error.clone()));
            }
        }
        self.replies.set_subscription(ReplySubscription::Missing(Some(error)));
        for PendingAcknowledgement { connection, sent, told } in acknowledgements.into_values() {
            let _ = told.send(Err(PublishError::Lost { may_have_left: connection.may_have_left(sent) }));
        }
        self.changed.notify_waiters();
        if let LinkState::Greeting(connection) | LinkState::Up(connection) = state
            && self.connections != ConnectionOwnership::Foreign
        {
            connection.close();
        }
    }

    /// Returns the current connection, after its handshake.
    pub(super) fn connection(&self) -> Result<Connection, NotReady> {
        match &lock(&self.link).state {
            LinkState::Up(connection) => Ok(connection.clone()),
            LinkState::Down | LinkState::Greeting(_) => Err(NotReady::Wait),
            LinkState::Closed => Err(NotReady::Failed(PublishError::Closed)),
        }
    }

    /// Adds a subscription. Returns its key, used as id in packets and by `unsubscribe`.
    pub(super) fn subscribe(
        &self,
        options: SubscribeOptions,
        sink: MessageSink,
    ) -> Result<(u16, oneshot::Receiver<Result<(), SubscribeError>>), SubscribeError> {
        let mut link = lock(&self.link);
        if matches!(link.state, LinkState::Closed) {
            return Err(SubscribeError::Closed);
        }
        if link.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return Err(SubscribeError::TooMany { limit: SUBSCRIPTIONS_MAX });
        }
        let mut slot = 0;
        if options.group.is_none() {
            let taken = link.slots.entry(options.pattern.clone()).or_default();
            // Subscriptions with the same pattern need distinct slots.
            let Some(free) = (0..=u8::MAX).find(|slot| !taken.contains(slot)) else {
                return Err(SubscribeError::TooMany { limit: usize::from(u8::MAX) + 1 });
            };
            taken.insert(free);
            slot = free;
        }
        let (made, answer) = oneshot::channel();
        loop {
            link.last_key = link.last_key.wrapping_add(1);
            if !link.subscriptions.contains_key(&link.last_key) {
                break;
            }
        }
        let key = link.last_key;
        let entry = SubscriptionEntry { options, slot, sink, number: None, made: Some(made), is_abandoned: false };
        link.subscriptions.insert(key, entry);
        if matches!(link.state, LinkState::Up(_)) {
            self.send_subscribe(&mut link, key);
        }
        Ok((key, answer))
    }

    /// Removes a subscription, after the broker's answer if that is still pending.
    pub(super) fn unsubscribe(&self, key: u16) {
        let mut link = lock(&self.link);
        let is_up = matches!(link.state, LinkState::Up(_));
        let Some(entry) = link.subscriptions.get_mut(&key) else { return };
        match entry.number {
            // The SUBSCRIBE is in flight. Only its answer brings the number needed to unsubscribe.
            None if is_up => entry.is_abandoned = true,
            number => {
                let removed = link.remove(key);
                if let Some(number) = number {
                    lock(&self.sinks).by_number.remove(&number);
                    link.send(self.unsubscribe_packet(number));
                }
                drop(link);
                drop(removed);
            }
        }
    }

    /// Stores the number assigned by the broker and completes the subscription.
    pub(super) fn subscribed(&self, connection: &Connection, key: u16, number: u32) -> Result<(), MalformedPacket> {
        let mut link = lock(&self.link);
        if !link.is_current(connection) {
            return Ok(());
        }
        let Some(entry) = link.unanswered(key)? else { return Ok(()) };
        if lock(&self.sinks).by_number.contains_key(&number) {
            return Err(MalformedPacket("two subscriptions have the same number"));
        }
        if entry.is_abandoned {
            link.remove(key);
            link.send(self.unsubscribe_packet(number));
            return Ok(());
        }
        entry.number = Some(number);
        let (sink, made) = (entry.sink.clone(), entry.made.take());
        // Insert while the link is locked, so a concurrent `unsubscribe` or `close` finds the number.
        lock(&self.sinks).by_number.insert(number, sink.clone());
        drop(link);
        match (made, sink) {
            (_, MessageSink::Replies) => self.replies.set_subscription(ReplySubscription::Ready),
            (Some(made), MessageSink::Feed(_)) => {
                let _ = made.send(Ok(()));
            }
            // An earlier answer has used up `made`, so this one follows a reconnection.
            (None, MessageSink::Feed(feed)) => feed.push_event(SubscriptionEvent::Reconnected),
        }
        Ok(())
    }

    /// Removes a subscription refused by the broker.
    pub(super) fn handle_refusal(
        &self,
        connection: &Connection,
        key: u16,
        refusal: Refusal,
    ) -> Result<(), MalformedPacket> {
        let mut link = lock(&self.link);
        if !link.is_current(connection) {
            return Ok(());
        }
        link.unanswered(key)?;
        let Some(entry) = link.remove(key) else { return Ok(()) };
        drop(link);
        match (entry.made, entry.sink) {
            (_, MessageSink::Replies) => {
                let error = SubscribeError::Refused(refusal);
                self.replies.set_subscription(ReplySubscription::Missing(Some(error)));
            }
            (Some(made), MessageSink::Feed(_)) => {
                let _ = made.send(Err(SubscribeError::Refused(refusal)));
            }
            (None, MessageSink::Feed(feed)) => feed.end(SubscriptionEnd::Refused(refusal)),
        }
        Ok(())
    }

    /// Removes a subscription ended by the broker.
    pub(super) fn handle_subscription_end(&self, connection: &Connection, number: u32, end: SubscriptionEnd) {
        // Release the sinks before taking the link, because `start_handshake` and others lock them in the opposite order.
        let Some(sink) = lock(&self.sinks).remove(connection, number) else { return };
        let mut link = lock(&self.link);
        let key = link.subscriptions.iter().find(|(_, entry)| entry.number == Some(number)).map(|(key, _)| *key);
        let removed = key.and_then(|key| link.remove(key));
        drop(link);
        drop(removed);
        match sink {
            MessageSink::Feed(feed) => feed.end(end),
            // The next request subscribes again.
            MessageSink::Replies => self.replies.set_subscription(ReplySubscription::Missing(None)),
        }
    }

    /// Waits until the client is subscribed to its answers. The first request starts that subscription.
    pub(super) async fn replies_ready(&self) -> Result<(), SubscribeError> {
        if matches!(*self.replies.subscription.borrow(), ReplySubscription::Ready) {
            return Ok(());
        }
        // Subscribe to the state before changing it, so the answer cannot be missed.
        let mut states = self.replies.subscription.subscribe();
        let is_first = self.replies.subscription.send_if_modified(|state| {
            let is_missing = matches!(state, ReplySubscription::Missing(_));
            if is_missing {
                *state = ReplySubscription::Asked;
            }
            is_missing
        });
        if is_first && let Err(error) = self.subscribe(self.replies.options(), MessageSink::Replies) {
            self.replies.set_subscription(ReplySubscription::Missing(Some(error)));
        }
        loop {
            match &*states.borrow_and_update() {
                ReplySubscription::Ready => return Ok(()),
                ReplySubscription::Missing(error) => return Err(error.clone().unwrap_or(SubscribeError::Lost)),
                ReplySubscription::Asked => {}
            }
            // The sender is part of `self`, so it cannot be dropped while this call waits.
            let _ = states.changed().await;
        }
    }

    /// Returns the destination of a subscription's messages.
    pub(super) fn sink(&self, connection: &Connection, number: u32) -> Option<MessageSink> {
        let sinks = lock(&self.sinks);
        if sinks.connection.as_ref() == Some(connection) { sinks.by_number.get(&number).cloned() } else { None }
    }

    /// Grants the broker credit for further messages of a subscription.
    pub(super) fn give_credit(&self, key: u16, bytes: usize) {
        let mut link = lock(&self.link);
        if let Some(number) = link.subscriptions.get(&key).and_then(|entry| entry.number) {
            let content = write_credit(number, u32::try_from(bytes).unwrap_or(u32::MAX));
            link.send(Packet::new(0, self.base.operation(PacketKind::Credit), content.to_vec()));
        }
    }

    /// Sends a publication by `send` and registers it for an acknowledgement. Returns the receiver of the answer.
    pub(super) fn await_acknowledgement(
        &self,
        send: impl FnOnce(&Connection, u16) -> Result<SendPosition, NotReady>,
    ) -> Result<oneshot::Receiver<Result<u32, PublishError>>, NotReady> {
        let mut link = lock(&self.link);
        let connection = match &link.state {
            LinkState::Up(connection) => connection.clone(),
            LinkState::Closed => return Err(NotReady::Failed(PublishError::Closed)),
            _ => return Err(NotReady::Wait),
        };
        if link.acknowledgements.len() >= ACKNOWLEDGEMENTS_MAX {
            return Err(NotReady::Wait);
        }
        loop {
            link.last_id = link.last_id.wrapping_add(1);
            // Id 0 marks publications without an acknowledgement.
            if link.last_id != 0 && !link.acknowledgements.contains_key(&link.last_id) {
                break;
            }
        }
        let id = link.last_id;
        // Send with the link locked: the answer must not arrive before its receiver is registered.
        let sent = send(&connection, id)?;
        let (told, answer) = oneshot::channel();
        link.acknowledgements.insert(id, PendingAcknowledgement { connection, sent, told });
        Ok(answer)
    }

    /// Passes the broker's answer to the waiting publisher. Returns `false` if the id is unknown.
    pub(super) fn acknowledge(&self, id: u16, result: Result<u32, PublishError>) -> bool {
        let Some(PendingAcknowledgement { told, .. }) = lock(&self.link).acknowledgements.remove(&id) else {
            return false;
        };
        // The receiver may have been dropped.
        let _ = told.send(result);
        self.changed.notify_waiters();
        true
    }

    /// Counts a message sent without an acknowledgement.
    pub(super) fn note_published(&self) {
        self.unacknowledged.published.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the refusal of such a message for the next `flush`.
    pub(super) fn note_refused(&self, refusal: Refusal) {
        self.unacknowledged.fail(PublishError::Refused(refusal));
    }

    /// Returns the number of messages published without an acknowledgement, if the outcome of some is still open.
    pub(super) fn unsettled(&self) -> Option<u64> {
        let published = self.unacknowledged.published.load(Ordering::Relaxed);
        (published > self.unacknowledged.settled.load(Ordering::Relaxed)).then_some(published)
    }

    /// Records that the outcome of the first `published` messages is known.
    pub(super) fn settle(&self, published: u64) {
        self.unacknowledged.settled.fetch_max(published, Ordering::Relaxed);
    }

    /// Takes the first failure since the last call.
    pub(super) fn take_failure(&self) -> Option<PublishError> {
        lock(&self.unacknowledged.failure).take()
    }

    /// Resumes sending after the connection has become writable.
    pub(super) fn resume_sending(&self) {
        lock(&self.link).send_unsent();
        self.changed.notify_waiters();
    }

    fn send_subscribe(&self, link: &mut SessionLink, key: u16) {
        let Some(SubscriptionEntry { options, slot, sink, .. }) = link.subscriptions.get(&key) else { return };
        let SubscribeOptions { pattern, group, policy, window } = options;
        // Answers are consumed on arrival, so they need no window.
        let window = if matches!(sink, MessageSink::Replies) { 0 } else { *window };
        let group = group.as_deref().unwrap_or_default();
        let content = SubscribePacket { policy: *policy, window, slot: *slot, pattern, group }.write();
        link.send(Packet::new(key, self.base.operation(PacketKind::Subscribe), content));
    }

    fn unsubscribe_packet(&self, number: u32) -> Packet {
        Packet::new(0, self.base.operation(PacketKind::Unsubscribe), number.to_be_bytes().to_vec())
    }
}

impl UnacknowledgedMessages {
    fn fail(&self, error: PublishError) {
        let mut failure = lock(&self.failure);
        if failure.is_none() {
            warn!("a message published without acknowledgement failed: {error}");
        }
        failure.get_or_insert(error);
    }

    /// Marks all open messages as lost with the connection.
    fn mark_lost(&self) {
        let published = self.published.load(Ordering::Relaxed);
        if self.settled.fetch_max(published, Ordering::Relaxed) < published {
            lock(&self.failure).get_or_insert(PublishError::Lost { may_have_left: true });
        }
    }
}

impl MessageSinks {
    fn remove(&mut self, connection: &Connection, number: u32) -> Option<MessageSink> {
        if self.connection.as_ref() == Some(connection) { self.by_number.remove(&number) } else { None }
    }
}

impl SessionLink {
    fn is_current(&self, connection: &Connection) -> bool {
        match &self.state {
            LinkState::Greeting(current) | LinkState::Up(current) => current == connection,
            LinkState::Down | LinkState::Closed => false,
        }
    }

    /// Returns a subscription that the broker has to answer, or `None` if it is unknown. Fails after the first answer.
    fn unanswered(&mut self, key: u16) -> Result<Option<&mut SubscriptionEntry>, MalformedPacket> {
        match self.subscriptions.get_mut(&key) {
            Some(entry) if entry.number.is_some() => Err(MalformedPacket("a subscription was answered twice")),
            entry => Ok(entry),
        }
    }

    fn remove(&mut self, key: u16) -> Option<SubscriptionEntry> {
        let entry = self.subscriptions.remove(&key)?;
        if entry.options.group.is_none()
            && let Some(taken) = self.slots.get_mut(&entry.options.pattern)
        {
            taken.remove(&entry.slot);
            if taken.is_empty() {
                self.slots.remove(&entry.options.pattern);
            }
        }
        Some(entry)
    }

    /// Resets all state of the previous connection.
    fn begin(&mut self, state: LinkState) {
        self.state = state;
        self.unsent.clear();
        // Abandoned subscriptions ended with their connection, so do not request them again.
        let abandoned = self.subscriptions.iter().filter(|(_, entry)| entry.is_abandoned).map(|(key, _)| *key);
        for key in abandoned.collect::<Vec<_>>() {
            self.remove(key);
        }
        self.subscriptions.values_mut().for_each(|entry| entry.number = None);
    }

    /// Sends a packet after the queued ones, or queues it.
    fn send(&mut self, packet: Packet) {
        self.unsent.push_back(packet);
        self.send_unsent();
    }

    fn send_unsent(&mut self) {
        let (LinkState::Greeting(connection) | LinkState::Up(connection)) = &self.state else { return };
        while let Some(packet) = self.unsent.pop_front() {
            if let Err(TrySendError::Full(packet)) = connection.try_send(packet) {
                self.unsent.push_front(packet);
                return;
            }
        }
    }
}

impl PendingReplies {
    fn new() -> Self {
        // Each `RandomState` has other random keys, so even the hash of `()` is a random number.
        let random = || RandomState::new().hash_one(());
        Self {
            prefix: format!("_INBOX.{:016x}{:016x}.", random(), random()),
            last: AtomicU64::new(0),
            waiting: Mutex::default(),
            subscription: watch::Sender::new(ReplySubscription::Missing(None)),
        }
    }

    fn set_subscription(&self, state: ReplySubscription) {
        self.subscription.send_replace(state);
    }

    fn options(&self) -> SubscribeOptions {
        let pattern = Pattern::new(&format!("{}*", self.prefix)).expect("it consists of valid tokens");
        SubscribeOptions { policy: Policy::DropNewest, ..SubscribeOptions::new(pattern) }
    }

    /// Registers a request. Returns the last token of its reply subject.
    pub(super) fn register_request(&self) -> (u64, oneshot::Receiver<Message>) {
        let (told, answer) = oneshot::channel();
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        lock(&self.waiting).insert(number, told);
        (number, answer)
    }

    pub(super) fn unregister_request(&self, number: u64) {
        lock(&self.waiting).remove(&number);
    }

    pub(super) fn push(&self, message: Message) {
        let number = message.subject.strip_prefix(&*self.prefix).and_then(|number| number.parse().ok());
        let told = number.and_then(|number: u64| lock(&self.waiting).remove(&number));
        if let Some(told) = told {
            // The receiver may have been dropped.
            let _ = told.send(message);
        }
    }

    fn drop_requests(&self) {
        let lost = take(&self.waiting);
        drop(lost);
    }
}

const SUBSCRIPTIONS_MAX: usize = 32 * 1024;
const ACKNOWLEDGEMENTS_MAX: usize = 16 * 1024;
