//! Unary calls on the server: from a packet to the handler, and the answer back.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use frisbee::{Connection, Content, Operation, Outcome, Packet, PacketName, Router};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::{
    compressed::{Deflating, Outgoing},
    description,
    envelope::{self, Envelope},
    failures::{answer_too_large, failure, no_method, tell_of_losses, tell_of_lost_details, too_large, within},
    peer::origin,
    session::{Place, Session},
    take_over::TakeOver,
};
use crate::{
    call::{
        context::Scope,
        deadline::HandlerTime,
        exchange::{Answer, Body, Call},
        head::Head,
        metadata::Metadata,
        method::MethodKind,
        status::Status,
    },
    codec::{Format, Pieces},
    service::{services::Services, set::ServiceSet, table::Entry},
};

impl<S: ServiceSet, R: Router> Services<S, R> {
    /// Serves a plain unary call without limits.
    #[inline(always)]
    pub(super) fn serve_plain(
        &self,
        entry: Entry,
        name: PacketName,
        content: Content,
        connection: &Connection,
    ) -> impl Future<Output = Outcome> + Send {
        // The caller ends the call at its deadline. So the handler is told the deadline, but no timer runs for it here.
        let announced = Session::announced(connection);
        let deadline = announced.and_then(|limit| connection.turn().checked_add(limit));
        let call = incoming_call(entry, content, deadline, connection);
        let handler = self.call_in(Scope::until(deadline), entry, call);
        let answered = move |answer| {
            let replied = self.reply_plain(name, answer, connection);
            replied.map_err(|answer| Box::pin(self.reply(name, entry, answer, connection)))
        };
        PlainCall { answered, step: Step::Handled { handler } }
    }

    /// Serves a call from a plain packet within the limits of the server.
    pub(super) async fn serve_limited(
        &self,
        entry: Entry,
        packet: Packet,
        arrived: Instant,
        connection: &Connection,
    ) -> Outcome {
        let name = packet.name();
        let answer = self.call_limited(entry, packet, arrived, connection).await;
        match self.reply_plain(name, answer, connection) {
            Ok(outcome) => outcome,
            Err(answer) => self.reply(name, entry, answer, connection).await,
        }
    }

    /// Runs the handler of a call within the limits of the server.
    async fn call_limited(
        &self,
        entry: Entry,
        packet: Packet,
        arrived: Instant,
        connection: &Connection,
    ) -> Result<Answer, Status> {
        if entry.method.kind != MethodKind::Unary {
            return Err(self.not_unary(packet.operation.number()));
        }
        let time = self.common.calls.time_of(entry.method, Session::announced(connection), arrived);
        let at = time.and_then(HandlerTime::at);
        let _place = Place::take(connection, self.common.calls.calls_max)?;
        within(time, self.call(entry, incoming_call(entry, packet.content, at, connection))).await
    }

    /// Sends a plain, uncompressed message as the answer. Returns any other answer to the caller.
    #[inline]
    fn reply_plain(
        &self,
        name: PacketName,
        answer: Result<Answer, Status>,
        connection: &Connection,
    ) -> Result<Outcome, Result<Answer, Status>> {
        if self.common.compression.compresses() {
            return Err(answer);
        }
        match answer.map_err(Err)?.into_message(connection.content_len_max() as usize) {
            Ok(Pieces::Small(message)) => {
                connection.reply_copied(name, &message);
                Ok(Outcome::Nothing)
            }
            Ok(message) => {
                let PacketName { id, operation } = name;
                Ok(Outcome::Reply(Packet { id, operation, content: message.into() }))
            }
            Err(answer) => Err(Ok(answer)),
        }
    }

    /// Sends an answer that [`reply_plain`](Self::reply_plain) has returned: an error, or a message with more than its
    /// bytes.
    async fn reply(
        &self,
        name: PacketName,
        entry: Entry,
        answer: Result<Answer, Status>,
        connection: &Connection,
    ) -> Outcome {
        let PacketName { id, operation } = name;
        let limit = connection.content_len_max();
        let answer = match answer {
            Ok(answer) if answer.is_plain() => {
                if let Some(content) = self.compressed_answer(&answer, connection) {
                    return Outcome::Reply(Packet { id, operation: Operation::EXTENDED, content });
                }
                Ok(answer)
            }
            Err(status) if status.details().is_empty() && status.metadata().is_empty() => Err(status),
            // A plain packet cannot carry all parts of this answer.
            answer if Session::is_extended(connection) => {
                return self.reply_extended(id, answer, connection).await;
            }
            answer => answer,
        };
        let status = match answer {
            Ok(answer) => {
                tell_of_losses(entry.method, &answer);
                let take_over = answer.extensions().get::<TakeOver>().cloned();
                match answer.into_body() {
                    Body::One(content) if content.len() <= limit as usize => {
                        let reply = Packet { id, operation, content: content.into() };
                        let Some(take_over) = take_over else { return Outcome::Reply(reply) };
                        // If the answer cannot be sent, the connection is closed and there is nothing to take over.
                        let _ = connection.send(reply).await;
                        take_over.run(connection);
                        return Outcome::Nothing;
                    }
                    Body::One(content) if content.len() <= connection.config().content_len_max as usize => {
                        answer_too_large(content.len(), limit)
                    }
                    Body::One(content) => too_large(content.len(), limit),
                    Body::Many(_) => Status::internal("the handler answered with a stream"),
                }
            }
            Err(status) => status,
        };
        tell_of_lost_details(entry.method, &status);
        let reply = Packet { id, operation, content: failure(&status, limit).into() };
        if status.closes_connection() { Outcome::ReplyAndClose(reply) } else { Outcome::Reply(reply) }
    }

    /// Returns the compressed content of an answer with nothing but a message, if compression makes it shorter.
    fn compressed_answer(&self, answer: &Answer, connection: &Connection) -> Option<Content> {
        let deflating = self.deflating(connection)?;
        let Body::One(message) = answer.body() else { return None };
        let message = Outgoing::new(message.clone(), Some(deflating));
        message.compressed?;
        Some(envelope::answer(&Metadata::new(), &Metadata::new(), message))
    }

    /// Returns the compression settings for messages to a caller, if any.
    #[inline]
    pub(super) fn deflating(&self, connection: &Connection) -> Option<Deflating> {
        if self.common.compression.compresses() { Session::deflating(connection) } else { None }
    }

    /// Serves an extended packet.
    pub(super) async fn serve_extended(&self, packet: Packet, arrived: Instant, connection: &Connection) -> Outcome {
        let (id, content) = (packet.id, packet.content.into_bytes());
        let (operation, format, head, mut message) = match Envelope::decode(content, self.metadata_max()) {
            Ok(Envelope::Request { operation, format, head, message }) => (operation, format, head, message),
            Ok(Envelope::Describe { operation }) => {
                return self.reply_extended(id, self.description(operation), connection).await;
            }
            // Answers to known calls were intercepted before. Answers to unknown calls are dropped.
            Ok(_) => return Outcome::Nothing,
            Err(status) => return self.reply_extended(id, Err(status), connection).await,
        };
        let mut _held = None;
        if let Some(compressed) = head.compressed {
            match Session::inflate_request(connection, compressed, &message).await {
                Ok((inflated, held)) => (message, _held) = (inflated, Some(held)),
                Err(why) => return self.reply_extended(id, Err(why.of_request()), connection).await,
            }
        }
        let answer = match self.table().find(operation) {
            None => Err(no_method(operation)),
            Some(entry) if entry.method.kind != MethodKind::Unary => Err(self.not_unary(operation)),
            Some(entry) => {
                let timeout = head.timeout.or_else(|| Session::announced(connection));
                let time = self.common.calls.time_of(entry.method, timeout, arrived);
                let at = time.and_then(HandlerTime::at);
                let mut received = Head::received(Some(origin(connection)), at);
                if !head.metadata.is_empty() {
                    *received.metadata_mut() = head.metadata;
                }
                let call = Call::new(entry.method, format, received, Body::One(message.into()));
                match Place::take(connection, self.common.calls.calls_max) {
                    Ok(_place) => within(time, self.call(entry, call)).await,
                    Err(status) => Err(status),
                }
            }
        };
        self.reply_extended(id, answer, connection).await
    }

    /// Returns the status for a packet whose operation is not a unary method.
    #[cold]
    fn not_unary(&self, operation: u16) -> Status {
        let ambiguity = self.table().ambiguity(operation);
        ambiguity.unwrap_or_else(|| Status::unimplemented("the method is called on a stream"))
    }

    /// Returns the description of a method's messages. Layers do not see this question, because it is not a call.
    fn description(&self, operation: u16) -> Result<Answer, Status> {
        let Some(Entry { method, .. }) = self.table().find(operation) else { return Err(no_method(operation)) };
        match self
            .table()
            .description(operation, || description::describe(method, self.common.messages.accept_narrowing))
        {
            Some(description) => Ok(Answer::new(Body::One(description.into()))),
            None => {
                Err(Status::unimplemented(format!("the messages of {method} are not known, or too many to describe")))
            }
        }
    }

    /// Sends an answer with metadata, trailers and status details.
    async fn reply_extended(&self, id: u16, answer: Result<Answer, Status>, connection: &Connection) -> Outcome {
        let (limit, metadata_max) = (connection.content_len_max(), Session::metadata_max(connection));
        let mut take_over = None;
        let content = answer.and_then(|answer| {
            take_over = answer.extensions().get::<TakeOver>().cloned();
            let (metadata, trailers) = (answer.metadata(), answer.trailers());
            envelope::check_metadata(
                envelope::metadata_len(metadata) + envelope::metadata_len(trailers),
                metadata_max,
            )?;
            let (metadata, trailers) = (metadata.clone(), trailers.clone());
            match answer.into_body() {
                Body::One(message) => {
                    let message = Outgoing::new(message, self.deflating(connection));
                    Ok(envelope::answer(&metadata, &trailers, message))
                }
                Body::Many(_) => Err(Status::internal("the handler answered with a stream")),
            }
        });
        let content = content.and_then(|content| match content.len() {
            len if len <= limit as usize => Ok(content),
            len => Err(answer_too_large(len, limit)),
        });
        let reply = |content| Packet { id, operation: Operation::EXTENDED, content };
        match (content, take_over) {
            (Ok(content), None) => Outcome::Reply(reply(content)),
            (Ok(content), Some(take_over)) => {
                // If the answer cannot be sent, the connection is closed and there is nothing to take over.
                let _ = connection.send(reply(content)).await;
                take_over.run(connection);
                Outcome::Nothing
            }
            (Err(status), _) => {
                let reply = reply(envelope::failure(&status, limit, metadata_max).into());
                if status.closes_connection() { Outcome::ReplyAndClose(reply) } else { Outcome::Reply(reply) }
            }
        }
    }
}

pin_project! {
    /// A plain unary call on the server. Only an answer that needs more work than a send is boxed.
    struct PlainCall<F, A, G> {
        answered: A,
        #[pin]
        step: Step<F, G>,
    }
}

pin_project! {
    #[project = StepPinned]
    enum Step<F, G> {
        Handled { #[pin] handler: F },
        Replied { reply: Pin<Box<G>> },
    }
}

impl<F, A, G> Future for PlainCall<F, A, G>
where
    F: Future<Output = Result<Answer, Status>>,
    A: Fn(Result<Answer, Status>) -> Result<Outcome, Pin<Box<G>>>,
    G: Future<Output = Outcome>,
{
    type Output = Outcome;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut this = self.project();
        loop {
            match this.step.as_mut().project() {
                StepPinned::Handled { handler } => match (this.answered)(ready!(handler.poll(cx))) {
                    Ok(outcome) => return Poll::Ready(outcome),
                    Err(reply) => this.step.set(Step::Replied { reply }),
                },
                StepPinned::Replied { reply } => return reply.as_mut().poll(cx),
            }
        }
    }
}

/// Creates the call for a plain packet, in frpc-go's message format.
#[inline(always)]
fn incoming_call(
    entry: Entry,
    content: Content,
    deadline: Option<std::time::Instant>,
    connection: &Connection,
) -> Call {
    let head = Head::received(Some(origin(connection)), deadline);
    Call::new(entry.method, Format::Polyglot, head, Body::One(content.into_bytes().into()))
}
