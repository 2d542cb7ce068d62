//! A call: the arrived part of its response, between the task of the connection and the caller.

use std::{
    cell::Cell,
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use frpc_http2::{Connection, ErrorCode, FrameCounters, Head, OpenError, StreamId};
use http::{Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use tokio::{sync::Notify, time::Instant};

use super::request::{CallHead, Http2Content, Http2Request, RequestHeads, ShortMessage};
use crate::{
    client::outgoing::OutgoingBody,
    http2::{ReceivedData, WakeList, header_map},
};

/// The calls of an application, as the task of the connection receives them.
pub(super) enum Command {
    Open(Arc<Http2Call>),
    /// Ends a call whose caller is gone.
    Cancel(Arc<Http2Call>),
    /// Ends the connection after its calls.
    Close,
}

/// The state shared by the task and the callers of a connection.
pub(super) struct SharedConnection {
    pub(super) wakes: Arc<WakeList<Command>>,
    pub(super) streams_max: AtomicUsize,
    pub(super) frames: Arc<FrameCounters>,
    pub(super) is_closed: AtomicBool,
    /// Notified when `is_closed` is set.
    pub(super) closed: Notify,
}

impl SharedConnection {
    /// Refuses further calls.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.closed.notify_waiters();
        self.wakes.close();
    }
}

/// The reason why a call has no complete response.
#[derive(Clone, Debug)]
pub(in crate::client) enum Http2Failure {
    /// The connection took no further calls, so the request was not sent.
    Closed,
    /// The head of the request exceeds the limit of the server, so the request was not sent.
    HeadTooLarge,
    /// The stream was reset.
    Reset {
        code: ErrorCode,
        /// `true` if the server sent the reset. Otherwise the response broke a rule or a limit.
        is_remote: bool,
    },
    /// The server shuts down and does not handle the request.
    GoingAway { code: ErrorCode },
    /// The stream of the request failed, or its call is over.
    Abandoned,
    /// The server did not answer a PING in time.
    Silent,
    /// The connection was lost.
    Lost(Arc<str>),
}

impl Http2Failure {
    /// Returns `true` if no part of the request was passed to the connection.
    pub(in crate::client) fn is_unsent(&self) -> bool {
        matches!(self, Self::Closed | Self::HeadTooLarge)
    }

    fn unreadable() -> Self {
        Self::Reset { code: ErrorCode::PROTOCOL_ERROR, is_remote: false }
    }
}

/// The state of a call, shared by its connection and its caller.
pub(super) struct Http2Call {
    /// The time at which the connection wakes the caller. `None` if the caller has a timer of its own.
    pub(super) deadline: Option<Instant>,
    /// `true` if the request is a short message, and its caller awaits the response as a whole.
    pub(super) is_short: bool,
    /// `true` once no caller reads the response.
    is_dropped: AtomicBool,
    /// The number of the stream, or zero until the request is sent.
    stream: AtomicU32,
    head: CallHead,
    /// A request with a short message. It stays for a retry.
    message: Option<ShortMessage>,
    state: Mutex<CallState>,
}

struct CallState {
    /// The parts of a call in general. Boxed, because most short calls need none of them.
    parts: Option<Box<CallParts>>,
    end: ResponseEnd,
    /// `true` once the stream has ended in both directions.
    is_settled: bool,
    /// `true` once the deadline has passed.
    is_late: bool,
    /// The caller while it waits.
    reader: Option<Waker>,
}

/// The body of a request until it is sent, and the arrived parts of its response.
#[derive(Default)]
struct CallParts {
    body: Option<Box<OutgoingBody>>,
    head: Option<Arc<Head>>,
    /// `true` if the head is the whole response.
    is_head_only: bool,
    /// Unread data.
    data: ReceivedData,
    /// The released part of unread data, in bytes.
    released: usize,
    trailers: Option<Arc<Head>>,
}

enum ResponseEnd {
    /// More may arrive.
    Open,
    Complete,
    /// Complete at this time with this data, after a plain head and before plain trailers. The data is released already.
    Plain(Bytes, Instant),
    /// `None` once the failure is reported.
    Failed(Option<Http2Failure>),
}

impl CallParts {
    /// Returns the unreleased part of `len` consumed bytes.
    fn unreleased(&mut self, len: usize) -> usize {
        let released = self.released.min(len);
        self.released -= released;
        len - released
    }

    fn add_start(&mut self, start: ResponseStart) {
        if let Some(head) = start.head {
            self.head = Some(head);
        }
        if !start.data.is_empty() {
            self.released = start.data.len();
            self.data.push_piece(start.data.into());
        }
    }
}

impl CallState {
    fn parts(&mut self) -> &mut CallParts {
        self.parts.get_or_insert_default()
    }

    /// Returns `true` if the caller has read all data.
    fn is_read(&self) -> bool {
        self.parts.as_ref().is_none_or(|parts| parts.data.is_empty())
    }

    fn wait(&mut self, cx: &Context<'_>) {
        if !self.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
            self.reader = Some(cx.waker().clone());
        }
    }
}

/// The maximum length of unread data of a call that is released when it arrives.
pub(super) const RELEASED_EARLY_MAX: usize = 4 << 10;

/// A request whose head is sent.
pub(super) struct OpenedRequest {
    pub(super) stream: StreamId,
    /// The body, unless it was sent with the head.
    pub(super) body: Option<Box<OutgoingBody>>,
}

/// The head and the first data of a response.
#[derive(Default)]
pub(super) struct ResponseStart {
    pub(super) head: Option<Arc<Head>>,
    pub(super) data: Bytes,
}

/// The part of the connection. Each method that changes the state returns the waker of the caller, if it waits.
impl Http2Call {
    /// Creates a call with any request.
    pub(super) fn new(Http2Request { head, content }: Http2Request) -> Arc<Self> {
        let (message, body) = match content {
            Http2Content::Short(message) => (Some(message), None),
            Http2Content::Body(body) => (None, Some(body)),
        };
        let parts = body.map(|body| Box::new(CallParts { body: Some(body), ..CallParts::default() }));
        Arc::new(Self::with_parts(head, message, parts, None, false))
    }

    #[inline(always)] // The call is made in its allocation.
    fn with_parts(
        head: CallHead,
        message: Option<ShortMessage>,
        parts: Option<Box<CallParts>>,
        deadline: Option<Instant>,
        is_short: bool,
    ) -> Self {
        let state = CallState { parts, end: ResponseEnd::Open, is_settled: false, is_late: false, reader: None };
        Self {
            deadline,
            is_short,
            is_dropped: AtomicBool::new(false),
            stream: AtomicU32::new(0),
            head,
            message,
            state: Mutex::new(state),
        }
    }

    #[inline]
    fn state(&self) -> MutexGuard<'_, CallState> {
        // No code under the lock can leave the state half changed, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the request, or its head and no part of its body. Returns `None` if the caller is gone.
    #[inline]
    pub(super) fn open(
        &self,
        core: &mut Connection,
        heads: &mut RequestHeads,
    ) -> Result<Option<OpenedRequest>, OpenError> {
        let (stream, body) = match &self.message {
            // Without the lock. A caller that leaves at the same time has its command for the connection.
            Some(_) if self.is_dropped() => return Ok(None),
            Some(message) => heads.open_short(core, &self.head, message)?,
            None => {
                let mut state = self.state();
                let Some(CallParts { body: place, .. }) = state.parts.as_deref_mut() else { return Ok(None) };
                let Some(body) = &*place else { return Ok(None) };
                let stream = heads.open(core, &self.head, body)?;
                // Without a body, the request is complete with its head.
                (stream, place.take().filter(|body| !body.is_end_stream()))
            }
        };
        self.stream.store(stream.get(), Ordering::Relaxed);
        Ok(Some(OpenedRequest { stream, body }))
    }

    /// Returns a copy of a request with a short message.
    fn short_request(&self) -> Option<Http2Request> {
        let content = Http2Content::Short(self.message.clone()?);
        Some(Http2Request { head: self.head.clone(), content })
    }

    fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Relaxed)
    }

    /// Tells the caller that its deadline has passed.
    pub(super) fn expire(&self) -> Option<Waker> {
        let mut state = self.state();
        state.is_late = true;
        state.reader.take()
    }

    /// Returns the stream once the request is sent.
    pub(super) fn stream(&self) -> Option<StreamId> {
        // Relaxed: callers have received from the stream before they ask.
        StreamId::new(self.stream.load(Ordering::Relaxed))
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self.state().end, ResponseEnd::Complete)
    }

    pub(super) fn push_head(&self, head: Arc<Head>, is_end: bool, is_settled: bool) -> Option<Waker> {
        let mut state = self.state();
        let parts = state.parts();
        (parts.head, parts.is_head_only) = (Some(head), is_end);
        if is_end {
            (state.end, state.is_settled) = (ResponseEnd::Complete, is_settled);
        }
        state.reader.take()
    }

    /// Adds data. Returns the length to be released now, which is all of it if no caller reads it.
    pub(super) fn push_data(&self, data: &[u8], is_end: bool, is_settled: bool) -> (usize, Option<Waker>) {
        let mut state = self.state();
        if is_end {
            (state.end, state.is_settled) = (ResponseEnd::Complete, is_settled);
        }
        if self.is_dropped() {
            return (data.len(), None);
        }
        if data.is_empty() {
            return (0, state.reader.take());
        }
        // The credit of a short response is not worth a message from the caller to the connection.
        let parts = state.parts();
        let is_early = data.len() <= RELEASED_EARLY_MAX && self.message.is_some() && parts.data.is_empty();
        // The caller waits for a collected message, so its data counts as read.
        let collected = parts.data.push(data);
        let released = if is_early { data.len() } else { collected };
        parts.released += released;
        let is_waiting = parts.data.missing() > 0 && !is_end;
        (released, if is_waiting { None } else { state.reader.take() })
    }

    /// Adds the start of a response. Its data is released already.
    pub(super) fn push_start(&self, start: ResponseStart) -> Option<Waker> {
        let mut state = self.state();
        state.parts().add_start(start);
        state.reader.take()
    }

    /// Completes the call with the released data of a plain response. The stream is closed.
    #[inline]
    pub(super) fn push_plain(&self, data: Bytes, at: Instant) -> Option<Waker> {
        let mut state = self.state();
        (state.end, state.is_settled) = (ResponseEnd::Plain(data, at), true);
        state.reader.take()
    }

    pub(super) fn push_trailers(&self, start: ResponseStart, trailers: Arc<Head>, is_settled: bool) -> Option<Waker> {
        let mut state = self.state();
        let parts = state.parts();
        parts.add_start(start);
        parts.trailers = Some(trailers);
        (state.end, state.is_settled) = (ResponseEnd::Complete, is_settled);
        state.reader.take()
    }

    /// Ends the response with a failure, after the data that has arrived. A complete response stays complete.
    pub(super) fn fail(&self, failure: Http2Failure) -> Option<Waker> {
        let mut state = self.state();
        state.is_settled = true;
        if matches!(state.end, ResponseEnd::Open) {
            state.end = ResponseEnd::Failed(Some(failure));
        }
        state.reader.take()
    }
}

/// The caller of a call. Dropped before the end, it resets the stream.
struct CallHandle {
    call: Arc<Http2Call>,
    shared: Arc<SharedConnection>,
    /// `true` if the caller has the whole response, and the stream is closed.
    is_over: bool,
}

impl CallHandle {
    fn new(call: Arc<Http2Call>, shared: Arc<SharedConnection>) -> Self {
        Self { call, shared, is_over: false }
    }

    fn release(&self, mut state: MutexGuard<'_, CallState>, len: usize) {
        let len = state.parts().unreleased(len);
        drop(state);
        self.release_unlocked(len);
    }

    /// Tells the connection that the caller has read data.
    fn release_unlocked(&self, len: usize) {
        if let Some(stream) = self.call.stream().filter(|_| len > 0) {
            self.shared.wakes.release(stream, len);
        }
    }

    /// Ends a call whose whole response is read. Its memory goes to the next call.
    #[inline]
    fn finish(&mut self) {
        self.is_over = true;
        // Metadata and shared bytes belong to the application, which expects to have them back.
        if self.call.head.added.is_none() && self.call.message.as_ref().is_some_and(ShortMessage::is_inline) {
            // Fails while the thread is exiting. The memory is then freed.
            let _ = SPARE.try_with(|spare| spare.set(Some(self.call.clone())));
        }
    }

    /// Ends a call whose response may be incomplete.
    fn leave(&self) {
        let mut state = self.call.state();
        if state.is_settled && state.is_read() {
            return;
        }
        self.call.is_dropped.store(true, Ordering::Relaxed);
        state.reader = None;
        let (len, _body) = match &mut state.parts {
            // The body may run code of the application, so it is dropped after the lock.
            Some(parts) => (mem::take(&mut parts.data).len(), parts.body.take()),
            None => (0, None),
        };
        if !state.is_settled {
            drop(state);
            self.shared.wakes.push(Command::Cancel(self.call.clone()));
        } else {
            self.release(state, len);
        }
    }
}

thread_local! {
    /// The latest finished call of this thread. Its memory goes to the next one.
    static SPARE: Cell<Option<Arc<Http2Call>>> = const { Cell::new(None) };
}

impl Drop for CallHandle {
    #[inline]
    fn drop(&mut self) {
        if !self.is_over {
            self.leave();
        }
    }
}

/// A call with a short message, before it is sent. Its response ends at the deadline.
pub(in crate::client) struct ShortCall(Arc<Http2Call>);

impl ShortCall {
    #[inline]
    pub(in crate::client) fn new(head: CallHead, message: ShortMessage, deadline: Option<Instant>) -> Self {
        let new = Http2Call::with_parts(head, Some(message), None, deadline, true);
        if let Some(mut spare) = SPARE.take()
            && let Some(place) = Arc::get_mut(&mut spare)
        {
            *place = new;
            return Self(spare);
        }
        Self(Arc::new(new))
    }

    pub(in crate::client) fn head(&self) -> &CallHead {
        &self.0.head
    }

    /// Returns the request, to be sent in another way.
    pub(in crate::client) fn request(&self) -> Option<Http2Request> {
        self.0.short_request()
    }

    /// Sets the caller to be woken.
    #[inline]
    pub(super) fn with_reader(mut self, reader: &Waker) -> Arc<Http2Call> {
        // Not shared yet, so this takes no lock.
        if let Some(call) = Arc::get_mut(&mut self.0) {
            call.state.get_mut().unwrap_or_else(PoisonError::into_inner).reader = Some(reader.clone());
        }
        self.0
    }
}

/// The response to a short message, awaited as a whole.
pub(in crate::client) struct ShortResponse(Option<CallHandle>);

/// The outcome of a call with a short message.
pub(in crate::client) enum ShortOutcome {
    /// The data of a [plain](super::PlainResponse) response, and the time of its arrival.
    Plain(Bytes, Instant),
    /// The deadline has passed.
    Late,
    /// Any other response or failure, to be read in parts, with the request for a retry.
    Other(Http2Response, Option<Http2Request>),
}

impl ShortResponse {
    pub(super) fn new(call: Arc<Http2Call>, shared: Arc<SharedConnection>) -> Self {
        Self(Some(CallHandle::new(call, shared)))
    }

    /// Waits for the outcome.
    #[inline]
    pub(in crate::client) fn poll(&mut self, cx: &Context<'_>) -> Poll<ShortOutcome> {
        let Some(handle) = &mut self.0 else { unreachable!("a call is not polled after its end") };
        let mut state = handle.call.state();
        if let ResponseEnd::Plain(data, at) = &mut state.end {
            let (data, at) = (mem::take(data), *at);
            drop(state);
            handle.finish();
            return Poll::Ready(ShortOutcome::Plain(data, at));
        }
        // The server may wait for the credit of unread data.
        let is_read = state.parts.as_ref().is_none_or(|parts| parts.data.len() == parts.released);
        if matches!(state.end, ResponseEnd::Open) && is_read {
            if state.is_late {
                return Poll::Ready(ShortOutcome::Late);
            }
            state.wait(cx);
            return Poll::Pending;
        }
        drop(state);
        Poll::Ready(self.other())
    }

    #[cold]
    fn other(&mut self) -> ShortOutcome {
        let handle = self.0.take();
        let request = handle.as_ref().and_then(|handle| handle.call.short_request());
        ShortOutcome::Other(Http2Response(handle), request)
    }
}

/// The future of a response.
pub(in crate::client) struct Http2Response(Option<CallHandle>);

impl Http2Response {
    pub(super) fn new(call: Arc<Http2Call>, shared: Arc<SharedConnection>) -> Self {
        Self(Some(CallHandle::new(call, shared)))
    }
}

impl Future for Http2Response {
    type Output = Result<Response<Http2Body>, Http2Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let handle = self.0.take().expect("a future is not polled after its end");
        let mut state = handle.call.state();
        if let Some(parts) = state.parts.as_deref_mut()
            && let Some(head) = parts.head.take()
        {
            let is_head_only = parts.is_head_only;
            drop(state);
            return Poll::Ready(response(&head, is_head_only, handle).ok_or_else(Http2Failure::unreadable));
        }
        if let ResponseEnd::Failed(failure) = &mut state.end {
            return Poll::Ready(Err(failure.take().unwrap_or(Http2Failure::Abandoned)));
        }
        state.wait(cx);
        drop(state);
        self.0 = Some(handle);
        Poll::Pending
    }
}

/// Converts the head of a response. Returns `None` if a part of it is invalid.
fn response(head: &Head, is_head_only: bool, handle: CallHandle) -> Option<Response<Http2Body>> {
    let mut response = Response::new(Http2Body { handle, is_head_only, len_left: head.content_length() });
    *response.status_mut() = StatusCode::from_u16(head.status()?).ok()?;
    *response.version_mut() = Version::HTTP_2;
    *response.headers_mut() = header_map(head)?;
    Some(response)
}

/// The body of a response.
pub(in crate::client) struct Http2Body {
    handle: CallHandle,
    is_head_only: bool,
    len_left: Option<u64>,
}

impl Http2Body {
    /// Makes the next data a message of known length. `start` returns its start, read before, and the length. The server
    /// gets credit for the message as it arrives, so the message may be longer than the window.
    pub(in crate::client) fn collect(&mut self, start: impl FnOnce() -> Option<(BytesMut, usize)>) {
        let mut state = self.handle.call.state();
        if !matches!(state.end, ResponseEnd::Open) {
            return;
        }
        let Some((start, len)) = start() else { return };
        let read = start.len();
        if let Some(left) = &mut self.len_left {
            *left += read as u64;
        }
        let parts = state.parts();
        let collected = parts.data.collect(start, len);
        let unreleased = parts.unreleased(collected);
        parts.released += read + collected;
        drop(state);
        self.handle.release_unlocked(unreleased);
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = Http2Failure;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Http2Failure>>> {
        let me = &mut *self;
        let mut state = me.handle.call.state();
        let is_open = matches!(state.end, ResponseEnd::Open);
        let data = state.parts.as_deref_mut().map(|parts| &mut parts.data);
        let data = data.and_then(|data| if is_open { data.pop() } else { data.pop_partial() });
        if let Some(data) = data {
            me.handle.release(state, data.len());
            if let Some(left) = &mut me.len_left {
                *left = left.saturating_sub(data.len() as u64);
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match &mut state.end {
            ResponseEnd::Open => {
                state.wait(cx);
                Poll::Pending
            }
            ResponseEnd::Complete | ResponseEnd::Plain(..) => {
                let trailers = state.parts.as_deref_mut().and_then(|parts| parts.trailers.take());
                drop(state);
                Poll::Ready(trailers.map(|trailers| match header_map(&trailers) {
                    Some(trailers) => Ok(Frame::trailers(trailers)),
                    None => Err(Http2Failure::unreadable()),
                }))
            }
            ResponseEnd::Failed(failure) => Poll::Ready(failure.take().map(Err)),
        }
    }

    /// Returns `true` if the head is the whole response.
    fn is_end_stream(&self) -> bool {
        self.is_head_only
    }

    fn size_hint(&self) -> SizeHint {
        self.len_left.filter(|_| !self.is_head_only).map(SizeHint::with_exact).unwrap_or_default()
    }
}
