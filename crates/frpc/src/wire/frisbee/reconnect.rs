//! The connection of a channel, and the way to another when that is lost.

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

/// The choices for a call with metadata to a peer that cannot take it, as none can whose wire is plain fRPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostMetadata {
    /// The call fails with [`CallError::MetadataNotCarried`], so that nobody relies on what never arrives.
    #[default]
    Fail,
    /// The call is made without it, with a line in the log.
    Warn,
}

/// Makes connections that are all alike.
pub(crate) struct Dialer<S, R> {
    pub(crate) client: frisbee::Client<()>,
    pub(crate) services: Arc<Services<S, R>>,
    pub(crate) calls_max: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) timeout: Duration,
}

impl<S: ServiceSet, R: Router> Dialer<S, R> {
    /// Returns a client that connects once, and the calls that will wait on that connection.
    pub(crate) fn client(&self) -> (frisbee::Client<AnswerRouter<S, R>>, Arc<PendingCalls>) {
        let calls = Arc::new(PendingCalls::new(self.calls_max));
        let said = self.services.said(Some(self.timeout));
        let calling = AnswerRouter { calls: calls.clone(), services: self.services.clone(), said };
        (self.client.with_router(calling), calls)
    }

    pub(crate) fn serve(&self, connection: Connection, calls: Arc<PendingCalls>) -> ClientConnection {
        let (serves, metadata_max) = (self.services.table().clone(), self.services.metadata_max());
        let compressing = self.services.compressing.clone();
        ClientConnection::new(connection, calls, self.when_full, serves, metadata_max, compressing)
    }
}

/// The connection of a channel, and how to get another when it is lost.
pub(crate) struct Reconnecting {
    /// The first connection, not kept open by this: calls find it without a lock as long as it is the current one.
    first: ClientConnection,
    is_first: AtomicBool,
    current: Mutex<Arc<ClientConnection>>,
    pub(super) redial: Option<Redial<ClientConnection>>,
    lost_metadata: LostMetadata,
    /// The time of calls that peers were told of.
    pub(crate) announced: Option<Duration>,
    /// True if messages are compressed, for peers that inflate them.
    pub(crate) compresses: bool,
    /// The methods of clients that are going to call them, which every peer is compared with.
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

    /// Returns the first connection as long as there was no other.
    #[inline]
    pub(super) fn first(&self) -> Option<&ClientConnection> {
        // Relaxed: a call on the first one after there is another finds that it takes none.
        self.is_first.load(Ordering::Relaxed).then_some(&self.first)
    }

    /// Puts another connection in the place of the current one, which stays open until its calls are over.
    fn put(&self, mut current: MutexGuard<'_, Arc<ClientConnection>>, next: Arc<ClientConnection>) {
        self.is_first.store(false, Ordering::Relaxed);
        let before = mem::replace(&mut *current, next);
        // The last handle closes it, which is none of the business of those that wait for the lock.
        drop(current);
        before.close_when_idle();
    }

    /// Lets go of a connection when its peer wants no new calls there, so that it closes with its last call.
    fn let_go_of(self: &Arc<Self>, connection: &ClientConnection) {
        let wire = Arc::downgrade(self);
        connection.on_leaving(move || {
            let Some(wire) = wire.upgrade() else { return };
            let current = wire.current_place();
            // There may be another by now.
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

    /// Makes a unary call. The first attempt trusts that the connection is open, the second looks. `None` if plain packets do not
    /// say enough.
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
                // Boxed, so that only calls that need it hold the memory for it.
                Box::pin(self.unary_again(connection, status, method, request, deadline)).await
            }
            outcome => outcome.map(Some),
        }
    }

    /// Makes a unary call again that came to this status on its first connection.
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

    /// Returns the connection for another attempt to make a call. Fails with the status of the last if there is to be none, or if
    /// there can be no other connection.
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
            // As good as if it had asked to leave: plain peers have no other word for it.
            last.go_away(GoAway { code: GoAway::SHUTDOWN, text: Refusal::Draining.to_string().into() });
        }
        // It may be what keeps the connection open.
        drop(last);
        attempts.begin_another(status).await?;
        self.open(attempts.deadline()).await
    }

    /// Opens the stream of a call, and returns the connection that it is on.
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

    /// Waits until the peer is known: where the numbers of methods differ, the messages of a stream would reach another one
    /// before anything comes back that tells. Checks that its messages fit, and that it loses no metadata on this connection, or
    /// may.
    pub(super) async fn check_call(&self, connection: &ClientConnection, call: &StreamCall<'_>) -> Result<(), Status> {
        connection.extended(call.opening).await?;
        connection.check_fit(call.method, call.opening).await?;
        match connection.way(call.method) {
            None | Some(Way::Plain) => self.check_head(call.method, call.head),
            Some(Way::Extended { .. } | Way::Missing) => Ok(()),
        }
    }

    /// Returns the format of a call that is made with bytes. Waits until the peer is known.
    pub(crate) async fn bytes_format(self: &Arc<Self>, deadline: Deadline) -> Result<Format, Status> {
        let extended = self.open(deadline).await?.extended(deadline).await?.is_some();
        Ok(if extended { Format::Proto } else { Format::Polyglot })
    }

    /// Returns the format of a call to a method, on the connection that it will probably go over. Waits for that, and for
    /// what its peer says of itself if the call `waits` for that: one with streams, or that needs more than plain packets.
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

    /// Makes a unary call with metadata or a time of its own on the connection that is there. `None` if something has to be waited
    /// for or to be looked at first, or the call to be made again.
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
            // This side keeps the time of a call to a peer that cannot be told of it.
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

    /// Returns the time to tell a peer of, unless it knows.
    pub(super) fn untold(&self, deadline: Deadline) -> Option<Deadline> {
        Some(deadline).filter(|deadline| Some(deadline.limit) != self.announced)
    }

    /// Makes a unary call that may need more than plain packets.
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
        // A timeout is kept on this side as well, so nobody waits to tell of it.
        // Only polyglot goes in plain packets.
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
        // The server may already ask the channel to leave it.
        self.let_go_of(&next);
    }

    fn takes_calls(connection: &ClientConnection) -> bool {
        connection.takes_calls()
    }

    fn heard(connection: &ClientConnection) -> u64 {
        connection.heard()
    }
}

/// A unary call on its way, which may be made more than once.
pub(super) struct UnaryCall<'a> {
    pub(super) method: &'static Method,
    pub(super) format: Format,
    pub(super) head: &'a Head,
    pub(super) content: Pieces,
    /// The time to tell the peer of, if it would not know.
    pub(super) timeout: Option<Deadline>,
    pub(super) deadline: Deadline,
}

/// Returns the answer that a packet brought. Both sides look at the clock: if time is up, it is that of this side.
fn timely_answer_of(reply: Reply, connection: &ClientConnection, deadline: Deadline) -> Result<Answer, Status> {
    answer_of(reply, connection).map_err(|status| with_own_timeout(status, Some(deadline)))
}

/// Returns the answer that a packet brought, within the limits of its connection.
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
        Envelope::Failure(head) => Err(head.into_status().with_known_cause()),
        Envelope::Request { .. } | Envelope::Describe { .. } => {
            Err(Status::internal("the peer answered with a request"))
        }
    }
}

impl Reconnecting {
    /// Does what is to be done when metadata would be lost.
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
