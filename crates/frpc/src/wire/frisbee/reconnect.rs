//! The connection of a channel, and its replacement after a loss.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use frisbee::{Connection, Content, GoAway, Refusal, Router};
use tracing::warn;

use super::{
    answers::AnswerRouter,
    call_table::Reply,
    client::{ClientConnection, WhenFull, changed, missing},
    compressed::Outgoing,
    envelope::{Envelope, check_metadata, metadata_len},
    failures::refused_or_not,
    pending::PendingCalls,
    remote::Way,
    sending::{Outbound, Sending},
    stream_calls::{Opened, StreamCall},
    stream_framing::message_or_status,
};
use crate::{
    call::{
        deadline::Deadline,
        exchange::{Answer, Body},
        head::Head,
        method::Method,
        status::Status,
    },
    client::{self, Attempts, Redial, Replaceable, is_draining, needs_another_connection, with_own_timeout},
    codec::{Format, Pieces},
    error::CallError,
    service::{services::Services, set::ServiceSet},
};

/// The treatment of a call with metadata if the peer cannot receive it. Peers with plain fRPC cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostMetadata {
    /// The call fails with [`CallError::MetadataNotCarried`], so the caller does not rely on metadata that never
    /// arrives.
    #[default]
    Fail,
    /// The call is made without metadata, and a warning is logged.
    Warn,
}

/// The settings from which each connection of a channel is made.
pub(crate) struct Dialer<S, R> {
    pub(crate) client: frisbee::Client<()>,
    pub(crate) services: Arc<Services<S, R>>,
    pub(crate) calls_max: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) timeout: Duration,
}

impl<S: ServiceSet, R: Router> Dialer<S, R> {
    /// Returns a client for one connection, and the table of its calls.
    pub(crate) fn client(&self) -> (frisbee::Client<AnswerRouter<S, R>>, Arc<PendingCalls>) {
        let calls = Arc::new(PendingCalls::new(self.calls_max));
        let said = self.services.said(Some(self.timeout));
        let calling = AnswerRouter { calls: calls.clone(), services: self.services.clone(), said };
        (self.client.with_router(calling), calls)
    }

    pub(crate) fn serve(&self, connection: Connection, calls: Arc<PendingCalls>) -> ClientConnection {
        let (serves, metadata_max) = (self.services.table().clone(), self.services.metadata_max());
        let compressing = self.services.common.compression.clone();
        ClientConnection::new(connection, calls, self.when_full, serves, metadata_max, compressing)
    }
}

/// The connection of a channel, and the means to replace it.
pub(crate) struct Reconnecting {
    /// The first connection, which this does not keep open. While it is current, calls use it without a lock.
    first: ClientConnection,
    is_first: AtomicBool,
    current: Mutex<Arc<ClientConnection>>,
    pub(super) redial: Option<Redial<ClientConnection>>,
    lost_metadata: LostMetadata,
    /// The timeout announced to peers, so calls with this timeout need not send it.
    pub(crate) announced: Option<Duration>,
    /// True if messages are compressed, for peers with support for it.
    pub(crate) compresses: bool,
    /// Methods that clients will call. Each new peer's methods are compared with them.
    declared: Mutex<Vec<&'static [Method]>>,
}

impl Reconnecting {
    pub(crate) fn new(
        first: ClientConnection,
        redial: Option<Redial<ClientConnection>>,
        lost_metadata: LostMetadata,
        announced: Option<Duration>,
    ) -> Arc<Self> {
        let (compresses, declared) = (first.compresses(), Mutex::default());
        let (first, current) = (first.let_go(), Arc::new(first));
        let (is_first, current) = (AtomicBool::new(true), Mutex::new(current));
        let wire = Arc::new(Self { first, is_first, current, redial, lost_metadata, announced, compresses, declared });
        wire.let_go_of(&wire.first);
        wire
    }

    /// Returns the first connection, unless it was replaced.
    #[inline]
    pub(super) fn first(&self) -> Option<&ClientConnection> {
        // Relaxed: a call that still sees the first connection after its replacement finds that it takes no calls.
        self.is_first.load(Ordering::Relaxed).then_some(&self.first)
    }

    /// Replaces the current connection. The old one stays open until its calls are over.
    fn put(&self, mut current: MutexGuard<'_, Arc<ClientConnection>>, next: Arc<ClientConnection>) {
        self.is_first.store(false, Ordering::Relaxed);
        let before = mem::replace(&mut *current, next);
        // Unlock first: dropping the last handle closes the connection, and other calls must not wait for that.
        drop(current);
        before.close_when_idle();
    }

    /// Releases a connection once its peer wants no new calls on it, so it closes after its last call.
    fn let_go_of(self: &Arc<Self>, connection: &ClientConnection) {
        let wire = Arc::downgrade(self);
        connection.on_leaving(move || {
            let Some(wire) = wire.upgrade() else { return };
            let current = wire.current_place();
            // It may have been replaced in the meantime.
            if current.is_going_away() {
                let released = Arc::new(current.let_go());
                wire.put(current, released);
            }
        });
    }

    pub(crate) fn declared(&self) -> MutexGuard<'_, Vec<&'static [Method]>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current_place(&self) -> MutexGuard<'_, Arc<ClientConnection>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a unary call in a plain packet. `None` if the call needs an extended packet.
    ///
    /// The first attempt assumes that the connection is open. Later attempts check first.
    pub(crate) async fn unary(
        self: &Arc<Self>,
        method: &'static Method,
        request: &(dyn Sending + Sync),
        deadline: Deadline,
    ) -> Result<Option<Reply>, Status> {
        let connection = self.current();
        let Some(operation) = connection.plain_operation(method)? else { return Ok(None) };
        match refused_or_not(connection.unary(operation, Outbound::Message(request), deadline, Some(method)).await) {
            Err(status) if needs_another_connection(&status) => {
                // Boxed, so only retried calls pay for the memory of this future.
                Box::pin(self.unary_again(connection, status, method, request, deadline)).await
            }
            outcome => outcome.map(Some),
        }
    }

    /// Retries a unary call that failed with this status on its first connection.
    pub(super) async fn unary_again(
        self: &Arc<Self>,
        mut connection: Arc<ClientConnection>,
        mut status: Status,
        method: &'static Method,
        request: &(dyn Sending + Sync),
        deadline: Deadline,
    ) -> Result<Option<Reply>, Status> {
        let mut attempts = Attempts::new(deadline);
        loop {
            connection = self.another(&mut attempts, connection, status).await?;
            let Some(operation) = connection.plain_operation(method)? else { return Ok(None) };
            match refused_or_not(connection.unary(operation, Outbound::Message(request), deadline, Some(method)).await)
            {
                Err(next) => status = next,
                answered => return answered.map(Some),
            }
        }
    }

    /// Returns the connection for another attempt.
    ///
    /// Fails with the status of the last attempt if the call must not be retried or the channel cannot reconnect.
    pub(super) async fn another(
        self: &Arc<Self>,
        attempts: &mut Attempts,
        last: Arc<ClientConnection>,
        status: Status,
    ) -> Result<Arc<ClientConnection>, Status> {
        if self.redial.is_none() {
            return Err(status);
        }
        if is_draining(&status) {
            // Equivalent to a request to leave, which may still be in flight.
            last.go_away(GoAway { code: GoAway::SHUTDOWN, text: Refusal::Draining.to_string().into() });
        }
        // This handle may be the last one that keeps the connection open.
        drop(last);
        attempts.begin_another(status).await?;
        self.open(attempts.deadline()).await
    }

    /// Opens the stream of a call. Returns its connection as well.
    pub(super) async fn open_stream(
        self: &Arc<Self>,
        call: &StreamCall<'_>,
    ) -> Result<(Arc<ClientConnection>, Opened), Status> {
        let mut attempts = Attempts::new(call.opening);
        let mut connection = self.open(call.opening).await?;
        loop {
            let opening = async {
                self.check_call(&connection, call).await?;
                connection.open(call).await
            };
            match opening.await {
                Ok(opened) => return Ok((connection, opened)),
                Err(status) => connection = self.another(&mut attempts, connection, status).await?,
            }
        }
    }

    /// Checks a streaming call before it is opened.
    ///
    /// Waits until the peer is recognized: with the wrong operation number, the messages could reach another method
    /// before the peer reports an error. Checks also that the messages fit, and that metadata is not lost unless this
    /// is allowed.
    pub(super) async fn check_call(&self, connection: &ClientConnection, call: &StreamCall<'_>) -> Result<(), Status> {
        connection.extended(call.opening).await?;
        connection.check_fit(call.method, call.opening).await?;
        match connection.way(call.method) {
            None | Some(Way::Plain) => self.check_head(call.method, call.head),
            Some(Way::Extended { .. } | Way::Missing) => Ok(()),
        }
    }

    /// Returns the format for a call with encoded messages. Waits until the peer is recognized.
    pub(crate) async fn bytes_format(self: &Arc<Self>, deadline: Deadline) -> Result<Format, Status> {
        let extended = self.open(deadline).await?.extended(deadline).await?.is_some();
        Ok(if extended { Format::Proto } else { Format::Polyglot })
    }

    /// Returns the format for a call to a method, on the connection that it will probably use.
    ///
    /// Waits for the connection. With `waits`, it also waits until the peer is recognized, for calls with streams or
    /// with more than a plain packet.
    pub(crate) async fn format(
        self: &Arc<Self>,
        method: &'static Method,
        waits: bool,
        deadline: Deadline,
    ) -> Result<Format, Status> {
        let connection = self.open(deadline).await?;
        if waits {
            connection.extended(deadline).await?;
        }
        match connection.way(method) {
            Some(Way::Extended { format, .. }) => Ok(format),
            _ => Ok(Format::Polyglot),
        }
    }

    /// Makes a unary call with metadata or its own timeout on the current connection.
    ///
    /// `None` if the call has to wait, needs a check first, or has to be retried.
    pub(crate) async fn unary_at_once(
        &self,
        method: &'static Method,
        head: &Head,
        encode: impl Fn() -> Pieces,
        deadline: Deadline,
    ) -> Option<Result<Answer, Status>> {
        let mut later = None;
        let connection = self.first().unwrap_or_else(|| later.insert(self.current()));
        let remote = connection.remote().filter(|_| !self.compresses)?;
        let reply = match (remote.way(method), remote.extended()) {
            (Way::Extended { operation, format: format @ Format::Polyglot }, Some(said)) => {
                if let Err(status) = check_metadata(metadata_len(head.metadata()), said.metadata_len_max) {
                    return Some(Err(status));
                }
                let (timeout, message) = (self.untold(deadline), encode().into());
                connection.unary_extended(operation, format, head, timeout, message, deadline).await
            }
            // A plain peer cannot be told the timeout. Only this side enforces it.
            (Way::Plain, _) if head.metadata().is_empty() => {
                let operation = remote.plain_operation(method)?;
                let content = Content::from(encode());
                refused_or_not(connection.unary(operation, content.into(), deadline, Some(method)).await)
            }
            _ => return None,
        };
        let answer = reply.and_then(|reply| timely_answer_of(reply, connection, deadline));
        Some(answer).filter(|answer| !matches!(answer, Err(status) if needs_another_connection(status)))
    }

    /// Returns the deadline if it has to be sent: `None` if the peer already knows the timeout.
    pub(super) fn untold(&self, deadline: Deadline) -> Option<Deadline> {
        Some(deadline).filter(|deadline| Some(deadline.limit) != self.announced)
    }

    /// Makes a unary call that may need an extended packet.
    pub(super) async fn unary_extended(self: &Arc<Self>, call: UnaryCall<'_>) -> Result<Answer, Status> {
        let (mut connection, mut attempts) = (self.current(), Attempts::new(call.deadline));
        loop {
            match self.try_unary(&connection, &call).await {
                Err(status) if needs_another_connection(&status) => {
                    connection = self.another(&mut attempts, connection, status).await?;
                }
                answered => return answered,
            }
        }
    }

    async fn try_unary(&self, connection: &ClientConnection, call: &UnaryCall<'_>) -> Result<Answer, Status> {
        let UnaryCall { method, format, head, ref content, timeout, deadline } = *call;
        let has_metadata = !head.metadata().is_empty();
        // No wait for the peer because of a timeout, since this side enforces it as well. Plain packets carry only
        // polyglot, so any other format has to wait.
        let waits = has_metadata || format != Format::Polyglot;
        let extended = if waits { connection.extended(deadline).await? } else { connection.known_extended() };
        let way = connection.way(method).unwrap_or(Way::Plain);
        let says_more = waits || timeout.is_some();
        let reply = match (way, way.operation_in(format)) {
            (Way::Missing, _) => return Err(missing(method)),
            (_, Some(operation)) => {
                connection.check_fit(method, deadline).await?;
                let message = Outgoing::new(content.clone(), connection.deflating());
                let says_more = says_more || message.compressed.is_some();
                let plain = connection.plain_operation(method)?.filter(|_| !says_more);
                match plain {
                    Some(plain) => {
                        connection.unary(plain, Content::from(content.clone()).into(), deadline, Some(method)).await?
                    }
                    None => {
                        let metadata_max = extended.map_or(0, |said| said.metadata_len_max);
                        check_metadata(metadata_len(head.metadata()), metadata_max)?;
                        connection.unary_extended(operation, format, head, timeout, message, deadline).await?
                    }
                }
            }
            (Way::Plain, _) if format == Format::Polyglot => {
                self.check_head(method, head)?;
                let Some(plain) = connection.plain_operation(method)? else { return Err(changed(method)) };
                connection.unary(plain, Content::from(content.clone()).into(), deadline, Some(method)).await?
            }
            (Way::Plain, _) if extended.is_some() => return Err(missing(method)),
            (Way::Extended { .. } | Way::Plain, _) => return Err(changed(method)),
        };
        timely_answer_of(reply, connection, deadline)
    }

    pub(crate) fn current(&self) -> Arc<ClientConnection> {
        self.current_place().clone()
    }

    /// Returns the connection for a new call, and replaces it first if it is lost.
    pub(crate) async fn open(self: &Arc<Self>, deadline: Deadline) -> Result<Arc<ClientConnection>, Status> {
        client::open(self, deadline).await
    }
}

impl Replaceable for Reconnecting {
    type Connection = ClientConnection;

    fn redial(&self) -> Option<&Redial<ClientConnection>> {
        self.redial.as_ref()
    }

    fn current(&self) -> Arc<ClientConnection> {
        Self::current(self)
    }

    fn replace(self: &Arc<Self>, next: Arc<ClientConnection>) {
        self.put(self.current_place(), next.clone());
        self.compare_declared(&next);
        // The server may already have asked to leave this connection.
        self.let_go_of(&next);
    }

    fn takes_calls(connection: &ClientConnection) -> bool {
        connection.takes_calls()
    }

    fn heard(connection: &ClientConnection) -> u64 {
        connection.heard()
    }
}

/// A unary call that may be made more than once.
pub(super) struct UnaryCall<'a> {
    pub(super) method: &'static Method,
    pub(super) format: Format,
    pub(super) head: &'a Head,
    pub(super) content: Pieces,
    /// The deadline to send, if the peer would not know it otherwise.
    pub(super) timeout: Option<Deadline>,
    pub(super) deadline: Deadline,
}

/// Decodes an answer. If both sides timed out, the error is that of this side.
fn timely_answer_of(reply: Reply, connection: &ClientConnection, deadline: Deadline) -> Result<Answer, Status> {
    answer_of(reply, connection).map_err(|status| with_own_timeout(status, Some(deadline)))
}

/// Decodes an answer within the limits of its connection.
pub(crate) fn answer_of(reply: Reply, connection: &ClientConnection) -> Result<Answer, Status> {
    let content = match reply {
        Reply::Plain(content) => return Ok(Answer::new(Body::One(message_or_status(content)?.into()))),
        Reply::Extended(content) => content,
    };
    match Envelope::decode(content, connection.metadata_max())? {
        Envelope::Answer { head, mut message } => {
            if let Some(compressed) = head.compressed {
                message = connection.inflate(compressed, &message)?;
            }
            let mut answer = Answer::new(Body::One(message.into()));
            if !head.metadata.is_empty() {
                *answer.metadata_mut() = head.metadata;
            }
            if !head.trailers.is_empty() {
                *answer.trailers_mut() = head.trailers;
            }
            Ok(answer)
        }
        Envelope::Failure(head) => Err(head.into_server_status()),
        Envelope::Request { .. } | Envelope::Describe { .. } => {
            Err(Status::internal("the peer answered with a request"))
        }
    }
}

impl Reconnecting {
    /// Fails or logs a warning if the call would lose metadata.
    fn check_head(&self, method: &'static Method, head: &Head) -> Result<(), Status> {
        let Some(name) = head.metadata().keys().next() else { return Ok(()) };
        match self.lost_metadata {
            LostMetadata::Fail => Err(CallError::MetadataNotCarried { name: name.to_owned() }.into()),
            LostMetadata::Warn => {
                warn!(%method, name, "the peer speaks plain fRPC, which carries no metadata: the call goes without");
                Ok(())
            }
        }
    }
}
