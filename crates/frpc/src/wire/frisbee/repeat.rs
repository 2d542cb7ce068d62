//! Calls with a response stream, retried if the first response shows that the call was not executed.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

use super::{client::ClientConnection, reconnect::Reconnecting, stream_calls::StreamCall};
use crate::{
    call::{
        deadline::Deadline,
        head::Head,
        method::Method,
        packed::{Contents, PollNext, Received, Unpacked},
        status::Status,
        streaming::{MetadataSlot, Streaming},
    },
    client::{Attempts, needs_another_connection},
    codec::Format,
    service::boxed::BoxFuture,
};

/// A call with one request and a response stream.
pub(super) struct StreamedCall {
    pub(super) method: &'static Method,
    pub(super) format: Format,
    pub(super) head: Head,
    pub(super) content: Bytes,
    pub(super) opening: Deadline,
    pub(super) whole: Option<Deadline>,
}

impl StreamedCall {
    fn call(&self) -> StreamCall<'_> {
        let Self { method, format, ref head, opening, whole, .. } = *self;
        StreamCall { method, format, head, timeout: whole, opening, whole }
    }
}

/// The response stream of a call that may still be retried.
struct Repeatable {
    answers: Streaming<Bytes>,
    /// The slots for metadata and trailers, filled by the attempt whose responses are returned.
    slots: (MetadataSlot, MetadataSlot),
    /// The state for a retry. `None` after the first response.
    undecided: Option<Box<Undecided>>,
    again: Option<BoxFuture<'static, Result<MadeAgain, Status>>>,
}

type MadeAgain = (Box<Undecided>, Streaming<Bytes>);

struct Undecided {
    wire: Arc<Reconnecting>,
    connection: Arc<ClientConnection>,
    call: StreamedCall,
    attempts: Attempts,
}

impl Undecided {
    /// Retries the call after it failed with this status.
    async fn again(mut self: Box<Self>, status: Status) -> Result<MadeAgain, Status> {
        let connection = self.wire.another(&mut self.attempts, self.connection, status).await?;
        let sending = self.wire.send_request(connection, &self.call, &mut self.attempts);
        let (connection, answers) = sending.await?;
        self.connection = connection;
        Ok((self, answers))
    }
}

impl Repeatable {
    /// Copies metadata and trailers of the current attempt to the slots.
    fn tell(&self) {
        let (metadata, trailers) = &self.slots;
        let of_answers = self.answers.trailers_slot();
        for (slot, known) in
            [(metadata, self.answers.metadata()), (trailers, of_answers.as_ref().and_then(|slot| slot.get()))]
        {
            if let Some(known) = known
                && slot.get().is_none()
            {
                slot.set(known.clone());
            }
        }
    }
}

impl Contents for Repeatable {
    fn poll_contents(&mut self, cx: &mut Context<'_>) -> PollNext<Received<Bytes>> {
        loop {
            if let Some(again) = &mut self.again {
                let outcome = ready!(again.as_mut().poll(cx));
                self.again = None;
                match outcome {
                    Ok((undecided, answers)) => (self.undecided, self.answers) = (Some(undecided), answers),
                    Err(status) => return Poll::Ready(Some(Err(status))),
                }
            }
            let next = ready!(self.answers.poll_several(cx));
            match (self.undecided.take(), next) {
                (Some(undecided), Some(Err(status))) if needs_another_connection(&status) => {
                    // The failed stream may be the last handle that keeps its connection open.
                    self.answers = Streaming::over();
                    self.again = Some(Box::pin(undecided.again(status)));
                }
                (_, next) => {
                    self.tell();
                    return Poll::Ready(next);
                }
            }
        }
    }
}

impl Reconnecting {
    /// Sends the request of a call on this connection or another. Returns the connection as well.
    async fn send_request(
        self: &Arc<Self>,
        mut connection: Arc<ClientConnection>,
        request: &StreamedCall,
        attempts: &mut Attempts,
    ) -> Result<(Arc<ClientConnection>, Streaming<Bytes>), Status> {
        loop {
            let sending = async {
                let call = request.call();
                self.check_call(&connection, &call).await?;
                connection.server_streaming(&call, request.content.clone()).await
            };
            match sending.await {
                Ok(answers) => return Ok((connection, answers)),
                Err(status) => connection = self.another(attempts, connection, status).await?,
            }
        }
    }

    /// Makes a call with a response stream. Retries it if the first response shows that the call was not executed.
    pub(super) async fn server_streaming(self: &Arc<Self>, call: StreamedCall) -> Result<Streaming<Bytes>, Status> {
        let mut attempts = Attempts::new(call.opening);
        let connection = self.open(call.opening).await?;
        let (connection, answers) = self.send_request(connection, &call, &mut attempts).await?;
        if self.redial.is_none() {
            return Ok(answers);
        }
        let (metadata, trailers) = (MetadataSlot::default(), MetadataSlot::default());
        let slots = (metadata.clone(), trailers.clone());
        let undecided = Undecided { wire: self.clone(), connection, call, attempts };
        let answers = Repeatable { answers, slots, undecided: Some(Box::new(undecided)), again: None };
        Ok(Streaming::from_source(Unpacked::new(answers))
            .with_metadata_slot(Some(metadata))
            .with_trailers_slot(Some(trailers)))
    }
}
