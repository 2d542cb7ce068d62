//! Unary calls: one future with a fast step and a slow step.
//!
//! The fast step sends the request on the current connection, without waiting and without a box. The slow step dials,
//! waits for the peer, for a free call or for room in the outbox, and repeats calls that were certainly not executed.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use frisbee::{Operation, PacketName, SendPosition};

use super::{
    super::{
        bytes::{
            compressed::OutgoingMessage,
            envelope::{self, Envelope},
            stream_framing::message_or_status,
        },
        peer::PeerState,
    },
    connection::ClientConnection,
    pending::PendingCall,
    reconnecting::FrisbeeCaller,
    request::{OutgoingRequest, UnaryRequest},
    route::CallRoute,
    table::CallReply,
};
use crate::{
    call::{
        deadline::{CallTime, Deadline},
        exchange::{Answer, Body, decode_response},
        head::Head,
        measure::ChannelMeasure,
        meter::nanos_since,
        method::Method,
        request::Response,
        status::Status,
    },
    client::{CallAttempts, needs_another_connection, with_own_timeout},
    codec::{Format, MemoryBudget, Message, json::Types},
};

/// The parameters of a unary call.
pub(crate) struct UnaryCall<'a> {
    method: &'static Method,
    /// The format of an encoded message. `None` for a message that can be encoded as the peer requires.
    format: Option<Format>,
    head: &'a Head,
    request: &'a dyn UnaryRequest,
    /// The deadline to send, if the peer would not know it otherwise.
    timeout: Option<Deadline>,
    deadline: Deadline,
    /// True if a plain packet cannot carry every part of the call.
    needs_envelope: bool,
}

/// The packet of one attempt, apart from its id.
struct OutgoingPacket<'a> {
    operation: Operation,
    request: OutgoingRequest<'a>,
    /// The format of the answer, if an envelope carries it.
    format: Format,
}

/// The reply to a unary call.
pub(crate) enum UnaryReply {
    /// A message in polyglot or an encoded status, from a plain packet.
    Plain(Bytes),
    /// The answer in an envelope, with its format.
    Enveloped(Format, Answer),
}

impl UnaryReply {
    /// Returns the length of its message.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(content) => content.len(),
            Self::Enveloped(_, answer) => answer.body().content_len().unwrap_or_default(),
        }
    }
}

impl<'a> UnaryCall<'a> {
    #[inline]
    pub(crate) fn new(
        wire: &FrisbeeCaller,
        method: &'static Method,
        format: Option<Format>,
        head: &'a Head,
        request: &'a dyn UnaryRequest,
        CallTime { opening: deadline, whole }: CallTime,
    ) -> Self {
        let timeout = Some(deadline).filter(|deadline| Some(deadline.limit) != wire.announced);
        // Without an announcement, the default timeout of a channel is not worth an envelope.
        let needs_envelope = timeout.is_some() && (whole.is_some() || wire.announced.is_some())
            || !head.metadata().is_empty()
            || format.is_some_and(|format| format != Format::Polyglot);
        Self { method, format, head, request, timeout, deadline, needs_envelope }
    }

    /// Returns the operation for the message in a plain packet, if it is certain that such a packet is sufficient.
    #[inline]
    fn plain_operation(&self, peer: &PeerState) -> Option<Operation> {
        if self.needs_envelope { None } else { peer.plain_operation(self.method) }
    }

    fn plain_packet(&self, operation: Operation) -> OutgoingPacket<'a> {
        OutgoingPacket { operation, request: OutgoingRequest::Message(self.request), format: Format::Polyglot }
    }

    /// Returns the packet for a route.
    fn packet(&self, connection: &ClientConnection, route: CallRoute) -> Result<OutgoingPacket<'a>, Status> {
        let (operation, format) = match route {
            CallRoute::Plain { operation, .. } => return Ok(self.plain_packet(operation)),
            CallRoute::Extended { operation, format } => (operation, format),
        };
        let deflating = PeerState::deflating(&connection.connection);
        let plain = connection.peer().and_then(|peer| self.plain_operation(peer));
        let message = match plain {
            Some(plain) if deflating.is_none() => return Ok(self.plain_packet(plain)),
            _ => OutgoingMessage::new(self.request.encode(format)?, deflating),
        };
        let (operation, content) = match plain.filter(|_| message.compressed.is_none()) {
            Some(plain) => (plain, message.message),
            None => {
                // A timeout beyond any instant is sent as well. Without it, the announced timeout would apply.
                let left = self.timeout.map(|deadline| deadline.left().unwrap_or(Duration::MAX));
                let content = envelope::request(operation, format, left, self.head.metadata(), message);
                (Operation::EXTENDED, content)
            }
        };
        Ok(OutgoingPacket { operation, request: OutgoingRequest::Encoded(content), format })
    }

    /// Returns the answer in a reply.
    pub(super) fn answer(&self, reply: UnaryReply) -> Result<Answer, Status> {
        match reply {
            UnaryReply::Enveloped(_, answer) => Ok(answer),
            UnaryReply::Plain(content) => match message_or_status(content) {
                Ok(message) => Ok(Answer::new(Body::One(message.into()))),
                Err(status) => Err(with_own_timeout(status, Some(self.deadline))),
            },
        }
    }

    /// Decodes the response in a reply.
    #[inline]
    pub(crate) fn response<P: Message>(
        &self,
        reply: UnaryReply,
        memory: MemoryBudget,
        any_types: &'static Types,
    ) -> Result<Response<P>, Status> {
        match reply {
            UnaryReply::Plain(content) => match decode_response(self.method, Format::Polyglot, &content, memory) {
                Ok(message) => Ok(Response::new(message)),
                Err(status) => Err(with_own_timeout(status, Some(self.deadline))),
            },
            UnaryReply::Enveloped(format, answer) => answer.into_response(self.method, format, memory, any_types),
        }
    }

    /// Reads a reply to a packet whose answer has this format. If both sides timed out, the error is that of this side.
    #[inline]
    fn read(&self, reply: CallReply, format: Format, connection: &ClientConnection) -> Result<UnaryReply, Status> {
        match reply {
            CallReply::Plain(content) => Ok(UnaryReply::Plain(content)),
            CallReply::Extended(content) => match decode_envelope(content, connection) {
                Ok(answer) => Ok(UnaryReply::Enveloped(format, answer)),
                Err(status) => Err(with_own_timeout(status, Some(self.deadline))),
            },
        }
    }
}

impl FrisbeeCaller {
    /// Makes a unary call. Returns the reply, and the nanoseconds from the measured start to its arrival. Zero without one.
    pub(crate) async fn unary(
        self: &Arc<Self>,
        call: &UnaryCall<'_>,
        measure: Option<&ChannelMeasure<'_>>,
    ) -> Result<(UnaryReply, u64), Status> {
        let start = measure.and_then(ChannelMeasure::start);
        let mut later = None;
        let connection = self.first().unwrap_or_else(|| &**later.insert(self.current()));
        let failed = match poll_fn(|cx| Poll::Ready(self.try_begin(connection, call, cx))).await {
            None => None,
            Some((mut pending, sent, format)) => {
                let reply = pending.answered().await.map_err(|why| connection.unanswered(why, call.deadline, sent));
                match reply.and_then(|reply| call.read(reply, format, connection)) {
                    Err(status) if needs_another_connection(&status) => {
                        Some((Arc::new(connection.detached_handle()), status))
                    }
                    // No other reading of the clock for this call.
                    outcome => {
                        let nanos = start.map_or(0, |start| connection.connection.nanos_to_turn(start));
                        return outcome.map(|reply| (reply, nanos));
                    }
                }
            }
        };
        // The handle may be the last one that keeps the connection open.
        drop(later);
        let calling = Box::pin(self.unary_slowly(call, failed));
        let reply = match measure {
            Some(measure) => measure.with_waits(calling).await?,
            None => calling.await?,
        };
        Ok((reply, start.map_or(0, nanos_since)))
    }

    /// The fast step: sends the request. `None` if the call has to wait or needs a check first. In that case, nothing
    /// was sent.
    #[inline]
    fn try_begin<'a>(
        &self,
        connection: &'a ClientConnection,
        call: &UnaryCall<'_>,
        cx: &Context<'_>,
    ) -> Option<(PendingCall<'a>, SendPosition, Format)> {
        let peer = connection.peer()?;
        let OutgoingPacket { operation, request, format } = match call.plain_operation(peer) {
            Some(plain) if !self.compresses => call.plain_packet(plain),
            _ => self.extended_packet(connection, peer, call)?,
        };
        // The table gets the waker of this poll, so the first check for the answer needs no lock.
        let begun = connection.calls.try_begin(operation.number(), call.deadline.at, Some(cx.waker()));
        let mut pending = begun.ok().flatten()?;
        let sent = request.try_send(&connection.connection, PacketName { id: pending.id, operation }).ok()?;
        pending.sent(Some(&connection.connection));
        Some((pending, sent, format))
    }

    /// Returns the packet for a call with more than a plain message.
    #[cold]
    fn extended_packet<'a>(
        &self,
        connection: &ClientConnection,
        peer: &PeerState,
        call: &UnaryCall<'a>,
    ) -> Option<OutgoingPacket<'a>> {
        let UnaryCall { method, format, head, .. } = *call;
        if !peer.fits(method) {
            return None;
        }
        let route = self.route(connection, Some(peer), method, format, head);
        route.and_then(|route| call.packet(connection, route)).ok()
    }

    /// The slow step: makes a call that has to wait, or that has failed on a connection.
    async fn unary_slowly(
        self: &Arc<Self>,
        call: &UnaryCall<'_>,
        failed: Option<(Arc<ClientConnection>, Status)>,
    ) -> Result<UnaryReply, Status> {
        let mut attempts = CallAttempts::new(call.deadline);
        let connection = match failed {
            None => self.current(),
            Some((last, status)) => self.next_connection(&mut attempts, last, status).await?,
        };
        let attempt = |connection| async move { self.attempt(&connection, call).await };
        Ok(self.repeat(connection, &mut attempts, attempt).await?.1)
    }

    async fn attempt(&self, connection: &Arc<ClientConnection>, call: &UnaryCall<'_>) -> Result<UnaryReply, Status> {
        let UnaryCall { method, format, head, deadline, .. } = *call;
        // No wait for the peer because of a timeout, since this side enforces it as well. Plain packets carry only
        // polyglot, so any other format has to wait.
        let waits = !head.metadata().is_empty() || format.is_some_and(|format| format != Format::Polyglot);
        let route = self.prepare(connection, method, format, head, waits, deadline).await?;
        let OutgoingPacket { operation, request, format } = call.packet(connection, route)?;
        let reply = connection.exchange(operation, request, deadline, method).await?;
        if let CallRoute::Plain { operation, is_assumed: true } = route {
            connection.check_assumed(method, operation)?;
        }
        call.read(reply, format, connection)
    }
}

/// Decodes an answer in an envelope, within the limits of its connection.
pub(super) fn decode_envelope(content: Bytes, connection: &ClientConnection) -> Result<Answer, Status> {
    let content = match envelope::bare_answer_message(content) {
        // The common case.
        Ok(message) => return Ok(Answer::new(Body::One(message.into()))),
        Err(content) => content,
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
