//! Unary calls on the server: from a packet to the handler, and the answer back.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use frisbee::{Connection, Content, Operation, Outcome, Packet, PacketName, Router};
use futures_util::{FutureExt as _, future::Either};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::{
    super::{
        bytes::{
            compressed::OutgoingMessage,
            envelope::{self, Envelope, HeadFields},
            schema,
        },
        peer::PeerState,
    },
    failures::{answer_too_large, failed, no_method, tell_of_losses, tell_of_lost_details, too_large},
    origin::origin,
    takeover::TakeoverRequest,
};
use crate::{
    call::{
        context::CallScope,
        deadline::HandlerTime,
        exchange::{Answer, Body, Call},
        head::Head,
        measure::{CallArrival, CallClock, CallMeasure},
        meter::CallMeter,
        method::{Method, MethodKind},
        recorder::CallNotes,
        status::{Code, Status},
        system::RpcSystem,
    },
    codec::{EncodedMessage, Format},
    error::ServerFailure,
    service::{
        services::{Common, Services},
        set::ServiceSet,
        table::MethodEntry,
    },
};

impl<S: ServiceSet, R: Router> Services<S, R> {
    /// Serves a plain unary call without limits.
    #[inline(always)]
    pub(super) fn serve_plain(
        &self,
        entry: MethodEntry,
        name: PacketName,
        content: Content,
        connection: &Connection,
    ) -> impl Future<Output = Outcome> + Send {
        // The caller ends the call at its deadline. So the handler is told the deadline, but no timer runs for it here.
        let announced = PeerState::announced(connection);
        let deadline = announced.and_then(|limit| connection.turn().checked_add(limit));
        let mut measure = CallMeasure::new(entry.number, Some(content.len()), connection.routes_in_turn());
        if !measure.is_in_turn() {
            measure.set_queued(connection.turn());
        }
        let call = incoming_call(entry, content, deadline, connection);
        let handler = self.call_in(CallScope::until(deadline), entry, call);
        let clock = PlainClock { connection, common: &self.common };
        let method = entry.method;
        let answered = move |answer| match answer {
            Ok(answer) => self.reply(name, method, answer, connection),
            Err(status) => fail_with(name, method, status, connection),
        };
        PlainCall { handler, answered, measure, clock }
    }

    /// Serves a call from a plain packet within the limits of the server.
    pub(super) async fn serve_limited(
        &self,
        entry: MethodEntry,
        packet: Packet,
        arrived: Instant,
        is_in_turn: bool,
        connection: &Connection,
    ) -> Outcome {
        let name = packet.name();
        let arrival = if is_in_turn { CallArrival::Now } else { CallArrival::Queued(arrived.into_std()) };
        let answer = match entry.method.kind {
            MethodKind::Unary => {
                let time = self.common.calls.time_of(entry.method, PeerState::announced(connection), || arrived);
                let call = incoming_call(entry, packet.content, time.and_then(HandlerTime::at), connection);
                self.call_limited(entry, call, time, arrival, connection).await
            }
            _ => Err(self.not_unary(packet.operation.number()).into()),
        };
        match answer {
            Ok(answer) => self.reply(name, entry.method, answer, connection),
            Err(failure) => fail(name, Some(entry.method), failure, connection),
        }
    }

    /// Runs the handler of a call within the limits of the server.
    async fn call_limited(
        &self,
        entry: MethodEntry,
        call: Call,
        time: Option<HandlerTime>,
        arrival: CallArrival,
        connection: &Connection,
    ) -> Result<Answer, ServerFailure> {
        let calls = PeerState::of(connection).map(|state| state.served.take(self.common.calls.calls_max));
        let _permit = calls
            .transpose()
            .inspect_err(|_| self.common.count_refused(Some(entry), RpcSystem::Frpc, Code::ResourceExhausted))?;
        Ok(self.call_at(entry, call, time, arrival).await?)
    }

    /// Sends the answer to a request. The common case: a message that a plain packet carries as it is.
    #[inline]
    fn reply(&self, name: PacketName, method: &'static Method, answer: Answer, connection: &Connection) -> Outcome {
        if self.common.compression.compresses() {
            return self.reply_in_full(name, method, answer, connection);
        }
        if name.operation == Operation::EXTENDED {
            return self.reply_extended(name, method, answer, connection);
        }
        match answer.into_message(connection.content_len_max() as usize) {
            Ok(message) => reply_with(name, message, connection),
            Err(answer) => self.reply_in_full(name, method, answer, connection),
        }
    }

    /// Sends the answer to an extended request, without compression.
    #[cold]
    fn reply_extended(
        &self,
        name: PacketName,
        method: &'static Method,
        answer: Answer,
        connection: &Connection,
    ) -> Outcome {
        match answer.into_message((connection.content_len_max() as usize).saturating_sub(envelope::ANSWER_LEN)) {
            Ok(message) => reply_with(name, envelope::bare_answer(message), connection),
            Err(answer) => self.reply_in_full(name, method, answer, connection),
        }
    }

    /// Sends an answer with all its parts.
    #[cold]
    fn reply_in_full(
        &self,
        name: PacketName,
        method: &'static Method,
        answer: Answer,
        connection: &Connection,
    ) -> Outcome {
        let take_over = answer.extensions().get::<TakeoverRequest>().cloned();
        match (self.encode(name, method, answer, connection), take_over) {
            (Err(failure), _) => fail(name, Some(method), failure, connection),
            (Ok(reply), None) => Outcome::Reply(reply),
            (Ok(reply), Some(take_over)) => {
                take_over.after(reply, connection);
                Outcome::Nothing
            }
        }
    }

    /// Encodes an answer. A plain request gets an extended answer if a plain one cannot carry every part of it.
    fn encode(
        &self,
        name: PacketName,
        method: &'static Method,
        answer: Answer,
        connection: &Connection,
    ) -> Result<Packet, ServerFailure> {
        let PacketName { id, operation } = name;
        let is_extended =
            operation == Operation::EXTENDED || !answer.is_plain() && PeerState::extended_on(connection).is_some();
        if is_extended {
            let len = envelope::metadata_len(answer.metadata()) + envelope::metadata_len(answer.trailers());
            envelope::check_metadata(len, PeerState::metadata_max(connection))?;
        } else {
            tell_of_losses(method, &answer);
        }
        let (metadata, trailers) = (answer.metadata().clone(), answer.trailers().clone());
        let Body::One(message) = answer.into_body() else {
            return Err(Status::internal("the handler answered with a stream").into());
        };
        let message = OutgoingMessage::new(message, PeerState::deflating(connection));
        let reply = if is_extended || message.compressed.is_some() {
            let content = envelope::answer(&metadata, &trailers, message).into();
            Packet { id, operation: Operation::EXTENDED, content }
        } else {
            Packet { id, operation, content: message.message.into() }
        };
        let (len, limit) = (reply.content.len(), connection.content_len_max());
        if len <= limit as usize {
            return Ok(reply);
        }
        // The limit is that of the caller, unless this side could not send the answer to any caller.
        let is_of_caller = len <= connection.config().content_len_max as usize;
        Err(if is_of_caller { answer_too_large(len, limit) } else { too_large(len, limit) })
    }

    /// Serves an extended packet.
    // The futures are boxed, so that plain calls use no memory for them.
    #[cold]
    pub(super) fn serve_extended(
        &self,
        packet: Packet,
        arrived: Instant,
        is_in_turn: bool,
        connection: &Connection,
    ) -> impl Future<Output = Outcome> + Send {
        let name = packet.name();
        let outcome = match Envelope::decode(packet.content.into_bytes(), self.metadata_max()) {
            Ok(Envelope::Request { operation, format, head, message }) => match self.table().find(operation) {
                Some(entry) if entry.method.kind == MethodKind::Unary => {
                    let request = ExtendedRequest { entry, format, head, message, arrived, is_in_turn };
                    let is_limited = request.head.compressed.is_some() || !self.common.is_unlimited;
                    return Either::Right(match is_limited {
                        true => Either::Left(Box::pin(self.serve_extended_limited(name, request, connection))),
                        false => Either::Right(Box::pin(self.serve_request(name, request, connection))),
                    });
                }
                Some(_) => fail(name, None, self.not_unary(operation).into(), connection),
                None => {
                    self.common.count_refused(None, RpcSystem::Frpc, Code::Unimplemented);
                    fail(name, None, no_method(operation).into(), connection)
                }
            },
            Ok(Envelope::Describe { operation }) => match self.table().find(operation) {
                Some(entry) => match self.description(entry) {
                    Ok(answer) => self.reply(name, entry.method, answer, connection),
                    Err(status) => fail(name, None, status.into(), connection),
                },
                None => fail(name, None, no_method(operation).into(), connection),
            },
            // Answers to known calls were intercepted before. Answers to unknown calls are dropped.
            Ok(_) => Outcome::Nothing,
            Err(status) => fail(name, None, status.into(), connection),
        };
        Either::Left(ready(outcome))
    }

    /// Serves an extended request without limits.
    #[inline(always)]
    fn serve_request(
        &self,
        name: PacketName,
        request: ExtendedRequest,
        connection: &Connection,
    ) -> impl Future<Output = Outcome> + Send {
        let method = request.entry.method;
        let arrived = request.arrived.into_std();
        let arrival = if request.is_in_turn { CallArrival::InTurn(arrived) } else { CallArrival::Queued(arrived) };
        let (entry, (call, time)) = (request.entry, self.extended_call(request, connection));
        self.call_at(entry, call, time, arrival).map(move |answer| match answer {
            Ok(answer) => self.reply(name, method, answer, connection),
            Err(status) => fail_with(name, method, status, connection),
        })
    }

    /// Serves a compressed request, or one within the limits of the server.
    async fn serve_extended_limited(
        &self,
        name: PacketName,
        mut request: ExtendedRequest,
        connection: &Connection,
    ) -> Outcome {
        let (entry, mut _held) = (request.entry, None);
        if let Some(compressed) = request.head.compressed {
            match PeerState::inflate_request(connection, compressed, &request.message).await {
                Ok((inflated, held)) => (request.message, _held) = (inflated, Some(held)),
                Err(why) => return fail(name, None, why.request_status().into(), connection),
            }
        }
        let arrival = match request.is_in_turn {
            true => CallArrival::Now,
            false => CallArrival::Queued(request.arrived.into_std()),
        };
        let (call, time) = self.extended_call(request, connection);
        match self.call_limited(entry, call, time, arrival, connection).await {
            Ok(answer) => self.reply(name, entry.method, answer, connection),
            Err(failure) => fail(name, Some(entry.method), failure, connection),
        }
    }

    /// Creates the call for an extended request, and its time limit.
    #[inline(always)]
    fn extended_call(&self, request: ExtendedRequest, connection: &Connection) -> (Call, Option<HandlerTime>) {
        let ExtendedRequest { entry, format, head, message, arrived, .. } = request;
        let timeout = head.timeout.or_else(|| PeerState::announced(connection));
        let time = self.common.calls.time_of(entry.method, timeout, || arrived);
        let mut received = Head::received(Some(origin(connection)), time.and_then(HandlerTime::at));
        if !head.metadata.is_empty() {
            *received.metadata_mut() = head.metadata;
        }
        (Call::new(entry.method, format, received, Body::One(message.into())), time)
    }

    /// Returns the status for a packet whose operation is not a unary method.
    #[cold]
    fn not_unary(&self, operation: u16) -> Status {
        let ambiguity = self.table().ambiguity(operation);
        ambiguity.unwrap_or_else(|| Status::unimplemented("the method is called on a stream"))
    }

    /// Returns the description of a method's messages. Layers do not see this question, because it is not a call.
    fn description(&self, MethodEntry { method, operation, .. }: MethodEntry) -> Result<Answer, Status> {
        match self.table().description(operation, || schema::describe(method, self.common.messages.accept_narrowing)) {
            Some(description) => Ok(Answer::new(Body::One(description.into()))),
            None => {
                Err(Status::unimplemented(format!("the messages of {method} are not known, or too many to describe")))
            }
        }
    }
}

/// A request of an extended packet to a unary method.
struct ExtendedRequest {
    entry: MethodEntry,
    format: Format,
    head: HeadFields,
    message: Bytes,
    arrived: Instant,
    /// `true` if the handler begins in the turn of its arrival.
    is_in_turn: bool,
}

pin_project! {
    /// A handler, and the function that sends its answer. A combinator would move the function out of its place first.
    struct PlainCall<'a, 'c, H, F> {
        #[pin]
        handler: H,
        answered: F,
        measure: CallMeasure,
        clock: PlainClock<'a, 'c>,
    }
}

impl<H, F> Future for PlainCall<'_, '_, H, F>
where
    H: Future<Output = Result<Answer, Status>>,
    F: FnMut(H::Output) -> Outcome,
{
    type Output = Outcome;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let call = self.project();
        call.measure.before_poll(call.clock);
        let mut polled = call.handler.poll(cx);
        call.measure.after_poll(call.clock, &mut polled);
        polled.map(call.answered)
    }
}

/// The clock of a plain call.
struct PlainClock<'a, 'c> {
    connection: &'c Connection,
    common: &'a Common,
}

impl CallClock for PlainClock<'_, '_> {
    #[inline]
    fn meter(&self) -> Option<&Arc<CallMeter>> {
        self.common.meter()
    }

    fn turn(&self) -> frisbee::clock::Instant {
        self.connection.turn()
    }

    fn deadline(&self) -> Option<frisbee::clock::Instant> {
        PeerState::announced(self.connection).and_then(|limit| self.turn().checked_add(limit))
    }

    fn notes(&self, method: usize) -> Option<CallNotes> {
        CallNotes::plain(self.common.meter()?.method(method)?, None, Some(self.connection.peer_addr()))
    }
}

/// Answers a request with an encoded answer.
#[inline(always)]
fn reply_with(name: PacketName, answer: EncodedMessage, connection: &Connection) -> Outcome {
    match answer {
        EncodedMessage::Small(message) => {
            connection.reply_copied(name, &message);
            Outcome::Nothing
        }
        message => {
            let PacketName { id, operation } = name;
            Outcome::Reply(Packet { id, operation, content: message.into() })
        }
    }
}

/// Answers a request with the status of its handler.
#[cold]
fn fail_with(name: PacketName, method: &'static Method, status: Status, connection: &Connection) -> Outcome {
    fail(name, Some(method), status.into(), connection)
}

/// Answers a request with a failure.
#[cold]
fn fail(name: PacketName, method: Option<&'static Method>, failure: ServerFailure, connection: &Connection) -> Outcome {
    let reply = failed(name, &failure, connection);
    if let Some(method) = method
        && reply.operation != Operation::EXTENDED
    {
        tell_of_lost_details(method, &failure.status);
    }
    if failure.status.closes_connection() { Outcome::ReplyAndClose(reply) } else { Outcome::Reply(reply) }
}

/// Creates the call for a plain packet, in frpc-go's message format.
#[inline(always)]
fn incoming_call(
    entry: MethodEntry,
    content: Content,
    deadline: Option<frisbee::clock::Instant>,
    connection: &Connection,
) -> Call {
    let head = Head::received(Some(origin(connection)), deadline);
    Call::new(entry.method, Format::Polyglot, head, Body::One(content.into_bytes().into()))
}
