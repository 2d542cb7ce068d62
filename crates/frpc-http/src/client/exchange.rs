//! A request and its response, with retries on other connections while the call was certainly not executed.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use frpc::{
    Call, CallError, Metadata, MethodKind, Status,
    client::{CallAttempts, CallTime, Deadline, with_own_timeout},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header, response,
    uri::{PathAndQuery, Scheme},
};
use http_body::Body;

use super::{
    caller::add_metadata,
    failures,
    incoming::{IncomingBody, PendingResponse, RequestFailure},
    outgoing::{MessageSource, OutgoingBody, RequestContent},
    pool::{CallSlot, ConnectionPool},
};
use crate::{headers::request_len, message::envelope::EnvelopeReader};

/// The head of a request, still independent of a connection.
pub(super) struct RequestHead {
    pub(super) method: Method,
    pub(super) path: PathAndQuery,
    /// The headers of the protocol.
    pub(super) headers: Arc<HeaderMap>,
    pub(super) metadata: Metadata,
    /// The timeout header and its formatter.
    pub(super) timeout: Option<TimeoutHeader>,
    /// The timeout already contained in `headers`.
    pub(super) said: Option<Duration>,
    /// `true` if other calls have the same headers, in the same allocation.
    #[cfg_attr(not(feature = "http2"), expect(dead_code, reason = "hyper prepares no heads"))]
    pub(super) is_repeated: bool,
}

pub(super) type TimeoutHeader = (HeaderName, fn(Duration) -> HeaderValue);

/// The deadlines of a call.
#[derive(Clone, Copy)]
pub(super) struct CallDeadlines {
    opening: Deadline,
    pub(super) whole: Option<Deadline>,
    answer: Option<Deadline>,
}

impl CallDeadlines {
    pub(super) fn of(call: &Call) -> Self {
        Self::new(call.time(), call.kind())
    }

    pub(super) fn new(time: CallTime, kind: MethodKind) -> Self {
        let CallTime { opening, whole, .. } = time;
        Self { opening, whole, answer: time.answer(kind) }
    }

    /// Returns the timeout of the whole call, for a request sent right after its start. Calls with the same limit have
    /// the same header, which HTTP/2 compresses to one byte.
    pub(super) fn limit(self) -> Option<Duration> {
        self.answer.filter(|deadline| deadline.at.is_some()).map(|deadline| deadline.limit)
    }

    /// Returns the time left for the whole call.
    fn left(self) -> Option<Duration> {
        self.answer?.left()
    }
}

/// A request in progress.
pub(super) struct HttpExchange {
    pool: Arc<ConnectionPool>,
    head: RequestHead,
    content: RequestContent,
    deadlines: CallDeadlines,
    attempts: CallAttempts,
    sent: Option<SentRequest>,
    stop: StopOnDrop,
}

struct SentRequest {
    responding: PendingResponse,
    place: CallSlot,
    /// The number of bytes written on the connection before this request.
    written: u64,
}

/// Drops the request stream at the end of the call.
struct StopOnDrop(Option<Arc<MessageSource>>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(source) = &self.0 {
            source.stop();
        }
    }
}

impl HttpExchange {
    /// Sends a request.
    pub(super) async fn begin(
        pool: Arc<ConnectionPool>,
        head: RequestHead,
        content: RequestContent,
        deadlines: CallDeadlines,
    ) -> Result<Self, Status> {
        let mut exchange = Self::new(pool, head, content, deadlines);
        exchange.send().await?;
        Ok(exchange)
    }

    fn new(pool: Arc<ConnectionPool>, head: RequestHead, content: RequestContent, deadlines: CallDeadlines) -> Self {
        let stop = StopOnDrop(content.source().cloned());
        // HTTP/2 servers may refuse single streams (REFUSED_STREAM). Such calls are retried.
        let attempts = CallAttempts::new(deadlines.opening).repeat_busy();
        Self { pool, head, content, deadlines, attempts, sent: None, stop }
    }

    async fn send(&mut self) -> Result<(), Status> {
        let (mut place, left) = match self.pool.try_acquire() {
            Some(place) if self.attempts.is_first() => (place, self.deadlines.limit()),
            Some(place) => (place, self.deadlines.left()),
            // Boxed because few calls wait for a place, and the future would enlarge all of them.
            None => (Box::pin(self.deadlines.opening.bound_unsent(self.pool.acquire())).await?, self.deadlines.left()),
        };
        let written = place.connection().written();
        #[cfg(feature = "http2")]
        if let Some(request) = self.repeated(place.connection().is_http2(), left) {
            let responding = place.send_http2(request);
            self.sent = Some(SentRequest { responding, place, written });
            return Ok(());
        }
        let request = self.request(place.connection().is_http2(), left)?;
        self.check_head(&request, place.connection().head_len_max())?;
        let responding = place.send(request);
        self.sent = Some(SentRequest { responding, place, written });
        Ok(())
    }

    /// Fails if the request head exceeds the limit of the server. The server might otherwise close the connection and
    /// fail all its calls.
    fn check_head(&self, request: &Request<OutgoingBody>, max: Option<usize>) -> Result<(), Status> {
        let Some(max) = max.filter(|_| !self.head.metadata.is_empty()) else { return Ok(()) };
        let len = request_len(request.method(), request.uri(), request.headers());
        if len > max {
            let text = format!(
                "the metadata and other headers of the call have {len} bytes; the server accepts at most {max}"
            );
            return Err(Status::resource_exhausted(text));
        }
        Ok(())
    }

    /// Returns the request if it is for HTTP/2 and has headers of many calls, which the connection prepares once.
    #[cfg(feature = "http2")]
    fn repeated(&self, is_http2: bool, left: Option<Duration>) -> Option<super::http2::Http2Request> {
        let RequestHead { method, path, headers, metadata, timeout, said, is_repeated } = &self.head;
        let is_added = left != *said;
        if !is_http2 || !is_repeated || !metadata.is_empty() || (is_added && said.is_some()) {
            return None;
        }
        let timeout = timeout.as_ref().zip(left.filter(|_| is_added));
        let (method, path, headers) = (method.clone(), path.clone(), headers.clone());
        Some(super::http2::Http2Request {
            head: super::http2::CallHead {
                method: Arc::new(super::http2::MethodHead { method, path, headers }),
                is_repeated: true,
                added: timeout.map(|((name, write), left)| {
                    let timeout = Some((name.clone(), write(left)));
                    Box::new(super::http2::AddedHeaders { timeout, head: frpc::Head::default() })
                }),
            },
            content: super::http2::Http2Content::Body(Box::new(self.content.body())),
        })
    }

    /// Continues with a request that was sent in another way.
    #[cfg(feature = "http2")]
    pub(super) fn resume(
        head: RequestHead,
        content: RequestContent,
        deadlines: CallDeadlines,
        responding: PendingResponse,
        (place, written): (CallSlot, u64),
    ) -> Self {
        let mut exchange = Self::new(place.pool().clone(), head, content, deadlines);
        exchange.sent = Some(SentRequest { responding, place, written });
        exchange
    }

    fn request(&self, is_http2: bool, left: Option<Duration>) -> Result<Request<OutgoingBody>, Status> {
        let mut request = Request::new(self.content.body());
        *request.method_mut() = self.head.method.clone();
        *request.headers_mut() = (*self.head.headers).clone();
        add_metadata(request.headers_mut(), &self.head.metadata);
        if let Some((name, write)) = &self.head.timeout
            && left != self.head.said
        {
            match left {
                Some(left) => request.headers_mut().insert(name, write(left)),
                None => request.headers_mut().remove(name),
            };
        }
        let target = &self.pool.dialer().target;
        if is_http2 {
            let mut parts = http::uri::Parts::default();
            parts.scheme = Some(if target.is_secure { Scheme::HTTPS } else { Scheme::HTTP });
            parts.authority = Some(target.authority.clone());
            parts.path_and_query = Some(self.head.path.clone());
            *request.uri_mut() = Uri::from_parts(parts).map_err(|error| Status::internal(error.to_string()))?;
            *request.version_mut() = http::Version::HTTP_2;
        } else {
            let host = HeaderValue::from_str(target.authority.as_str());
            request.headers_mut().insert(header::HOST, host.map_err(|error| Status::internal(error.to_string()))?);
            *request.uri_mut() = self.head.path.clone().into();
        }
        Ok(request)
    }

    /// Waits for the head of the response.
    pub(super) async fn response(mut self) -> Result<(response::Parts, ReceivedBody), Status> {
        loop {
            let Some(SentRequest { responding, place, written }) = self.sent.take() else {
                self.send().await?;
                continue;
            };
            let RequestFailure { error, is_unsent } = match responding.await {
                Ok(response) => {
                    let (parts, body) = response.into_parts();
                    return Ok((parts, ReceivedBody { body, trailers: None, place, stop: self.stop }));
                }
                Err(failure) => failure,
            };
            if let Some(status) = self.stop.0.as_ref().and_then(|source| source.failure()) {
                return Err(status);
            }
            // Any byte written since may belong to the request.
            let was_written = !is_unsent && place.connection().written() != written;
            let settings = &self.pool.dialer().settings;
            let status = match place.connection().foreign_protocol() {
                // Every other connection would fail in the same way.
                Some(foreign) => {
                    CallError::Unreachable(Arc::new(self.pool.dialer().foreign_protocol_error(foreign))).into()
                }
                None => failures::request_failure(error, was_written, settings),
            };
            // Frees the place before the retry waits for another one.
            drop(place);
            if !self.content.can_resend() {
                return Err(status);
            }
            Box::pin(self.attempts.begin_another(status)).await?;
        }
    }

    /// Waits for the response and the result of `read`, limited by the deadline of the call.
    pub(super) async fn read_by_deadline<T>(
        self,
        read: impl AsyncFnOnce(response::Parts, ReceivedBody) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let (CallDeadlines { opening, answer: deadline, .. }, source) = (self.deadlines, self.stop.0.clone());
        let mut answering = pin!(async move {
            let (parts, received) = self.response().await?;
            read(parts, received).await
        });
        let answered = match (deadline, source) {
            (None, Some(source)) => {
                // Boxed because few calls wait here, and the future would enlarge all of them.
                let ended = Box::pin(async move { source.ended().await });
                tokio::select! {
                    biased;
                    answer = &mut answering => answer,
                    // For a request stream, the timeout of the channel starts at the end of the stream.
                    () = ended => Deadline::after(opening.limit).bound(answering).await,
                }
            }
            (Some(deadline), _) => deadline.bound(answering).await,
            (None, None) => answering.await,
        };
        answered.map_err(|status| with_own_timeout(status, deadline))
    }
}

/// The body of a response.
pub(super) struct ReceivedBody {
    body: IncomingBody,
    trailers: Option<HeaderMap>,
    place: CallSlot,
    stop: StopOnDrop,
}

impl ReceivedBody {
    /// Returns the next bytes, or `None` at the end.
    pub(super) async fn data(&mut self) -> Result<Option<Bytes>, Status> {
        poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Polls for the next bytes, or `None` at the end.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(Ok(None)),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    let failure = self.stop.0.as_ref().and_then(|source| source.failure());
                    let settings = &self.place.pool().dialer().settings;
                    return Poll::Ready(Err(failure.unwrap_or_else(|| failures::response_failure(error, settings))));
                }
            };
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Poll::Ready(Ok(Some(data))),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }

    /// Polls for the next bytes, or `None` at the end. If `frames` has the start of a long frame, the bytes are the whole
    /// frame.
    pub(super) fn poll_frames(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut EnvelopeReader,
    ) -> Poll<Result<Option<Bytes>, Status>> {
        self.body.collect(|| frames.take_start());
        self.poll_data(cx)
    }

    /// Reads the rest of the body, up to `len_max` bytes.
    pub(super) async fn all(&mut self, len_max: usize) -> Result<Bytes, Status> {
        let too_large = |len| {
            Status::resource_exhausted(format!(
                "the response has at least {len} bytes; this client accepts at most {len_max}"
            ))
        };
        // An announced length is checked but never allocated.
        let announced = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > len_max {
            return Err(too_large(announced));
        }
        let Some(first) = self.data().await? else { return Ok(Bytes::new()) };
        let mut all = Vec::new();
        let Some(mut next) = self.data().await? else {
            return if first.len() > len_max { Err(too_large(first.len())) } else { Ok(first) };
        };
        all.extend_from_slice(&first);
        loop {
            if all.len() + next.len() > len_max {
                return Err(too_large(all.len() + next.len()));
            }
            all.extend_from_slice(&next);
            match self.data().await? {
                Some(data) => next = data,
                None => return Ok(all.into()),
            }
        }
    }

    /// Returns `true` if the head already shows that the response has no body.
    pub(super) fn is_over(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Takes the trailers received after the body.
    pub(super) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }
}
