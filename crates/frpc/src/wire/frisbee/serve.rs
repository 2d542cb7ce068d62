//! Services on frisbee connections: finds the packets and streams that are calls, and answers them.

use std::{
    error::Error,
    panic::AssertUnwindSafe,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use frisbee::{
    CloseReason, Connection, GoAway, Outcome, Packet, Refusal, Refused, Router, Stream, StreamEnd, StreamSender,
};
use futures_util::FutureExt;
use tracing::{debug, warn};

use super::{
    peer::origin,
    pending::{PendingCalls, Unanswered},
    session::Session,
    stream_framing::{self, Halted, Incoming},
    take_over::TakeOver,
};
use crate::{
    call::{
        exchange::{Answer, Body, Call},
        head::Head,
        method::{Method, MethodKind},
        status::Status,
        streaming::Streaming,
    },
    codec::{self, Format},
    error::CallError,
    service::{
        services::{Services, Unimplemented, panicked},
        set::ServiceSet,
        table::Entry,
    },
};

impl<S: ServiceSet, R: Router> Services<S, R> {
    /// Gives packets and streams that are no calls to this router. Put [`Unimplemented`] below it, and calls to methods
    /// that are not here are still answered.
    pub fn over<T: Router>(self, fallback: T) -> Services<S, T> {
        self.with_fallback(fallback)
    }

    pub(crate) fn serves(&self, operation: u16) -> bool {
        self.table().contains(operation)
    }

    /// Attaches what frpc keeps with a connection, before the router behind the services hears of it and may make calls.
    pub(crate) fn open_session(&self, connection: &Connection, calls: OnceLock<Arc<PendingCalls>>) {
        let number = calls.get().map_or(0, |calls| calls.open());
        connection.set_state(Session { serves: self.table().clone(), calls, number });
        self.fallback.opened(connection);
    }

    async fn serve_packet(&self, entry: Entry, packet: Packet, connection: &Connection) -> Outcome {
        let Packet { id, operation, content } = packet;
        let answer = match entry.method.kind {
            MethodKind::Unary => {
                self.call(entry, incoming_call(entry, Body::One(content.into_bytes().into()), connection)).await
            }
            _ => Err(Status::unimplemented("the method is called on a stream")),
        };
        let limit = connection.content_len_max();
        let status = match answer {
            Ok(answer) => {
                let mut take_over = None;
                if !answer.is_plain() {
                    tell_of_losses(entry.method, &answer);
                    take_over = answer.extensions().get::<TakeOver>().cloned();
                }
                match answer.into_body() {
                    Body::One(content) if content.len() <= limit as usize => {
                        let reply = Packet { id, operation, content: content.into() };
                        let Some(take_over) = take_over else { return Outcome::Reply(reply) };
                        // If it cannot be sent, there is nothing to take over.
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

    async fn serve_stream(&self, entry: Entry, stream: Stream, connection: &Connection) {
        let method = entry.method;
        let (sender, mut reader) = stream.split();
        // The first data, which was peeked at: it is there.
        let _ = reader.read().await;
        let input = match method.kind {
            MethodKind::Unary => Err(Status::unimplemented("the method takes a packet, not a stream")),
            MethodKind::ServerStreaming => {
                let request = reader.read().await;
                // Whatever follows is discarded.
                drop(reader);
                match request {
                    Ok(content) => Ok(Body::One(content.into())),
                    Err(StreamEnd::TooLarge { announced, limit }) => {
                        Err(CallError::Refused { why: Refusal::TooLarge { announced, limit } }.into())
                    }
                    Err(end) => return debug!(%end, "a call ended before its request"),
                }
            }
            MethodKind::ClientStreaming | MethodKind::Bidirectional => {
                Ok(Body::Many(Streaming::new(Incoming::to_the_end(reader))))
            }
        };
        let answering = async {
            let answer = match input {
                Ok(body) => self.call(entry, incoming_call(entry, body, connection)).await,
                Err(status) => Err(status),
            };
            send_answer(method, answer, &sender, connection).await;
        };
        tokio::select! {
            biased;
            () = answering => {}
            end = sender.closed() => debug!(%end, method = method.name, "a call was cut off"),
        }
    }
}

impl<S: ServiceSet, R: Router> Router for Services<S, R> {
    fn intercept(&self, packet: Packet, connection: &Connection) -> Option<Packet> {
        if self.serves(packet.operation.number()) {
            return Some(packet);
        }
        let packet = match Session::of(connection).as_ref().and_then(|session| session.calls.get()) {
            Some(calls) => calls.complete(packet)?,
            None => packet,
        };
        self.fallback.intercept(packet, connection)
    }

    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        if let Some(entry) = self.table().find(packet.operation.number()) {
            return self.serve_packet(entry, packet, connection).await;
        }
        self.fallback.route(packet, connection).await
    }

    fn refuse(&self, refused: Refused, connection: &Connection) -> Outcome {
        let Refused { id, operation, why, .. } = refused;
        // Any other packet may be an answer, and two sides must not go on answering each other.
        if !self.serves(operation.number()) {
            let session = Session::of(connection);
            if let Refusal::TooLarge { announced, limit } = why
                && let Some(calls) = session.as_ref().and_then(|session| session.calls.get())
                && calls.fail(id, operation, Unanswered::TooLarge { announced, limit })
            {
                return Outcome::Nothing;
            }
            return self.fallback.refuse(refused, connection);
        }
        let content = failure(&CallError::Refused { why }.into(), connection.content_len_max());
        Outcome::Reply(Packet { id, operation, content: content.into() })
    }

    fn awaited(&self, connection: &Connection) -> usize {
        let session = Session::of(connection);
        let calls = session.as_ref().and_then(|session| session.calls.get()).map_or(0, |calls| calls.len());
        self.fallback.awaited(connection).saturating_add(calls)
    }

    async fn refuse_stream(&self, mut stream: Stream, connection: &Connection) {
        let Ok(first) = stream.peek().await else { return };
        match stream_framing::parse_open(&first).and_then(|operation| self.table().find(operation)) {
            Some(_) => stream_framing::refuse(stream, &CallError::Refused { why: Refusal::Draining }.into()).await,
            None if stream_framing::is_end(&first) => stream.defer_close(),
            None => self.fallback.refuse_stream(stream, connection).await,
        }
    }

    async fn stream(&self, mut stream: Stream, connection: &Connection) {
        let Ok(first) = stream.peek().await else { return };
        match stream_framing::parse_open(&first).and_then(|operation| self.table().find(operation)) {
            Some(entry) => {
                stream.defer_close();
                self.serve_stream(entry, stream, connection).await;
            }
            // The second end marker of a call that is over.
            None if stream_framing::is_end(&first) => stream.defer_close(),
            None => self.fallback.stream(stream, connection).await,
        }
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Services::check(self)?;
        self.fallback.check()
    }

    fn going_away(&self, connection: &Connection, why: &GoAway) {
        if let Some(session) = Session::of(connection) {
            session.calls.get_or_init(Arc::default).go_away(why.clone());
        }
        self.fallback.going_away(connection, why);
    }

    fn opened(&self, connection: &Connection) {
        self.open_session(connection, OnceLock::new());
    }

    fn closed(&self, connection: &Connection, reason: &CloseReason) {
        if let Some(session) = Session::of(connection)
            && let Some(calls) = session.calls.get()
        {
            calls.close(session.number, reason);
        }
        self.fallback.closed(connection, reason);
    }
}

impl Router for Unimplemented {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // Nobody waits for the answer to an answer, and two sides must not go on answering each other.
        if codec::is_error(&packet.content) {
            return Outcome::Nothing;
        }
        let content = no_method(packet.operation.number()).encode().into();
        Outcome::Reply(Packet { content, ..packet })
    }

    fn refuse(&self, refused: Refused, connection: &Connection) -> Outcome {
        let Refused { id, operation, why: Refusal::TooLarge { .. }, .. } = refused else { return Outcome::Nothing };
        // If this answers an answer, it is a small error, which is not answered.
        let content = failure(&no_method(operation.number()), connection.content_len_max()).into();
        Outcome::Reply(Packet { id, operation, content })
    }

    async fn stream(&self, mut stream: Stream, _: &Connection) {
        let Ok(first) = stream.peek().await else { return };
        if let Some(operation) = stream_framing::parse_open(&first) {
            stream_framing::refuse(stream, &no_method(operation)).await;
        }
    }
}

/// Encodes a status as the content of a packet, with its text if `limit` bytes have room for it.
fn failure(status: &Status, limit: u32) -> Bytes {
    let content = status.encode();
    if content.len() <= limit as usize {
        return content;
    }
    let content = stream_framing::without_text(status).encode();
    if content.len() <= limit as usize { content } else { Status::new(status.code(), "").encode() }
}

fn no_method(operation: u16) -> Status {
    Status::unimplemented(format!("no method has operation {operation}"))
}

/// Returns the status in place of an answer that this side could send, and its caller would not accept.
fn answer_too_large(len: usize, limit: u32) -> Status {
    CallError::AnswerTooLarge { len: len.try_into().unwrap_or(u32::MAX), limit }.into()
}

fn too_large(len: usize, limit: u32) -> Status {
    CallError::MessageTooLarge { len, limit }.into()
}

async fn send_answer(method: &Method, answer: Result<Answer, Status>, sender: &StreamSender, connection: &Connection) {
    let sending = AssertUnwindSafe(async {
        let answer = answer?;
        tell_of_losses(method, &answer);
        let mut contents = match answer.into_body() {
            Body::One(content) => Streaming::from_iter([content.into_bytes()]),
            Body::Many(contents) => contents,
        };
        stream_framing::send_all(&mut contents, sender).await?;
        if let Some(trailers) = contents.trailers_slot().as_ref().and_then(|slot| slot.get()) {
            tell_of_loss(method, "trailers", trailers.len());
        }
        Ok(())
    });
    let sent = sending.catch_unwind().await.unwrap_or_else(|_| Err(panicked(method).into()));
    let failure = match sent {
        Err(Halted::Failed(status)) => Some(status),
        Err(Halted::TooLargeForPeer { len, limit }) => Some(answer_too_large(len, limit)),
        Ok(()) | Err(Halted::Cut) => None,
    };
    if let Some(status) = failure {
        tell_of_lost_details(method, &status);
        stream_framing::send_failure(&status, sender).await;
        if status.closes_connection() {
            connection.close();
        }
    }
}

/// Makes the call of a packet or stream, in the format that frpc-go speaks.
#[inline]
fn incoming_call(entry: Entry, body: Body, connection: &Connection) -> Call {
    Call::new(entry.method, Format::Polyglot, Head::received(Some(origin(connection)), None), body)
}

/// Logs what is lost of an answer. Plain fRPC carries messages only, and a handler that answers with more should learn
/// that it goes nowhere.
fn tell_of_losses(method: &Method, answer: &Answer) {
    for (what, metadata) in [("metadata", answer.metadata()), ("trailers", answer.trailers())] {
        if !metadata.is_empty() {
            tell_of_loss(method, what, metadata.len());
        }
    }
}

fn tell_of_lost_details(method: &Method, status: &Status) {
    if !status.details().is_empty() {
        tell_of_loss(method, "details of a status", status.details().len());
    }
    if !status.metadata().is_empty() {
        tell_of_loss(method, "metadata of a status", status.metadata().len());
    }
}

#[cold]
fn tell_of_loss(method: &Method, what: &'static str, len: usize) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    // Once is a warning. For every call it would fill the log.
    if IS_TOLD.swap(true, Ordering::Relaxed) {
        debug!(%method, what, len, "the peer speaks plain fRPC, which does not carry this");
    } else {
        warn!(%method, what, len, "the peer speaks plain fRPC, which does not carry this (told once)");
    }
}
