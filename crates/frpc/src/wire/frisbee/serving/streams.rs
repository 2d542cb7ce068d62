//! Streaming calls on the server: opening, messages of the caller, and answers.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use frisbee::{Connection, RefusalReason, Router, Stream, StreamEnd, StreamReader, StreamSender};
use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::debug;

use super::{
    super::{
        bytes::{
            compressed::InflatePermit,
            envelope::{self, HeadFields, OpenFrame, StreamFrame},
            stream_framing::{self, StreamFraming},
        },
        message_streams::{self, IncomingMessages, IncompleteSend},
        peer::PeerState,
    },
    failures::{answer_too_large, no_method, tell_of_loss, tell_of_losses, tell_of_lost_details},
    origin::origin,
};
use crate::{
    call::{
        deadline::{HandlerTime, within},
        exchange::{Answer, Body, Call},
        head::Head,
        method::{Method, MethodKind},
        packed::{PackedMessages, UnpackedContents},
        status::{Code, Status},
        streaming::Streaming,
        system::RpcSystem,
    },
    codec::Format,
    error::{ServerCause, ServerFailure},
    service::{
        ending::EndSignal,
        services::{Services, panicked},
        set::ServiceSet,
        table::MethodEntry,
    },
};

impl<S: ServiceSet, R: Router> Services<S, R> {
    pub(super) async fn serve_stream(&self, opening: StreamOpening, stream: Stream, connection: &Connection) {
        let StreamOpening { entry, framing, format, head } = opening;
        let method = entry.method;
        let (sender, mut reader) = stream.split();
        // The opening data. It was peeked at, so this does not wait.
        let _ = reader.read().await;
        let time = self.common.calls.time_of(method, head.timeout, Instant::now);
        let at = time.and_then(HandlerTime::at);
        let mut received = Head::received(Some(origin(connection)), at);
        if !head.metadata.is_empty() {
            *received.metadata_mut() = head.metadata;
        }
        // The budget for an inflated request, held while the handler runs.
        let mut held = None;
        let input = match method.kind {
            MethodKind::Unary => Err(Status::unimplemented("the method takes a packet, not a stream").into()),
            MethodKind::ServerStreaming => {
                let request = first_message(framing, &mut reader, &mut held).await;
                // Later data is discarded.
                drop(reader);
                match request {
                    Ok(content) => content.map(|content| Body::One(content.into())).map_err(ServerFailure::from),
                    Err(StreamEnd::TooLarge { announced, limit }) => {
                        Err(ServerCause::Refused(RefusalReason::TooLarge { announced, limit }).into())
                    }
                    Err(end) => return debug!(%end, "a call ended before its request"),
                }
            }
            MethodKind::ClientStreaming | MethodKind::Bidirectional => Ok(Body::Many(Streaming::from_source(
                UnpackedContents::new(IncomingMessages::reading_to_end(framing, reader)),
            ))),
        };
        let answering = async {
            let answer = match input {
                Ok(body) => {
                    let call = Call::new(method, format, received, body);
                    self.call(entry, call, time).await.map_err(ServerFailure::from)
                }
                Err(failure) => Err(failure),
            };
            // The caller's timeout bounds the response messages as well.
            let sending = async {
                send_answer(method, framing, answer, &sender, connection).await;
                Ok(())
            };
            if let Err(status) = within(time, sending).await {
                message_streams::send_failure(framing, &status.into(), &sender).await;
            }
        };
        tokio::select! {
            biased;
            () = answering => {}
            end = sender.closed() => debug!(%end, method = method.name, "a call was cut off"),
            () = self.ending().ended() => {
                message_streams::send_failure(framing, &EndSignal::status().into(), &sender).await;
            }
        }
    }

    /// Returns the call opened by the first data of a stream. `None` if it is no call, and a status if it cannot be
    /// answered.
    pub(super) fn opening(
        &self,
        first: &Bytes,
        connection: &Connection,
    ) -> Option<Result<StreamOpening, (StreamFraming, Status)>> {
        if let Some(operation) = stream_framing::parse_open(first) {
            let entry = self.table().find(operation)?;
            let (framing, format) = (StreamFraming::Plain, Format::Polyglot);
            if let Some(ambiguity) = self.table().ambiguity(operation) {
                return Some(Err((framing, ambiguity)));
            }
            return Some(Ok(StreamOpening { entry, framing, format, head: HeadFields::default() }));
        }
        // A plain peer opens no extended call.
        PeerState::hello_on(connection)?;
        let opened = envelope::parse_open(first, self.metadata_max())?;
        let framing = StreamFraming::Extended {
            metadata_max: PeerState::metadata_max(connection),
            deflating: PeerState::deflating(connection),
        };
        let opened = opened.and_then(|OpenFrame { operation, format, head }| {
            let entry = self.table().find(operation).ok_or_else(|| {
                self.common.count_refused(None, RpcSystem::Frpc, Code::Unimplemented);
                no_method(operation)
            })?;
            if let Some(ambiguity) = self.table().ambiguity(operation) {
                return Err(ambiguity);
            }
            Ok(StreamOpening { entry, framing, format, head })
        });
        Some(opened.map_err(|status| (framing, status)))
    }
}

/// A parsed opening: the method, and the framing and head of the call.
pub(super) struct StreamOpening {
    entry: MethodEntry,
    pub(super) framing: StreamFraming,
    format: Format,
    head: HeadFields,
}

/// Reads the single request of a server-streaming call.
async fn first_message(
    framing: StreamFraming,
    reader: &mut StreamReader,
    held: &mut Option<InflatePermit>,
) -> Result<Result<Bytes, Status>, StreamEnd> {
    let StreamFraming::Extended { metadata_max, .. } = framing else { return reader.read().await.map(Ok) };
    loop {
        return Ok(match StreamFrame::decode(reader.read().await?, metadata_max) {
            Ok(StreamFrame::Messages(mut messages)) => match messages.next() {
                Some(message) => message,
                None => continue,
            },
            Ok(StreamFrame::Compressed(compressed, bytes)) => {
                match PeerState::inflate_request(reader.connection(), compressed, &bytes).await {
                    Ok((messages, room)) => match PackedMessages::new(messages).next() {
                        Some(message) => {
                            *held = Some(room);
                            message
                        }
                        None => continue,
                    },
                    Err(why) => Err(why.request_status()),
                }
            }
            Ok(StreamFrame::Head(_) | StreamFrame::Unknown) => continue,
            Ok(StreamFrame::End(_) | StreamFrame::Failure(_)) => {
                Err(Status::invalid_argument("the call ended before its request"))
            }
            Err(status) => Err(status),
        });
    }
}

async fn send_answer(
    method: &Method,
    framing: StreamFraming,
    answer: Result<Answer, ServerFailure>,
    sender: &StreamSender,
    connection: &Connection,
) {
    let answer = match answer {
        Ok(answer) => answer,
        Err(failure) => return fail(method, framing, &failure, sender, connection).await,
    };
    let sending = AssertUnwindSafe(async {
        match framing {
            StreamFraming::Plain => tell_of_losses(method, &answer),
            StreamFraming::Extended { metadata_max, .. } => {
                envelope::check_metadata(envelope::metadata_len(answer.metadata()), metadata_max)?;
                if !answer.metadata().is_empty() {
                    sender.send(envelope::head(answer.metadata())).await?;
                }
            }
        }
        let trailers = answer.trailers().clone();
        let mut contents = match answer.into_body() {
            Body::One(content) if framing == StreamFraming::Plain => Streaming::from_iter([content.into_bytes()]),
            Body::One(content) => Streaming::from_iter([content.into_bytes()]).with_trailers(trailers),
            Body::Many(contents) => contents,
        };
        message_streams::send_all(framing, &mut contents, sender).await?;
        if framing == StreamFraming::Plain
            && let Some(trailers) = contents.trailers_slot().as_ref().and_then(|slot| slot.get())
            && !trailers.is_empty()
        {
            tell_of_loss(method, "trailers", trailers.len());
        }
        Ok(())
    });
    let sent = sending.catch_unwind().await.unwrap_or_else(|_| Err(panicked(method).into()));
    let failure = match sent {
        Err(IncompleteSend::Failed(status)) => status.into(),
        Err(IncompleteSend::TooLargeForPeer { len, limit }) => answer_too_large(len, limit),
        Ok(()) | Err(IncompleteSend::StreamEnded) => return,
    };
    fail(method, framing, &failure, sender, connection).await;
}

/// Ends a call with a failure, and its connection if the status requires that.
async fn fail(
    method: &Method,
    framing: StreamFraming,
    failure: &ServerFailure,
    sender: &StreamSender,
    connection: &Connection,
) {
    if framing == StreamFraming::Plain {
        tell_of_lost_details(method, &failure.status);
    }
    message_streams::send_failure(framing, failure, sender).await;
    if failure.status.closes_connection() {
        connection.close();
    }
}
