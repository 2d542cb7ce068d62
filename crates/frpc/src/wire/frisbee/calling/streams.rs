//! Streaming calls. A call with a response stream is retried if the first response shows that it was not executed.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use frisbee::{OpenError, SendError, SendPosition, StreamEnd, StreamReader, StreamSendError, StreamSender};
use futures_util::StreamExt;
use tokio::task::AbortHandle;

use super::{
    super::{
        bytes::{
            envelope,
            stream_framing::{self, StreamFraming},
        },
        message_streams::{self, DeadlineStream, IncomingMessages, IncompleteSend},
        peer::PeerState,
    },
    connection::{ClientConnection, connection_lost, refine_connection_loss, refused_as_too_large},
    reconnecting::FrisbeeCaller,
    route::CallRoute,
};
use crate::{
    call::{
        deadline::Deadline,
        exchange::{Answer, Body},
        head::Head,
        metadata::Metadata,
        method::Method,
        packed::{ContentSource, PollNext, ReceivedMessages, UnpackedContents},
        status::Status,
        streaming::{MetadataSlot, Streaming},
    },
    client::{CallAttempts, needs_another_connection},
    codec::Format,
    error::CallError,
    service::boxed::BoxFuture,
};

/// An opened stream of a call, and the position of its first packet. If that packet is unsent, the call never happened.
pub(crate) type OpenedStream = (StreamFraming, StreamSender, StreamReader, SendPosition);

/// The parameters of a streaming call.
pub(crate) struct StreamCall<'a> {
    pub(crate) method: &'static Method,
    pub(crate) format: Format,
    pub(crate) head: &'a Head,
    /// The deadline to send to the peer.
    pub(crate) timeout: Option<Deadline>,
    pub(crate) opening: Deadline,
    pub(crate) whole: Option<Deadline>,
}

impl ClientConnection {
    /// Opens the stream of a call. On an error, nothing was sent.
    async fn open(&self, call: &StreamCall<'_>, route: CallRoute) -> Result<OpenedStream, Status> {
        let StreamCall { head, timeout, opening: deadline, .. } = *call;
        if let Some(why) = self.calls.going_away() {
            return Err(CallError::GoingAway { why }.into());
        }
        let (framing, open) = match route {
            CallRoute::Plain { operation, .. } => {
                (StreamFraming::Plain, stream_framing::encode_open(operation.number()))
            }
            CallRoute::Extended { operation, format } => {
                let (metadata_max, deflating) = (self.own.metadata_max, PeerState::deflating(&self.connection));
                let open = envelope::open(operation, format, timeout.and_then(Deadline::left), head.metadata());
                (StreamFraming::Extended { metadata_max, deflating }, open)
            }
        };
        let stream = self.connection.open_stream().map_err(|error| match error {
            OpenError::ConnectionClosed => self.unsent(SendError::Closed),
            why => CallError::TooManyStreams { why }.into(),
        })?;
        let (sender, reader) = stream.split();
        let sending = async { sender.send_tracked(open).await.map_err(|error| self.unsent_on_stream(error)) };
        let sent = deadline.bound_unsent(sending).await?;
        Ok((framing, sender, reader, sent))
    }

    /// Makes a call with a response stream.
    async fn server_streaming(
        &self,
        call: &StreamCall<'_>,
        route: CallRoute,
        content: Bytes,
    ) -> Result<Streaming<Bytes>, Status> {
        let StreamCall { opening, whole, .. } = *call;
        let (framing, sender, reader, _) = self.open(call, route).await?;
        let content = match framing {
            StreamFraming::Plain => content.into(),
            StreamFraming::Extended { deflating: None, .. } => envelope::one_message(content),
            StreamFraming::Extended { deflating: Some(deflating), .. } => {
                envelope::deflate(envelope::one_message(content), &deflating)
            }
        };
        let sending = async { sender.send_tracked(content).await.map_err(|error| self.unsent_on_stream(error)) };
        let sent = opening.bound_unsent(sending).await?;
        let requests = RequestState { own_end: AtomicBool::new(true), failure: OnceLock::new() };
        let (incoming, requests) = (IncomingMessages::new(framing, reader), Arc::new(requests));
        Ok(ResponseStream { framing, incoming, sender, sent, requests, pump: None }.into_streaming(whole))
    }

    /// Makes a call with a stream in each direction, on an opened stream.
    pub(crate) fn bidirectional(
        &self,
        (framing, sender, reader, sent): OpenedStream,
        mut contents: Streaming<Bytes>,
        whole: Option<Deadline>,
    ) -> Streaming<Bytes> {
        let requests = Arc::new(RequestState { own_end: AtomicBool::new(false), failure: OnceLock::new() });
        let pump = RequestPump { framing, sender: sender.clone(), requests: requests.clone(), is_over: false };
        let pump = tokio::spawn(async move { pump.run(&mut contents).await });
        let (incoming, pump) = (IncomingMessages::new(framing, reader), Some(pump.abort_handle()));
        ResponseStream { framing, incoming, sender, sent, requests, pump }.into_streaming(whole)
    }

    /// Makes a call with a request stream, on an opened stream.
    ///
    /// Without a deadline for the whole call, the time for the answer starts at the end of the request stream.
    pub(crate) async fn client_streaming(
        &self,
        (framing, sender, reader, sent): OpenedStream,
        mut contents: Streaming<Bytes>,
        opening: Deadline,
        whole: Option<Deadline>,
    ) -> Result<Answer, Status> {
        let incoming = IncomingMessages::new(framing, reader);
        let (metadata, trailers) = (incoming.metadata.clone(), incoming.trailers.clone());
        let mut incoming = streaming(incoming, whole);
        let (answer, own_end) = tokio::select! {
            biased;
            answer = incoming.next() => (answer, false),
            sent = message_streams::send_all(framing, &mut contents, &sender) => {
                match sent {
                    Err(IncompleteSend::Failed(status)) => return Err(status),
                    Err(IncompleteSend::TooLargeForPeer { len, limit }) => return Err(refused_as_too_large(len, limit)),
                    Ok(()) | Err(IncompleteSend::StreamEnded) => {}
                }
                let deadline = whole.unwrap_or_else(|| Deadline::after(opening.limit));
                (deadline.bound(async { Ok(incoming.next().await) }).await?, true)
            }
        };
        let answer = answer.unwrap_or_else(|| Err(Status::internal("the call ended without an answer")));
        let answer = answer.map_err(|status| refine_connection_loss(status, &self.connection, sent))?;
        // The end marker follows the answer directly.
        let end = Deadline::after(opening.limit).bound(async { incoming.next().await.transpose() }).await;
        if !own_end {
            let _ = sender.try_send(framing.end(&Metadata::new()));
        }
        // A plain peer's end carries no information. An extended peer's end may be a status.
        if let (Err(status), StreamFraming::Extended { .. }) = (end, framing) {
            return Err(refine_connection_loss(status, &self.connection, sent));
        }
        if framing == StreamFraming::Plain {
            return Ok(Answer::new(Body::One(stream_framing::message_or_status(answer)?.into())));
        }
        let mut answer = Answer::new(Body::One(answer.into()));
        if let Some(metadata) = metadata.get() {
            *answer.metadata_mut() = metadata.clone();
        }
        if let Some(trailers) = trailers.get() {
            *answer.trailers_mut() = trailers.clone();
        }
        Ok(answer)
    }

    /// Returns the status for a failed send on a stream.
    fn unsent_on_stream(&self, error: StreamSendError) -> Status {
        match error {
            StreamSendError::ContentTooLarge { len, limit } => CallError::MessageTooLarge { len, limit }.into(),
            StreamSendError::TooLargeForPeer { len, limit } => refused_as_too_large(len, limit),
            StreamSendError::Ended(end) if end != StreamEnd::ConnectionClosed => {
                message_streams::stream_end_status(end, &self.connection)
            }
            _ => connection_lost(message_streams::why_closed(&self.connection), false),
        }
    }
}

/// Returns the response stream, limited by the deadline of the call.
fn streaming(contents: impl ContentSource + 'static, whole: Option<Deadline>) -> Streaming<Bytes> {
    let contents = UnpackedContents::new(contents);
    match whole.and_then(|deadline| Some((deadline.at?, deadline))) {
        Some((at, deadline)) => Streaming::from_source(DeadlineStream::new(contents, at, deadline)),
        None => Streaming::from_source(contents),
    }
}

/// The response stream of a call. Dropping it before its end cancels the call.
struct ResponseStream {
    framing: StreamFraming,
    incoming: IncomingMessages,
    sender: StreamSender,
    /// The position of the packet that opened the call.
    sent: SendPosition,
    requests: Arc<RequestState>,
    /// The task that sends the request stream.
    pump: Option<AbortHandle>,
}

/// The task that sends a request stream. Dropped early, for example by a runtime shutdown, it ends the call.
struct RequestPump {
    framing: StreamFraming,
    sender: StreamSender,
    requests: Arc<RequestState>,
    is_over: bool,
}

impl RequestPump {
    async fn run(mut self, contents: &mut Streaming<Bytes>) {
        match message_streams::send_all(self.framing, contents, &self.sender).await {
            // Only after it was sent. If the responses end in between, the server gets the end marker twice, which is
            // harmless.
            Ok(()) => self.requests.own_end.store(true, Ordering::Relaxed),
            Err(IncompleteSend::StreamEnded) => {}
            Err(IncompleteSend::Failed(status)) => self.fail(status),
            Err(IncompleteSend::TooLargeForPeer { len, limit }) => self.fail(refused_as_too_large(len, limit)),
        }
        self.is_over = true;
    }

    fn fail(&self, status: Status) {
        // The first failure counts. It is set before the close, because the close ends the responses and their reader
        // checks it.
        let _ = self.requests.failure.set(status);
        self.sender.close();
    }
}

impl Drop for RequestPump {
    fn drop(&mut self) {
        if !self.is_over {
            self.fail(Status::internal("the task that sent the requests is gone"));
        }
    }
}

/// The state of a request stream.
struct RequestState {
    /// True if its end marker was sent, or this kind of call has none.
    own_end: AtomicBool,
    failure: OnceLock<Status>,
}

impl ResponseStream {
    fn into_streaming(self, whole: Option<Deadline>) -> Streaming<Bytes> {
        let (metadata, trailers) = (self.incoming.metadata.clone(), self.incoming.trailers.clone());
        let (metadata, trailers) = match self.framing {
            StreamFraming::Plain => (None, None),
            StreamFraming::Extended { .. } => (Some(metadata), Some(trailers)),
        };
        streaming(self, whole).with_metadata_slot(metadata).with_trailers_slot(trailers)
    }
}

impl ContentSource for ResponseStream {
    fn poll_contents(&mut self, cx: &mut Context<'_>) -> PollNext<ReceivedMessages<Bytes>> {
        match self.incoming.poll_contents(cx) {
            Poll::Ready(None) => {
                if !self.requests.own_end.swap(true, Ordering::Relaxed) {
                    // A server without room for it is not waiting for it either.
                    let _ = self.sender.try_send(self.framing.end(&Metadata::new()));
                }
                self.sender.close();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(status))) => {
                // The call failed. An end marker would tell the server that the request stream is complete.
                self.requests.own_end.store(true, Ordering::Relaxed);
                self.sender.close();
                let failure = self.requests.failure.get().cloned();
                let status =
                    failure.unwrap_or_else(|| refine_connection_loss(status, self.sender.connection(), self.sent));
                Poll::Ready(Some(Err(status)))
            }
            Poll::Ready(Some(Ok(ReceivedMessages::One(content)))) => {
                Poll::Ready(Some(stream_framing::message_or_status(content).map(ReceivedMessages::One)))
            }
            messages => messages,
        }
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if let Some(pump) = &self.pump {
            pump.abort();
        }
        self.sender.close();
    }
}

/// A call with one request and a response stream.
pub(super) struct ServerStreamCall {
    pub(super) method: &'static Method,
    pub(super) format: Format,
    pub(super) head: Head,
    pub(super) content: Bytes,
    pub(super) opening: Deadline,
    pub(super) whole: Option<Deadline>,
}

impl ServerStreamCall {
    fn call(&self) -> StreamCall<'_> {
        let Self { method, format, ref head, opening, whole, .. } = *self;
        StreamCall { method, format, head, timeout: whole, opening, whole }
    }
}

/// The response stream of a call that may still be retried.
struct RetryStream {
    answers: Streaming<Bytes>,
    /// The slots for metadata and trailers, filled by the attempt whose responses are returned.
    slots: (MetadataSlot, MetadataSlot),
    /// The state for a retry. `None` after the first response.
    undecided: Option<Box<RetryState>>,
    again: Option<BoxFuture<'static, Result<RetriedCall, Status>>>,
}

type RetriedCall = (Box<RetryState>, Streaming<Bytes>);

struct RetryState {
    wire: Arc<FrisbeeCaller>,
    connection: Arc<ClientConnection>,
    call: ServerStreamCall,
    attempts: CallAttempts,
}

impl RetryState {
    /// Retries the call after it failed with this status.
    async fn retry(mut self: Box<Self>, status: Status) -> Result<RetriedCall, Status> {
        let connection = self.wire.next_connection(&mut self.attempts, self.connection, status).await?;
        let (connection, answers) = self.wire.send_request(connection, &self.call, &mut self.attempts).await?;
        self.connection = connection;
        Ok((self, answers))
    }
}

impl RetryStream {
    /// Copies metadata and trailers of the current attempt to the slots.
    fn copy_metadata(&self) {
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

impl ContentSource for RetryStream {
    fn poll_contents(&mut self, cx: &mut Context<'_>) -> PollNext<ReceivedMessages<Bytes>> {
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
                    self.again = Some(Box::pin(undecided.retry(status)));
                }
                (_, next) => {
                    self.copy_metadata();
                    return Poll::Ready(next);
                }
            }
        }
    }
}

impl FrisbeeCaller {
    /// Opens the stream of a call. Returns its connection as well.
    pub(super) async fn open_stream(
        self: &Arc<Self>,
        call: &StreamCall<'_>,
    ) -> Result<(Arc<ClientConnection>, OpenedStream), Status> {
        let connection = self.open(call.opening).await?;
        let attempt = |connection: Arc<ClientConnection>| async move {
            let route = self.prepare_stream(&connection, call).await?;
            connection.open(call, route).await
        };
        self.repeat(connection, &mut CallAttempts::new(call.opening), attempt).await
    }

    /// Returns the route of a streaming call.
    ///
    /// Waits until the peer is recognized: with the wrong operation number, the messages could reach another method
    /// before the peer reports an error.
    async fn prepare_stream(&self, connection: &ClientConnection, call: &StreamCall<'_>) -> Result<CallRoute, Status> {
        let StreamCall { method, format, head, opening, .. } = *call;
        self.prepare(connection, method, Some(format), head, true, opening).await
    }

    /// Sends the request of a call on this connection or another. Returns the connection as well.
    async fn send_request(
        self: &Arc<Self>,
        connection: Arc<ClientConnection>,
        request: &ServerStreamCall,
        attempts: &mut CallAttempts,
    ) -> Result<(Arc<ClientConnection>, Streaming<Bytes>), Status> {
        let attempt = |connection: Arc<ClientConnection>| async move {
            let call = request.call();
            let route = self.prepare_stream(&connection, &call).await?;
            connection.server_streaming(&call, route, request.content.clone()).await
        };
        self.repeat(connection, attempts, attempt).await
    }

    /// Makes a call with a response stream. Retries it if the first response shows that the call was not executed.
    pub(super) async fn server_streaming(self: &Arc<Self>, call: ServerStreamCall) -> Result<Streaming<Bytes>, Status> {
        let mut attempts = CallAttempts::new(call.opening);
        let connection = self.open(call.opening).await?;
        let (connection, answers) = self.send_request(connection, &call, &mut attempts).await?;
        if self.redial.is_none() {
            return Ok(answers);
        }
        let (metadata, trailers) = (MetadataSlot::default(), MetadataSlot::default());
        let slots = (metadata.clone(), trailers.clone());
        let undecided = RetryState { wire: self.clone(), connection, call, attempts };
        let answers = RetryStream { answers, slots, undecided: Some(Box::new(undecided)), again: None };
        Ok(Streaming::from_source(UnpackedContents::new(answers))
            .with_metadata_slot(Some(metadata))
            .with_trailers_slot(Some(trailers)))
    }
}
