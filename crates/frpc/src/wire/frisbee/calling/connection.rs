//! Unary calls on one connection, and the state of its peer.

use std::sync::{Arc, OnceLock};

use super::{
    super::{
        bytes::hello::PeerHello,
        message_streams,
        peer::{LocalSettings, PeerState},
    },
    pending::{CallLimit, PendingCall, PendingCalls},
    request::OutgoingRequest,
    table::{CallReply, CannotBegin, NoAnswer},
};
use crate::{
    call::{deadline::Deadline, method::Method, status::Status, waits::CallWait},
    error::CallError,
};
use frisbee::{
    CloseReason, Connection, GoAway, Operation, PacketName, ProtocolError, RefusalReason, SendError, SendPosition,
    TrySendError,
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

/// A connection used for calls.
pub(crate) struct ClientConnection {
    pub(crate) connection: Connection,
    pub(super) calls: Arc<PendingCalls>,
    when_full: CallLimitPolicy,
    pub(super) own: Arc<LocalSettings>,
    /// The state of the connection, once the peer is recognized.
    peer: OnceLock<Arc<PeerState>>,
    /// The stream of a transport has TLS, unknown to frisbee.
    over_tls: bool,
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
        Self { connection, calls, when_full, own, peer: OnceLock::new(), over_tls: false }
    }

    /// Sets whether the stream of the connection has TLS of its own.
    pub(crate) fn over_tls(self, over_tls: bool) -> Self {
        Self { over_tls, ..self }
    }

    /// Returns `true` if the connection uses TLS: that of frisbee, or that of its stream.
    pub(crate) fn is_secure(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.over_tls || self.connection.peer_certificates().is_some();
        #[cfg(not(feature = "tls"))]
        self.over_tls
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

    /// Returns the number of concurrent calls, by the limits of both sides.
    pub(crate) fn calls_max(&self) -> u32 {
        match self.calls.limit() {
            CallLimit::Own(limit) => u32::try_from(limit).unwrap_or(u32::MAX),
            CallLimit::Peer(limit) => limit,
        }
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
            over_tls: self.over_tls,
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

    /// Sends a packet and waits for its answer. Waits also for a free call and for room in the outbox.
    pub(super) async fn exchange(
        &self,
        operation: Operation,
        request: OutgoingRequest<'_>,
        deadline: Deadline,
        method: &'static Method,
    ) -> Result<CallReply, Status> {
        let mut pending = self.begin(operation, deadline, method).await?;
        let sent = match request.try_send(&self.connection, PacketName { id: pending.id, operation }) {
            Ok(sent) => sent,
            Err(error) => self.send_later(error, deadline).await?,
        };
        pending.sent(Some(&self.connection));
        pending.answered().await.map_err(|why| self.unanswered(why, deadline, sent))
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

    /// Begins a call. At the limit, it waits or fails, as configured.
    async fn begin(
        &self,
        operation: Operation,
        deadline: Deadline,
        method: &'static Method,
    ) -> Result<PendingCall<'_>, Status> {
        let begun = self.calls.try_begin(operation.number(), deadline.at, None).map_err(begin_status)?;
        match (begun, self.when_full) {
            (Some(waiting), _) => Ok(waiting),
            (None, CallLimitPolicy::Fail) => Err(match self.calls.limit() {
                CallLimit::Own(limit) => CallError::TooManyCalls { limit }.into(),
                CallLimit::Peer(limit) => CallError::TooManyForPeer { limit }.into(),
            }),
            (None, CallLimitPolicy::Wait) => {
                let (begin, wait) = (self.calls.begin(operation.number(), deadline.at), CallWait::begin(method));
                let begun = deadline.bound_unsent(async { begin.await.map_err(begin_status) }).await;
                wait.end();
                begun
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
