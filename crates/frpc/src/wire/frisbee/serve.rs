//! Services on frisbee connections: finds the packets and streams that are calls, and answers them.

use std::{
    any::Any,
    error::Error,
    panic::AssertUnwindSafe,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use frisbee::{
    CloseReason, Connection, Content, GoAway, Operation, Outcome, Packet, PacketName, Peer, Refusal, Refused, Router,
    Stream, StreamEnd, StreamReader, StreamSender,
};
use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    compressed::{Deflating, Held, Inflated, Outgoing},
    description,
    envelope::{self, Data, Envelope, Fields, Open},
    peer::origin,
    pending::{PendingCalls, Unanswered},
    remote::{PART_NAME, Said},
    session::{Place, Session},
    stream_framing::{self, Framing, Halted, Incoming},
    take_over::TakeOver,
};
use crate::{
    call::{
        deadline::Deadline,
        exchange::{Answer, Body, Call},
        head::Head,
        metadata::Metadata,
        method::{Method, MethodKind},
        packed::{Packed, Unpacked},
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

    /// Returns whether a packet asks for something, rather than answer it.
    pub(crate) fn is_request(&self, packet: &Packet) -> bool {
        match packet.operation {
            Operation::EXTENDED => !envelope::is_answer(&packet.content),
            operation => self.serves(operation.number()),
        }
    }

    /// Returns what this side says of itself, whose calls have this long unless they say otherwise.
    pub(crate) fn said(&self, timeout: Option<Duration>) -> Bytes {
        let metadata_len_max = self.metadata_max().try_into().unwrap_or(u32::MAX);
        Said {
            metadata_len_max,
            calls_max: self.calls_max,
            timeout,
            inflates: self.compressing.accepted(),
            methods: self.table(),
        }
        .encode()
    }

    /// Attaches what frpc keeps with a connection, before the router behind the services hears of it and may make calls.
    pub(crate) fn open_session(&self, connection: &Connection, calls: OnceLock<Arc<PendingCalls>>) {
        let number = calls.get().map_or(0, |calls| calls.open());
        let (serves, metadata_max, compressing) = (self.table().clone(), self.metadata_max(), self.compressing.clone());
        let inflated = Inflated::new(&compressing, connection.config().content_len_max);
        let (remote, served) = (OnceLock::new(), AtomicU32::new(0));
        connection.set_state(Session { serves, calls, metadata_max, compressing, inflated, number, remote, served });
        self.fallback.opened(connection);
    }

    async fn serve_packet(&self, entry: Entry, packet: Packet, connection: &Connection) -> Outcome {
        let Packet { id, operation, content } = packet;
        let answer = match entry.method.kind {
            MethodKind::Unary if self.is_unlimited => {
                self.call(entry, incoming_call(entry, Body::One(content.into_bytes().into()), connection)).await
            }
            MethodKind::Unary => {
                let deadline = self.times.of(None).map(Deadline::after);
                let at = deadline.and_then(|deadline| deadline.at).map(Instant::into_std);
                let head = Head::received(Some(origin(connection)), at);
                let body = Body::One(content.into_bytes().into());
                let call = Call::new(entry.method, Format::Polyglot, head, body);
                // Boxed, so that calls without a limit do not hold the memory for it.
                Box::pin(async {
                    let _place = Place::take(connection, self.calls_max)?;
                    within(deadline, self.call_in_scope(entry, call)).await
                })
                .await
            }
            _ => Err(self.not_unary(operation.number())),
        };
        let limit = connection.content_len_max();
        let answer = match answer {
            Ok(answer) if answer.is_plain() => {
                if let Some(content) = self.compressed_answer(&answer, connection) {
                    return Outcome::Reply(Packet { id, operation: Operation::EXTENDED, content });
                }
                Ok(answer)
            }
            Err(status) if status.details().is_empty() && status.metadata().is_empty() => Err(status),
            // There is more to say than a plain packet holds.
            answer if Session::is_extended(connection) => {
                return self.reply_extended(id, answer, connection).await;
            }
            answer => answer,
        };
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

    /// Returns the content of an answer that is nothing but its message, if that is compressed.
    #[inline]
    fn compressed_answer(&self, answer: &Answer, connection: &Connection) -> Option<Content> {
        let deflating = self.deflating(connection)?;
        let Body::One(message) = answer.body() else { return None };
        let message = Outgoing::new(message.clone(), Some(deflating));
        message.compressed?;
        Some(envelope::answer(&Metadata::new(), &Metadata::new(), message))
    }

    /// Returns how messages to a caller are compressed, if they are.
    #[inline]
    fn deflating(&self, connection: &Connection) -> Option<Deflating> {
        if self.compressing.compresses() { Session::deflating(connection) } else { None }
    }

    /// Serves a packet that only extended peers send.
    async fn serve_extended(&self, packet: Packet, connection: &Connection) -> Outcome {
        let (id, content) = (packet.id, packet.content.into_bytes());
        let (operation, format, head, mut message) = match Envelope::decode(content, self.metadata_max()) {
            Ok(Envelope::Request { operation, format, head, message }) => (operation, format, head, message),
            Ok(Envelope::Describe { operation }) => {
                return self.reply_extended(id, self.description(operation), connection).await;
            }
            // Answers are taken before, and those of nobody dropped.
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
                let deadline = self.times.of(head.timeout).map(Deadline::after);
                let at = deadline.and_then(|deadline| deadline.at).map(Instant::into_std);
                let mut received = Head::received(Some(origin(connection)), at);
                if !head.metadata.is_empty() {
                    *received.metadata_mut() = head.metadata;
                }
                let call = Call::new(entry.method, format, received, Body::One(message.into()));
                match Place::take(connection, self.calls_max) {
                    Ok(_place) => within(deadline, self.call_in_scope(entry, call)).await,
                    Err(status) => Err(status),
                }
            }
        };
        self.reply_extended(id, answer, connection).await
    }

    /// Returns why a packet calls no method with this operation.
    #[cold]
    fn not_unary(&self, operation: u16) -> Status {
        let ambiguity = self.table().ambiguity(operation);
        ambiguity.unwrap_or_else(|| Status::unimplemented("the method is called on a stream"))
    }

    /// Returns the answer that says what the messages of a method are. No layer sees the question, which is no call.
    fn description(&self, operation: u16) -> Result<Answer, Status> {
        let Some(Entry { method, .. }) = self.table().find(operation) else { return Err(no_method(operation)) };
        match self.table().description(operation, || description::describe(method)) {
            Some(description) => Ok(Answer::new(Body::One(description.into()))),
            None => {
                Err(Status::unimplemented(format!("the messages of {method} are not known, or too many to describe")))
            }
        }
    }

    /// Answers with everything that an answer may have.
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
                // If it cannot be sent, there is nothing to take over.
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

    async fn serve_stream(&self, opening: Opening, stream: Stream, connection: &Connection) {
        let Opening { entry, framing, format, head } = opening;
        let method = entry.method;
        let (sender, mut reader) = stream.split();
        // The first data, which was peeked at: it is there.
        let _ = reader.read().await;
        let deadline = self.times.of(head.timeout).map(Deadline::after);
        let at = deadline.and_then(|deadline| deadline.at).map(Instant::into_std);
        let mut received = Head::received(Some(origin(connection)), at);
        if !head.metadata.is_empty() {
            *received.metadata_mut() = head.metadata;
        }
        // As long as the handler runs.
        let mut held = None;
        let input = match method.kind {
            MethodKind::Unary => Err(Status::unimplemented("the method takes a packet, not a stream")),
            MethodKind::ServerStreaming => {
                let request = first_message(framing, &mut reader, &mut held).await;
                // Whatever follows is discarded.
                drop(reader);
                match request {
                    Ok(content) => content.map(|content| Body::One(content.into())),
                    Err(StreamEnd::TooLarge { announced, limit }) => {
                        Err(CallError::Refused { why: Refusal::TooLarge { announced, limit } }.into())
                    }
                    Err(end) => return debug!(%end, "a call ended before its request"),
                }
            }
            MethodKind::ClientStreaming | MethodKind::Bidirectional => {
                Ok(Body::Many(Streaming::from_source(Unpacked::new(Incoming::to_the_end(framing, reader)))))
            }
        };
        let answering = async {
            let answer = match input {
                Ok(body) => {
                    within(deadline, self.call_in_scope(entry, Call::new(method, format, received, body))).await
                }
                Err(status) => Err(status),
            };
            // The time of the caller bounds the messages as well.
            let sending = async {
                send_answer(method, framing, answer, &sender, connection).await;
                Ok(())
            };
            if let Err(status) = within(deadline, sending).await {
                stream_framing::send_failure(framing, &status, &sender).await;
            }
        };
        tokio::select! {
            biased;
            () = answering => {}
            end = sender.closed() => debug!(%end, method = method.name, "a call was cut off"),
        }
    }

    /// Returns the call that a stream begins with. `None` if it is none, and a status if nobody answers it.
    fn opening(&self, first: &Bytes, connection: &Connection) -> Option<Result<Opening, (Framing, Status)>> {
        if let Some(operation) = stream_framing::parse_open(first) {
            let entry = self.table().find(operation)?;
            let (framing, format) = (Framing::Plain, Format::Polyglot);
            if let Some(ambiguity) = self.table().ambiguity(operation) {
                return Some(Err((framing, ambiguity)));
            }
            return Some(Ok(Opening { entry, framing, format, head: Fields::default() }));
        }
        if !Session::is_extended(connection) {
            return None;
        }
        let opened = envelope::parse_open(first, self.metadata_max())?;
        let framing = Framing::Extended {
            metadata_max: Session::metadata_max(connection),
            deflating: self.deflating(connection),
        };
        let opened = opened.and_then(|Open { operation, format, head }| {
            let entry = self.table().find(operation).ok_or_else(|| no_method(operation))?;
            if let Some(ambiguity) = self.table().ambiguity(operation) {
                return Err(ambiguity);
            }
            Ok(Opening { entry, framing, format, head })
        });
        Some(opened.map_err(|status| (framing, status)))
    }
}

/// The first data of a stream that is a call.
struct Opening {
    entry: Entry,
    framing: Framing,
    format: Format,
    head: Fields,
}

/// Reads the one request of a call that a stream answers.
async fn first_message(
    framing: Framing,
    reader: &mut StreamReader,
    held: &mut Option<Held>,
) -> Result<Result<Bytes, Status>, StreamEnd> {
    let Framing::Extended { metadata_max, .. } = framing else { return reader.read().await.map(Ok) };
    loop {
        return Ok(match Data::decode(reader.read().await?, metadata_max) {
            Ok(Data::Messages(mut messages)) => match messages.next() {
                Some(message) => message,
                None => continue,
            },
            Ok(Data::Compressed(compressed, bytes)) => {
                match Session::inflate_request(reader.connection(), compressed, &bytes).await {
                    Ok((messages, room)) => match Packed::new(messages).next() {
                        Some(message) => {
                            *held = Some(room);
                            message
                        }
                        None => continue,
                    },
                    Err(why) => Err(why.of_request()),
                }
            }
            Ok(Data::Head(_) | Data::Unknown) => continue,
            Ok(Data::End(_) | Data::Failure(_)) => Err(Status::invalid_argument("the call ended before its request")),
            Err(status) => Err(status),
        });
    }
}

impl<S: ServiceSet, R: Router> Router for Services<S, R> {
    fn intercept(&self, packet: Packet, connection: &Connection) -> Option<Packet> {
        if self.is_request(&packet) {
            return Some(packet);
        }
        let packet = match Session::of(connection).as_ref().and_then(|session| session.calls.get()) {
            Some(calls) => calls.complete(packet)?,
            None => packet,
        };
        // An answer to a call that nobody remembers.
        if packet.operation == Operation::EXTENDED {
            return None;
        }
        self.fallback.intercept(packet, connection)
    }

    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        if let Some(entry) = self.table().find(packet.operation.number()) {
            return self.serve_packet(entry, packet, connection).await;
        }
        if packet.operation == Operation::EXTENDED {
            return Box::pin(self.serve_extended(packet, connection)).await;
        }
        self.fallback.route(packet, connection).await
    }

    fn refuse(&self, refused: Refused, connection: &Connection) -> Outcome {
        let Refused { id, operation, why, .. } = refused;
        // Any other packet may be an answer, and two sides must not go on answering each other.
        let is_extended = operation == Operation::EXTENDED;
        if !self.serves(operation.number()) {
            let session = Session::of(connection);
            if let Refusal::TooLarge { announced, limit } = why
                && let Some(calls) = session.as_ref().and_then(|session| session.calls.get())
                && calls.fail(id, operation, Unanswered::TooLarge { announced, limit })
            {
                return Outcome::Nothing;
            }
            // Answers were intercepted.
            if is_extended {
                let status = CallError::Refused { why }.into();
                let content = envelope::failure(&status, connection.content_len_max(), 0).into();
                return Outcome::Reply(Packet { id, operation, content });
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
        match self.opening(&first, connection) {
            Some(Ok(Opening { framing, .. }) | Err((framing, _))) => {
                stream_framing::refuse(framing, stream, &CallError::Refused { why: Refusal::Draining }.into()).await;
            }
            None if stream_framing::is_end(&first) => stream.defer_close(),
            None => self.fallback.refuse_stream(stream, connection).await,
        }
    }

    async fn stream(&self, mut stream: Stream, connection: &Connection) {
        let Ok(first) = stream.peek().await else { return };
        match self.opening(&first, connection) {
            Some(Ok(opening)) => {
                stream.defer_close();
                self.serve_stream(opening, stream, connection).await;
            }
            Some(Err((framing, status))) => stream_framing::refuse(framing, stream, &status).await,
            // The second end marker of a call that is over.
            None if stream_framing::is_end(&first) => stream.defer_close(),
            None => self.fallback.stream(stream, connection).await,
        }
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Services::check(self)?;
        self.table().tell_of_ambiguities();
        self.fallback.check()
    }

    fn part(&self) -> Option<(&'static str, Bytes)> {
        Some((PART_NAME, self.said(None)))
    }

    fn recognized(&self, connection: &Connection, peer: &Peer) {
        if let Some(session) = Session::of(connection) {
            let extended = session.remote(connection).and_then(|remote| remote.extended());
            if let Some(calls_max) = extended.and_then(|extended| extended.calls_max) {
                session.calls.get_or_init(Arc::default).limit_to(calls_max);
            }
        }
        self.fallback.recognized(connection, peer);
    }

    /// Calls do not depend on each other, and a fallback says whether its packets do. Without one there are none.
    fn interleaves(&self) -> bool {
        (&self.fallback as &dyn Any).is::<()>() || self.fallback.interleaves()
    }

    fn going_away(&self, connection: &Connection, why: &GoAway) {
        if let Some(session) = Session::of(connection) {
            session.calls.get_or_init(Arc::default).go_away(why.clone());
        }
        self.fallback.going_away(connection, why);
    }

    fn withdrawn(&self, packet: PacketName, connection: &Connection) {
        if let Some(session) = Session::of(connection)
            && let Some(calls) = session.calls.get()
            && calls.fail(packet.id, packet.operation, Unanswered::TimedOut)
        {
            return;
        }
        self.fallback.withdrawn(packet, connection);
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

    fn interleaves(&self) -> bool {
        true
    }

    async fn stream(&self, mut stream: Stream, _: &Connection) {
        let Ok(first) = stream.peek().await else { return };
        if let Some(operation) = stream_framing::parse_open(&first) {
            stream_framing::refuse(Framing::Plain, stream, &no_method(operation)).await;
        }
    }
}

/// Drops a handler when its caller's time is up.
async fn within<T>(deadline: Option<Deadline>, handling: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match deadline {
        None => handling.await,
        Some(deadline) => {
            deadline.bound_with(handling, |Deadline { limit, .. }| stream_framing::out_of_time(limit)).await
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

async fn send_answer(
    method: &Method,
    framing: Framing,
    answer: Result<Answer, Status>,
    sender: &StreamSender,
    connection: &Connection,
) {
    let sending = AssertUnwindSafe(async {
        let answer = answer?;
        match framing {
            Framing::Plain => tell_of_losses(method, &answer),
            Framing::Extended { metadata_max, .. } => {
                envelope::check_metadata(envelope::metadata_len(answer.metadata()), metadata_max)?;
                if !answer.metadata().is_empty() {
                    sender.send(envelope::head(answer.metadata())).await?;
                }
            }
        }
        let trailers = answer.trailers().clone();
        let mut contents = match answer.into_body() {
            Body::One(content) if framing == Framing::Plain => Streaming::from_iter([content.into_bytes()]),
            Body::One(content) => Streaming::from_iter([content.into_bytes()]).with_trailers(trailers),
            Body::Many(contents) => contents,
        };
        stream_framing::send_all(framing, &mut contents, sender).await?;
        if framing == Framing::Plain
            && let Some(trailers) = contents.trailers_slot().as_ref().and_then(|slot| slot.get())
            && !trailers.is_empty()
        {
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
        if framing == Framing::Plain {
            tell_of_lost_details(method, &status);
        }
        stream_framing::send_failure(framing, &status, sender).await;
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
