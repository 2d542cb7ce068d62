//! Unary calls over one connection, and what is known of its peer.

use std::{
    future::poll_fn,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use frisbee::{
    CloseReason, Connection, GoAway, Operation, PacketName, ProtocolError, Refusal, SendError, Sent, TrySendError,
};
use tokio::time::Instant;

use super::{
    call_table::{CannotBegin, Reply, Unanswered},
    compressed::{CannotInflate, Compressed, Deflating, Outgoing},
    envelope,
    pending::{Limit, PendingCall, PendingCalls},
    remote::{Extended, Remote, Way},
    sending::Outbound,
    session::Session,
    stream_framing,
};
use crate::{
    call::{deadline::Deadline, head::Head, method::Method, status::Status},
    codec::Format,
    error::CallError,
    service::{compressing::Compressing, table::MethodTable},
};

/// The choices of a channel for a call beyond those that it may have under way, by its own limit or that of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The call waits for another to end, within its timeout.
    #[default]
    Wait,
    /// The call fails at once with [`CallError::TooManyCalls`] or [`CallError::TooManyForPeer`].
    Fail,
}

/// One connection that calls go over.
pub(crate) struct ClientConnection {
    pub(crate) connection: Connection,
    pub(super) calls: Arc<PendingCalls>,
    when_full: WhenFull,
    /// The operations of this side's own: a packet with one of them would be a request, not the answer.
    serves: MethodTable,
    /// The size of the metadata that an answer may bring.
    pub(super) metadata_max: usize,
    compressing: Compressing,
    /// The peer, once it is known.
    remote: OnceLock<Arc<Remote>>,
}

impl ClientConnection {
    pub(crate) fn new(
        connection: Connection,
        calls: Arc<PendingCalls>,
        when_full: WhenFull,
        serves: MethodTable,
        metadata_max: usize,
        compressing: Compressing,
    ) -> Self {
        if calls.begins_to_expire() {
            // On the runtime of the connection, which lasts as long as there are calls that could end by an answer.
            connection.runtime().spawn(calls.clone().expire());
        }
        Self { connection, calls, when_full, serves, metadata_max, compressing, remote: OnceLock::new() }
    }

    /// Makes calls possible over a connection that is there. `None` if [`Services`] do not serve it.
    pub(crate) fn over(connection: &Connection) -> Option<Self> {
        let session = Session::of(connection)?;
        let calls = session.calls.get_or_init(Arc::default);
        // Only after the calls are there: a router that closed the connection before found none to end, and they would wait
        // for ever. Ended twice, they are ended once.
        if let Some(reason) = connection.close_reason() {
            calls.close(session.number, &reason);
        }
        let (serves, metadata_max) = (session.serves.clone(), session.metadata_max);
        let compressing = session.compressing.clone();
        Some(Self::new(connection.clone(), calls.clone(), WhenFull::default(), serves, metadata_max, compressing))
    }

    /// Returns whether a new call has a chance here.
    pub(crate) fn takes_calls(&self) -> bool {
        self.connection.close_reason().is_none() && self.calls.takes_calls()
    }

    /// Returns whether the peer wants no new calls here.
    pub(crate) fn is_going_away(&self) -> bool {
        self.calls.going_away().is_some()
    }

    /// Lets no new calls begin here, because the peer refuses them.
    pub(crate) fn go_away(&self, why: GoAway) {
        self.calls.go_away(why);
    }

    /// Has `leave` called once the peer wants no new calls here.
    pub(crate) fn on_leaving(&self, leave: impl FnOnce() + Send + 'static) {
        self.calls.on_leaving(leave);
    }

    /// Returns the same connection, not kept open by this: it closes with its last call.
    pub(crate) fn let_go(&self) -> Self {
        Self {
            connection: self.connection.without_keeping_open(),
            calls: self.calls.clone(),
            when_full: self.when_full,
            serves: self.serves.clone(),
            metadata_max: self.metadata_max,
            compressing: self.compressing.clone(),
            remote: self.remote.clone(),
        }
    }

    /// Keeps the connection open until the calls that are under way are over, and no longer.
    pub(crate) fn close_when_idle(self: Arc<Self>) {
        let calls = self.calls.clone();
        calls.keep_until_idle(self);
    }

    /// Returns the number of packets that the peer has sent so far.
    pub(crate) fn heard(&self) -> u64 {
        self.connection.metrics().counters.packets_in
    }

    /// Returns the size of the metadata that an answer may bring.
    pub(crate) fn metadata_max(&self) -> usize {
        self.metadata_max
    }

    /// Returns how messages to this peer are compressed, if they are.
    pub(crate) fn deflating(&self) -> Option<Deflating> {
        if self.compressing.compresses() { Session::deflating(&self.connection) } else { None }
    }

    /// Returns whether messages are compressed for peers that inflate them.
    pub(crate) fn compresses(&self) -> bool {
        self.compressing.compresses()
    }

    /// Inflates the message of an answer, which is its caller's from here on.
    pub(crate) fn inflate(&self, compressed: Compressed, bytes: &[u8]) -> Result<Bytes, Status> {
        let algorithm = compressed.check(&self.compressing, self.connection.config().content_len_max);
        algorithm.and_then(|algorithm| compressed.inflate(algorithm, bytes)).map_err(CannotInflate::of_answer)
    }

    /// Returns how to call a method, once the peer is known.
    pub(crate) fn way(&self, method: &'static Method) -> Option<Way> {
        self.remote().map(|remote| remote.way(method))
    }

    /// Returns what the peer said of itself. Waits until it is known, and fails if that never is or it said nothing.
    pub(crate) async fn extended(&self, deadline: Deadline) -> Result<Option<&Extended>, Status> {
        if self.remote().is_none() {
            let known = async { self.connection.recognized().await.map_err(|reason| lost(reason, false)) };
            deadline.bound_unsent(known).await?;
        }
        Ok(self.known_extended())
    }

    /// Returns what the peer said of itself, if it is known to be extended.
    pub(crate) fn known_extended(&self) -> Option<&Extended> {
        self.remote().and_then(|remote| remote.extended())
    }

    pub(crate) fn remote(&self) -> Option<&Arc<Remote>> {
        match self.remote.get() {
            Some(remote) => Some(remote),
            None => {
                let remote = Session::of(&self.connection)?.remote(&self.connection)?.clone();
                Some(self.remote.get_or_init(|| remote))
            }
        }
    }

    /// Returns the operation that calls a method in plain packets, or `None` if they do not say enough.
    #[inline]
    pub(crate) fn plain_operation(&self, method: &'static Method) -> Result<Option<Operation>, Status> {
        match self.remote().and_then(|remote| remote.plain_operation(method)) {
            Some(operation) => Ok(Some(operation)),
            None => self.no_plain_operation(method),
        }
    }

    #[cold]
    fn no_plain_operation(&self, method: &'static Method) -> Result<Option<Operation>, Status> {
        match self.way(method) {
            None | Some(Way::Plain) => self.operation(method).map(Some),
            Some(Way::Extended { .. }) => Ok(None),
            Some(Way::Missing) => Err(missing(method)),
        }
    }

    /// Checks the answer to a call that was made before the peer was known: the operation of this side may be another
    /// method of the peer, or the same with other messages.
    fn check_way(&self, method: &'static Method, operation: Operation) -> Result<(), Status> {
        match self.way(method) {
            None | Some(Way::Plain) => Ok(()),
            Some(Way::Extended { operation: right, format: Format::Polyglot }) if right == operation.number() => Ok(()),
            Some(_) => Err(Status::failed_precondition(format!(
                "the server has another schema than this client, of which it told too late for this call of {method}: \
                 another method may have been executed"
            ))),
        }
    }

    /// Makes a call with one packet that only extended peers understand.
    pub(crate) async fn unary_extended(
        &self,
        operation: u16,
        format: Format,
        head: &Head,
        timeout: Option<Deadline>,
        message: Outgoing,
        deadline: Deadline,
    ) -> Result<Reply, Status> {
        // One that is too far away to tell is said as well: without, the call would have the time that was announced.
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let left = timeout.map(|deadline| deadline.at.map_or(Duration::MAX, left));
        let content = envelope::request(operation, format, left, head.metadata(), message);
        self.unary(Operation::EXTENDED, content.into(), deadline, None).await
    }

    /// Sends a packet and waits for its answer, which is a plain packet or one of an extended peer. `plain` is the method of a
    /// plain packet.
    pub(crate) async fn unary(
        &self,
        operation: Operation,
        request: Outbound<'_>,
        deadline: Deadline,
        plain: Option<&'static Method>,
    ) -> Result<Reply, Status> {
        let unchecked = plain.filter(|_| self.remote.get().is_none());
        // Registered with the waker of this poll, so that the first look for the answer takes no lock.
        let begin =
            |cx: &mut Context<'_>| Poll::Ready(self.calls.try_begin(operation.number(), deadline.at, Some(cx.waker())));
        let mut waiting = match poll_fn(begin).await {
            Ok(Some(waiting)) => waiting,
            _ => Box::pin(self.begin(operation, deadline)).await?,
        };
        let name = PacketName { id: waiting.id, operation };
        // Most packets are taken at once. What it takes to wait is kept out of the futures of calls, which are moved around.
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
            (Ok(reply), Some(method)) => self.check_way(method, operation).map(|()| reply),
            (Err(unanswered), _) => Err(self.unanswered(unanswered, deadline, sent)),
        }
    }

    /// Returns the status of a call that was sent and has no answer.
    #[cold]
    pub(super) fn unanswered(&self, why: Unanswered, deadline: Deadline, sent: Sent) -> Status {
        match why {
            Unanswered::TimedOut => deadline.passed(),
            Unanswered::TooLarge { announced, limit } => CallError::AnswerTooLarge { len: announced, limit }.into(),
            Unanswered::Closed(reason) => lost_after(reason, &self.connection, sent),
        }
    }

    /// Sends what the outbox had no room for as soon as it has, or says why it never will.
    async fn send_later(&self, error: TrySendError, deadline: Deadline) -> Result<Sent, Status> {
        let packet = match error {
            TrySendError::Full(packet) => packet,
            TrySendError::Failed(error) => return Err(self.unsent(error)),
        };
        let sending = async { self.connection.send(packet).await.map_err(|error| self.unsent(error)) };
        deadline.bound_unsent(sending).await
    }

    pub(super) fn operation(&self, method: &'static Method) -> Result<Operation, Status> {
        let Method { service, name, operation, .. } = method;
        if self.serves.contains(*operation) {
            return Err(Status::failed_precondition(format!(
                "{service}/{name} cannot be called from here: operation {operation} is served on this side of the \
                 connection (move one with frpc_build's `first_operation`)"
            )));
        }
        Operation::new(*operation).ok_or_else(|| Status::internal(format!("operation {operation} is reserved")))
    }

    async fn begin(&self, operation: Operation, deadline: Deadline) -> Result<PendingCall<'_>, Status> {
        let begun = self.calls.try_begin(operation.number(), deadline.at, None).map_err(not_begun)?;
        match (begun, self.when_full) {
            (Some(waiting), _) => Ok(waiting),
            (None, WhenFull::Fail) => Err(match self.calls.limit() {
                Limit::Own(limit) => CallError::TooManyCalls { limit }.into(),
                Limit::OfPeer(limit) => CallError::TooManyForPeer { limit }.into(),
            }),
            (None, WhenFull::Wait) => {
                let begin = self.calls.begin(operation.number(), deadline.at);
                deadline.bound_unsent(async { begin.await.map_err(not_begun) }).await
            }
        }
    }

    /// Returns the status of a call of which nothing was sent.
    pub(super) fn unsent(&self, error: SendError) -> Status {
        match error {
            SendError::ContentTooLarge { len, limit } => CallError::MessageTooLarge { len, limit }.into(),
            SendError::TooLargeForPeer { len, limit } => refused_as_too_large(len, limit),
            SendError::OutboxFull => {
                Status::resource_exhausted("the outbox of the connection is full, nothing was sent")
            }
            _ => lost(stream_framing::why_closed(&self.connection), false),
        }
    }
}

/// Returns the status that the peer would answer with, for a request that it said it would not accept.
pub(super) fn refused_as_too_large(len: usize, limit: u32) -> Status {
    let announced = len.try_into().unwrap_or(u32::MAX);
    CallError::Refused { why: Refusal::TooLarge { announced, limit } }.into()
}

/// Returns the status of a call that was encoded for a server with another schema.
pub(crate) fn changed(method: &'static Method) -> Status {
    let text = format!("the server has changed its schema while {method} was called: nothing was sent, call again");
    Status::unavailable(text)
}

/// Returns the status of a method that an extended peer does not have.
pub(crate) fn missing(method: &'static Method) -> Status {
    Status::unimplemented(format!("the server has no method {method}"))
}

fn not_begun(why: CannotBegin) -> Status {
    match why {
        CannotBegin::Closed(reason) => lost(reason, false),
        CannotBegin::GoingAway(why) => CallError::GoingAway { why }.into(),
        CannotBegin::OutOfIds { owed } => CallError::OutOfIds { owed }.into(),
    }
}

pub(super) fn lost(reason: CloseReason, may_have_executed: bool) -> Status {
    CallError::ConnectionLost { reason, may_have_executed }.into()
}

/// Returns the status of a call whose connection ended after it was sent.
pub(super) fn lost_after(reason: CloseReason, connection: &Connection, sent: Sent) -> Status {
    // A peer that never said a word of frisbee has no handlers.
    let is_foreign =
        matches!(reason, CloseReason::Protocol(ProtocolError::BadMagic { .. } | ProtocolError::Foreign(_)));
    let never_spoke = is_foreign && connection.metrics().counters.packets_in == 0;
    lost(reason, connection.may_have_left(sent) && !never_spoke)
}

/// Returns the status of a stream that ended without an answer, and leaves no doubt about what was not sent.
pub(super) fn without_doubt(status: Status, connection: &Connection, sent: Sent) -> Status {
    match status.call_error() {
        Some(CallError::ConnectionLost { reason, .. }) => lost_after(reason.clone(), connection, sent),
        _ => status,
    }
}
