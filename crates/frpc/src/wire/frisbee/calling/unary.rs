//! Unary calls: sent immediately on the first connection in a plain packet, or in steps that wait and retry.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use frisbee::{Connection, Content, Packet, PacketName, SendPosition, TrySendError};

use super::{
    super::{
        bytes::{
            compressed::OutgoingMessage,
            envelope::{self, Envelope, check_metadata, metadata_len},
            hello::MethodRoute,
            stream_framing::message_or_status,
        },
        peer::PeerState,
    },
    connection::{ClientConnection, OutgoingRequest, SendableRequest, method_missing, schema_changed},
    pending::PendingCall,
    reconnecting::FrisbeeCaller,
    table::CallReply,
};
use crate::{
    call::{
        deadline::Deadline,
        exchange::{Answer, Body},
        head::Head,
        method::Method,
        status::Status,
    },
    client::{CallAttempts, is_draining, needs_another_connection, with_own_timeout},
    codec::{self, EncodedMessage, Format, Message},
    service::boxed::BoxFuture,
};

/// A request encoded at the moment of sending. A small message needs no allocation.
pub(crate) struct UnencodedRequest<'a, M>(pub(crate) &'a M);

impl<M: Message> SendableRequest for UnencodedRequest<'_, M> {
    #[inline]
    fn try_send(&self, connection: &Connection, name: PacketName) -> Result<SendPosition, TrySendError> {
        let PacketName { id, operation } = name;
        match codec::encode_small(self.0) {
            EncodedMessage::Small(message) => connection.try_send_copied(name, &message).map_err(|error| match error {
                TrySendError::Full(()) => TrySendError::Full(Packet::new(id, operation, message.to_vec())),
                TrySendError::Failed(error) => TrySendError::Failed(error),
            }),
            pieces => connection.try_send(Packet { id, operation, content: pieces.into() }),
        }
    }
}

/// A plain unary call as a single future, so no state is moved between futures.
///
/// Any call that cannot proceed immediately continues in a boxed future. The output is `None` if the call needs an
/// extended packet.
pub(crate) struct PlainCall<'a> {
    wire: &'a Arc<FrisbeeCaller>,
    connection: &'a ClientConnection,
    method: &'static Method,
    request: &'a (dyn SendableRequest + Sync),
    deadline: Deadline,
    step: CallStep<'a>,
}

enum CallStep<'a> {
    Begin,
    Wait(PendingCall<'a>, SendPosition),
    Boxed(BoxFuture<'a, Result<Option<CallReply>, Status>>),
}

impl FrisbeeCaller {
    /// Makes a plain unary call on the first connection, if it is the current one.
    #[inline]
    pub(crate) fn plain_call<'a>(
        self: &'a Arc<Self>,
        method: &'static Method,
        request: &'a (dyn SendableRequest + Sync),
        deadline: Deadline,
    ) -> Option<PlainCall<'a>> {
        let connection = self.first()?;
        Some(PlainCall { wire: self, connection, method, request, deadline, step: CallStep::Begin })
    }
}

impl<'a> PlainCall<'a> {
    /// Sends the request. `None` if that is not possible immediately. In that case, nothing was sent.
    fn begin(&self, cx: &Context<'_>) -> Option<(PendingCall<'a>, SendPosition)> {
        let Self { connection, method, request, deadline, .. } = *self;
        // `None` for a peer not recognized yet: such a call needs a check after its answer.
        let operation = connection.peer()?.plain_operation(method)?;
        let begun = connection.calls.try_begin(operation.number(), deadline.at, Some(cx.waker()));
        let mut call = begun.ok().flatten()?;
        let sent = request.try_send(&connection.connection, PacketName { id: call.id, operation }).ok()?;
        call.sent(Some(&connection.connection));
        Some((call, sent))
    }
}

impl Future for PlainCall<'_> {
    type Output = Result<Option<CallReply>, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let &mut Self { wire, connection, method, request, deadline, .. } = this;
        match &mut this.step {
            CallStep::Begin => match this.begin(cx) {
                // The table has the waker. An answer since then has woken it.
                Some((call, sent)) => {
                    this.step = CallStep::Wait(call, sent);
                    return Poll::Pending;
                }
                None => this.step = CallStep::Boxed(Box::pin(wire.unary(method, request, deadline, None))),
            },
            CallStep::Wait(call, sent) => {
                let answer = ready!(call.poll_answered(cx));
                let answer = answer.map_err(|unanswered| connection.unanswered(unanswered, deadline, *sent));
                match check_refusal(answer) {
                    Err(status) if needs_another_connection(&status) => {
                        let connection = Arc::new(connection.detached_handle());
                        let again = wire.unary(method, request, deadline, Some((connection, status)));
                        this.step = CallStep::Boxed(Box::pin(again));
                    }
                    answered => return Poll::Ready(answered.map(Some)),
                }
            }
            CallStep::Boxed(_) => {}
        }
        match &mut this.step {
            CallStep::Boxed(call) => call.as_mut().poll(cx),
            CallStep::Begin | CallStep::Wait(..) => unreachable!("both took a step"),
        }
    }
}

impl FrisbeeCaller {
    /// Makes a unary call in a plain packet, after a failed attempt if there was one. `None` if the call needs an
    /// extended packet.
    ///
    /// The first attempt assumes that the connection is open. Later attempts check first.
    pub(crate) async fn unary(
        self: &Arc<Self>,
        method: &'static Method,
        request: &(dyn SendableRequest + Sync),
        deadline: Deadline,
        mut failed: Option<(Arc<ClientConnection>, Status)>,
    ) -> Result<Option<CallReply>, Status> {
        let mut attempts = CallAttempts::new(deadline);
        loop {
            let connection = match failed {
                None => self.current(),
                // Boxed, so only retried calls pay for the memory of this future.
                Some((last, status)) => Box::pin(self.next_connection(&mut attempts, last, status)).await?,
            };
            let Some(operation) = connection.plain_operation(method)? else { return Ok(None) };
            match check_refusal(
                connection.unary(operation, OutgoingRequest::Message(request), deadline, Some(method)).await,
            ) {
                Err(status) if needs_another_connection(&status) => failed = Some((connection, status)),
                outcome => return outcome.map(Some),
            }
        }
    }

    /// Makes a unary call with metadata or its own timeout on the current connection.
    ///
    /// `None` if the call has to wait, needs a check first, or has to be retried.
    pub(crate) async fn try_unary_now(
        &self,
        method: &'static Method,
        head: &Head,
        encode: impl Fn() -> EncodedMessage,
        deadline: Deadline,
    ) -> Option<Result<Answer, Status>> {
        let mut later = None;
        let connection = self.first().unwrap_or_else(|| later.insert(self.current()));
        let peer = connection.peer().filter(|_| !self.compresses)?;
        let reply = match (peer.route(method), peer.extended()) {
            (MethodRoute::Extended { operation, format: format @ Format::Polyglot }, Some(said)) => {
                if let Err(status) = check_metadata(metadata_len(head.metadata()), said.metadata_len_max) {
                    return Some(Err(status));
                }
                let (timeout, message) = (self.deadline_to_send(deadline), encode().into());
                connection.unary_extended(operation, format, head, timeout, message, deadline).await
            }
            // A plain peer cannot be told the timeout. Only this side enforces it.
            (MethodRoute::Plain, _) if head.metadata().is_empty() => {
                let operation = peer.plain_operation(method)?;
                connection.unary(operation, Content::from(encode()).into(), deadline, Some(method)).await
            }
            _ => return None,
        };
        let answer = reply.and_then(|reply| timely_answer_of(reply, connection, deadline));
        Some(answer).filter(|answer| !matches!(answer, Err(status) if needs_another_connection(status)))
    }

    /// Makes a unary call that may need an extended packet.
    pub(super) async fn unary_extended(self: &Arc<Self>, call: UnaryCall<'_>) -> Result<Answer, Status> {
        let (mut connection, mut attempts) = (self.current(), CallAttempts::new(call.deadline));
        loop {
            match self.try_unary(&connection, &call).await {
                Err(status) if needs_another_connection(&status) => {
                    connection = self.next_connection(&mut attempts, connection, status).await?;
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
        let route = connection.route(method).unwrap_or(MethodRoute::Plain);
        let says_more = waits || timeout.is_some();
        let reply = match (route, route.operation_in(format)) {
            (MethodRoute::Missing, _) => return Err(method_missing(method)),
            (_, Some(operation)) => {
                connection.check_schema(method, deadline).await?;
                let message = OutgoingMessage::new(content.clone(), PeerState::deflating(&connection.connection));
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
            (MethodRoute::Plain, _) if format == Format::Polyglot => {
                self.check_head(method, head)?;
                let Some(plain) = connection.plain_operation(method)? else { return Err(schema_changed(method)) };
                connection.unary(plain, Content::from(content.clone()).into(), deadline, Some(method)).await?
            }
            (MethodRoute::Plain, _) if extended.is_some() => return Err(method_missing(method)),
            (MethodRoute::Extended { .. } | MethodRoute::Plain, _) => return Err(schema_changed(method)),
        };
        timely_answer_of(reply, connection, deadline)
    }
}

/// A unary call that may be made more than once.
pub(super) struct UnaryCall<'a> {
    pub(super) method: &'static Method,
    pub(super) format: Format,
    pub(super) head: &'a Head,
    pub(super) content: EncodedMessage,
    /// The deadline to send, if the peer would not know it otherwise.
    pub(super) timeout: Option<Deadline>,
    pub(super) deadline: Deadline,
}

/// Decodes an answer. If both sides timed out, the error is that of this side.
fn timely_answer_of(reply: CallReply, connection: &ClientConnection, deadline: Deadline) -> Result<Answer, Status> {
    decode_answer(reply, connection).map_err(|status| with_own_timeout(status, Some(deadline)))
}

/// Decodes an answer within the limits of its connection.
pub(crate) fn decode_answer(reply: CallReply, connection: &ClientConnection) -> Result<Answer, Status> {
    let content = match reply {
        CallReply::Plain(content) => return Ok(Answer::new(Body::One(message_or_status(content)?.into()))),
        CallReply::Extended(content) => content,
    };
    match Envelope::decode(content, connection.own.metadata_max)? {
        Envelope::Answer { head, mut message } => {
            if let Some(compressed) = head.compressed {
                message = PeerState::inflate_answer(&connection.connection, compressed, &message)?;
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

/// Turns the answer of a peer in shutdown into an error. Other answers stay unchanged.
#[inline]
pub(super) fn check_refusal(answer: Result<CallReply, Status>) -> Result<CallReply, Status> {
    match &answer {
        Ok(CallReply::Extended(content)) if envelope::is_failure(content) => refusal(content).map_or(answer, Err),
        _ => answer,
    }
}

/// Decodes a failure, and returns it if it reports a shutdown. Other failures are decoded with the response.
#[cold]
fn refusal(content: &Bytes) -> Option<Status> {
    let Ok(Envelope::Failure(head)) = Envelope::decode(content.clone(), usize::MAX) else { return None };
    Some(head.into_server_status()).filter(is_draining)
}
