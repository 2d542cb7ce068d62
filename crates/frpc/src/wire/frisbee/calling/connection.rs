//! Unary calls on one connection, and the state of its peer.

use std::{
    future::poll_fn,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use frisbee::{
    CloseReason, Connection, Content, GoAway, Operation, Packet, PacketName, ProtocolError, RefusalReason, SendError,
    SendPosition, TrySendError,
};
use tokio::time::Instant;

use super::{
    super::{
        bytes::{
            compressed::OutgoingMessage,
            envelope,
            hello::{MethodRoute, PeerHello},
        },
        message_streams,
        peer::{LocalSettings, PeerState},
    },
    pending::{CallLimit, PendingCall, PendingCalls},
    table::{CallReply, CannotBegin, NoAnswer},
};
use crate::{
    call::{deadline::Deadline, head::Head, method::Method, status::Status},
    codec::Format,
    error::CallError,
};

/// The treatment of calls beyond the limit of concurrent calls, that of the channel or of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallLimitPolicy {
    /// The call waits for another call to end, within its timeout.
    #[default]
    Wait,
    /// The call fails immediately with [`CallError::TooManyCalls`] or [`CallError::TooManyForPeer`].
    Fail,
}

/// A request of any type. It can be sent again on another connection.
pub(crate) trait SendableRequest {
    /// Sends the request in a packet with this name, unless the outbox is full.
    fn try_send(&self, connection: &Connection, name: PacketName) -> Result<SendPosition, TrySendError>;
}

/// The request of one attempt.
pub(crate) enum OutgoingRequest<'a> {
    Encoded(Content),
    Message(&'a (dyn SendableRequest + Sync)),
}

impl OutgoingRequest<'_> {
    /// Sends the request in a packet with this name, unless the outbox is full.
    pub(super) fn try_send(self, connection: &Connection, name: PacketName) -> Result<SendPosition, TrySendError> {
        let PacketName { id, operation } = name;
        match self {
            Self::Encoded(content) => connection.try_send(Packet { id, operation, content }),
            Self::Message(message) => message.try_send(connection, name),
        }
    }
}

impl From<Content> for OutgoingRequest<'_> {
    fn from(content: Content) -> Self {
        Self::Encoded(content)
    }
}

/// A connection used for calls.
pub(crate) struct ClientConnection {
    pub(crate) connection: Connection,
    pub(super) calls: Arc<PendingCalls>,
    when_full: CallLimitPolicy,
    pub(super) own: Arc<LocalSettings>,
    /// The state of the connection, once the peer is recognized.
    peer: OnceLock<Arc<PeerState>>,
}

impl ClientConnection {
    pub(crate) fn new(
        connection: Connection,
        calls: Arc<PendingCalls>,
        when_full: CallLimitPolicy,
        own: Arc<LocalSettings>,
    ) -> Self {
        if calls.claim_expiry_task() {
            // On the runtime of the connection: it runs while answers to calls can arrive.
            connection.runtime().spawn(calls.clone().expire());
        }
        Self { connection, calls, when_full, own, peer: OnceLock::new() }
    }

    /// Prepares an existing connection for calls. `None` if it is not served by [`Services`].
    pub(crate) fn for_connection(connection: &Connection) -> Option<Self> {
        let state = PeerState::of(connection)?;
        let calls = state.calls.get_or_init(Arc::default);
        // Only after the calls are in the state: a router that saw the connection close earlier found no calls to end,
        // and they would wait forever. Ending them twice is harmless.
        if let Some(reason) = connection.close_reason() {
            calls.close(state.number, &reason);
        }
        Some(Self::new(connection.clone(), calls.clone(), CallLimitPolicy::default(), state.own.clone()))
    }

    /// Returns whether a new call could succeed on this connection.
    pub(crate) fn takes_calls(&self) -> bool {
        self.connection.close_reason().is_none() && self.calls.takes_calls()
    }

    /// Returns whether the peer has asked to leave this connection.
    pub(crate) fn is_going_away(&self) -> bool {
        self.calls.going_away().is_some()
    }

    /// Refuses new calls on this connection, because the peer does.
    pub(crate) fn go_away(&self, why: GoAway) {
        self.calls.go_away(why);
    }

    /// Calls `leave` once the peer has asked to leave this connection.
    pub(crate) fn on_leaving(&self, leave: impl FnOnce() + Send + 'static) {
        self.calls.on_leaving(leave);
    }

    /// Returns a handle that does not keep the connection open, so it closes after its last call.
    pub(crate) fn detached_handle(&self) -> Self {
        Self {
            connection: self.connection.without_keeping_open(),
            calls: self.calls.clone(),
            when_full: self.when_full,
            own: self.own.clone(),
            peer: self.peer.clone(),
        }
    }

    /// Keeps the connection open until the calls in flight are over.
    pub(crate) fn close_when_idle(self: Arc<Self>) {
        let calls = self.calls.clone();
        calls.keep_until_idle(self);
    }

    /// Returns the number of packets received from the peer.
    pub(crate) fn packets_received(&self) -> u64 {
        self.connection.metrics().counters.packets_in
    }

    /// Returns how to call a method, once the peer is recognized.
    pub(crate) fn route(&self, method: &'static Method) -> Option<MethodRoute> {
        self.peer().map(|peer| peer.route(method))
    }

    /// Returns the peer's frpc part. Waits until the peer is recognized, and returns `None` for a plain peer.
    pub(crate) async fn extended(&self, deadline: Deadline) -> Result<Option<&PeerHello>, Status> {
        if self.peer().is_none() {
            let known = async { self.connection.recognized().await.map_err(|reason| connection_lost(reason, false)) };
            deadline.bound_unsent(known).await?;
        }
        Ok(self.known_extended())
    }

    /// Returns the peer's frpc part, if the peer is already recognized as extended.
    pub(crate) fn known_extended(&self) -> Option<&PeerHello> {
        self.peer().and_then(|peer| peer.extended())
    }

    /// Returns the state of the connection, once the peer is recognized.
    #[inline]
    pub(crate) fn peer(&self) -> Option<&PeerState> {
        match self.peer.get() {
            Some(peer) => Some(peer),
            None => {
                let peer = PeerState::recognized(&self.connection)?.clone();
                Some(self.peer.get_or_init(|| peer))
            }
        }
    }

    /// Returns the operation for a plain packet to this method, or `None` if the call needs an extended packet.
    #[inline]
    pub(crate) fn plain_operation(&self, method: &'static Method) -> Result<Option<Operation>, Status> {
        match self.peer().and_then(|peer| peer.plain_operation(method)) {
            Some(operation) => Ok(Some(operation)),
            None => self.no_plain_operation(method),
        }
    }

    /// The slow path of [`plain_operation`](Self::plain_operation): the peer is not recognized, or its method differs.
    #[cold]
    fn no_plain_operation(&self, method: &'static Method) -> Result<Option<Operation>, Status> {
        match self.route(method) {
            None | Some(MethodRoute::Plain) => self.operation(method).map(Some),
            Some(MethodRoute::Extended { .. }) => Ok(None),
            Some(MethodRoute::Missing) => Err(method_missing(method)),
        }
    }

    /// Checks the answer to a call made before the peer was recognized.
    ///
    /// The operation of this side may belong to another method of the peer, or to the same method with other messages.
    fn check_route(&self, method: &'static Method, operation: Operation) -> Result<(), Status> {
        match self.route(method) {
            None | Some(MethodRoute::Plain) => Ok(()),
            Some(MethodRoute::Extended { operation: right, format: Format::Polyglot })
                if right == operation.number() =>
            {
                Ok(())
            }
            Some(_) => Err(Status::failed_precondition(format!(
                "the server has a different schema, and {method} was called before this was known: another method may \
                 have been executed"
            ))),
        }
    }

    /// Makes a call with an extended packet.
    pub(crate) async fn unary_extended(
        &self,
        operation: u16,
        format: Format,
        head: &Head,
        timeout: Option<Deadline>,
        message: OutgoingMessage,
        deadline: Deadline,
    ) -> Result<CallReply, Status> {
        // A timeout beyond any instant is sent as well. Without it, the announced timeout would apply.
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let left = timeout.map(|deadline| deadline.at.map_or(Duration::MAX, left));
        let content = envelope::request(operation, format, left, head.metadata(), message);
        self.unary(Operation::EXTENDED, content.into(), deadline, None).await
    }

    /// Sends a packet and waits for its answer. `plain` is the method of a plain packet.
    pub(crate) async fn unary(
        &self,
        operation: Operation,
        request: OutgoingRequest<'_>,
        deadline: Deadline,
        plain: Option<&'static Method>,
    ) -> Result<CallReply, Status> {
        let unchecked = plain.filter(|_| self.peer.get().is_none());
        // Registered with the waker of this poll, so the first check for the answer needs no lock.
        let begin =
            |cx: &mut Context<'_>| Poll::Ready(self.calls.try_begin(operation.number(), deadline.at, Some(cx.waker())));
        let mut waiting = match poll_fn(begin).await {
            Ok(Some(waiting)) => waiting,
            _ => Box::pin(self.begin(operation, deadline)).await?,
        };
        let name = PacketName { id: waiting.id, operation };
        // Most packets are sent immediately. The rare wait is boxed, to keep the futures of calls small.
        let sent = match request.try_send(&self.connection, name) {
            Ok(sent) => sent,
            Err(error) => {
                waiting.has_waited();
                Box::pin(self.send_later(error, deadline)).await?
            }
        };
        waiting.sent(Some(&self.connection));
        match (waiting.answered().await, unchecked) {
            (Ok(reply), None) => Ok(reply),
            (Ok(reply), Some(method)) => self.check_route(method, operation).map(|()| reply),
            (Err(unanswered), _) => Err(self.unanswered(unanswered, deadline, sent)),
        }
    }

    /// Returns the status of a sent call without an answer.
    #[cold]
    pub(super) fn unanswered(&self, why: NoAnswer, deadline: Deadline, sent: SendPosition) -> Status {
        match why {
            NoAnswer::TimedOut => deadline.passed(),
            NoAnswer::TooLarge { announced, limit } => CallError::AnswerTooLarge { len: announced, limit }.into(),
            NoAnswer::Closed(reason) => lost_after(reason, &self.connection, sent),
        }
    }

    /// Sends a packet once the full outbox has room for it.
    async fn send_later(&self, error: TrySendError, deadline: Deadline) -> Result<SendPosition, Status> {
        let packet = match error {
            TrySendError::Full(packet) => packet,
            TrySendError::Failed(error) => return Err(self.unsent(error)),
        };
        let sending = async { self.connection.send(packet).await.map_err(|error| self.unsent(error)) };
        deadline.bound_unsent(sending).await
    }

    /// Returns the operation of a method, unless this side serves the same operation.
    ///
    /// A plain answer has the operation of its request, so it would be taken for a request to this side.
    pub(super) fn operation(&self, method: &'static Method) -> Result<Operation, Status> {
        let Method { service, name, operation, .. } = method;
        if self.own.serves.contains(*operation) {
            return Err(Status::failed_precondition(format!(
                "{service}/{name} cannot be called from here: operation {operation} is served on this side of the \
                 connection (move one with frpc_build's `first_operation`)"
            )));
        }
        Operation::new(*operation).ok_or_else(|| Status::internal(format!("operation {operation} is reserved")))
    }

    /// Begins a call. At the limit, it waits or fails, as configured.
    async fn begin(&self, operation: Operation, deadline: Deadline) -> Result<PendingCall<'_>, Status> {
        let begun = self.calls.try_begin(operation.number(), deadline.at, None).map_err(begin_status)?;
        match (begun, self.when_full) {
            (Some(waiting), _) => Ok(waiting),
            (None, CallLimitPolicy::Fail) => Err(match self.calls.limit() {
                CallLimit::Own(limit) => CallError::TooManyCalls { limit }.into(),
                CallLimit::Peer(limit) => CallError::TooManyForPeer { limit }.into(),
            }),
            (None, CallLimitPolicy::Wait) => {
                let begin = self.calls.begin(operation.number(), deadline.at);
                deadline.bound_unsent(async { begin.await.map_err(begin_status) }).await
            }
        }
    }

    /// Returns the status of an unsent call.
    pub(super) fn unsent(&self, error: SendError) -> Status {
        match error {
            SendError::ContentTooLarge { len, limit } => CallError::MessageTooLarge { len, limit }.into(),
            SendError::TooLargeForPeer { len, limit } => refused_as_too_large(len, limit),
            SendError::OutboxFull => {
                Status::resource_exhausted("the outbox of the connection is full, nothing was sent")
            }
            _ => connection_lost(message_streams::why_closed(&self.connection), false),
        }
    }
}

/// Returns the status the peer would answer with, for a request above its announced limit.
pub(super) fn refused_as_too_large(len: usize, limit: u32) -> Status {
    let announced = len.try_into().unwrap_or(u32::MAX);
    CallError::Refused { why: RefusalReason::TooLarge { announced, limit } }.into()
}

/// Returns the status of a call encoded for a server with another schema.
pub(crate) fn schema_changed(method: &'static Method) -> Status {
    let text = format!("the server changed its schema while {method} was called: nothing was sent, retry the call");
    Status::unavailable(text)
}

/// Returns the status for a method missing on an extended peer.
pub(crate) fn method_missing(method: &'static Method) -> Status {
    Status::unimplemented(format!("the server has no method {method}"))
}

fn begin_status(why: CannotBegin) -> Status {
    match why {
        CannotBegin::Closed(reason) => connection_lost(reason, false),
        CannotBegin::GoingAway(why) => CallError::GoingAway { why }.into(),
        CannotBegin::OutOfIds { owed } => CallError::OutOfIds { owed }.into(),
    }
}

pub(super) fn connection_lost(reason: CloseReason, may_have_executed: bool) -> Status {
    CallError::ConnectionLost { reason, may_have_executed }.into()
}

/// Returns the status of a sent call after the end of its connection.
pub(super) fn lost_after(reason: CloseReason, connection: &Connection, sent: SendPosition) -> Status {
    // A peer that never sent a frisbee packet has no handlers.
    let is_foreign =
        matches!(reason, CloseReason::Protocol(ProtocolError::BadMagic { .. } | ProtocolError::Foreign(_)));
    let never_spoke = is_foreign && connection.metrics().counters.packets_in == 0;
    connection_lost(reason, connection.may_have_left(sent) && !never_spoke)
}

/// Returns the status of a stream without an answer. For a lost connection, states whether the request was sent.
pub(super) fn refine_connection_loss(status: Status, connection: &Connection, sent: SendPosition) -> Status {
    match status.call_error() {
        Some(CallError::ConnectionLost { reason, .. }) => lost_after(reason.clone(), connection, sent),
        _ => status,
    }
}
