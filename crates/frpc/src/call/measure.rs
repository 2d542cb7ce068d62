//! Counting of single calls, from their start to their end.

use std::{
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use frisbee::clock::{Instant, nanos_between};
use frpc_metrics::{LocalCells, ThreadedCells};
use pin_project_lite::pin_project;

use super::{
    exchange::{Answer, Body, Call},
    meter::{CallMeter, nanos_since},
    method::Method,
    packed::{BatchSource, MessagePrefix, PollNext, ReceivedMessages},
    recorder::{self, CallFailure, CallNotes, StreamRecord},
    status::{Code, Status},
    streaming::Streaming,
    waits,
};

/// The count of a call received by a server. It begins with the first poll of the handler.
///
/// Dropped before its end, a begun call counts as cancelled, or as late after its deadline.
// Small: it is moved with the future of its call.
pub(crate) struct CallMeasure {
    /// The number of the method.
    method: u16,
    /// `true` if the first poll happens in a turn of an event loop, and [`CallMeter::end_turn`] follows.
    is_in_turn: bool,
    /// [`COUNTED_LEN`] for a stream of requests, and once the call has begun.
    request_len: u32,
    /// Boxed, because most handlers are ready at their first poll, and calls are rarely recorded.
    state: Option<Box<MeasureState>>,
}

/// The state of a call with more than a count.
enum MeasureState {
    /// The call has not begun, and is recorded or was queued.
    Unbegun(CallStart),
    /// The handler was not ready at its first poll.
    Waiting(CancelledCall),
}

/// The known facts of a call before its start.
#[derive(Default)]
struct CallStart {
    /// The arrival of a queued call.
    arrived: Option<Instant>,
    notes: Option<CallNotes>,
}

/// The arrival of a call at a server.
#[derive(Clone, Copy)]
pub(crate) enum CallArrival {
    /// In a turn of an event loop that began at this time. The first poll follows in it, and then
    /// [`CallMeter::end_turn`].
    InTurn(Instant),
    /// At this time. The call waited in a queue, or for a thread.
    Queued(Instant),
    /// Shortly before the first poll.
    Now,
}

impl CallArrival {
    pub(crate) fn turn(self) -> Option<Instant> {
        match self {
            Self::InTurn(turn) => Some(turn),
            Self::Queued(_) | Self::Now => None,
        }
    }
}

/// The counters and the times of a call, as its first poll needs them.
pub(crate) trait CallClock {
    /// Returns the counters. `None` if nothing is counted.
    fn meter(&self) -> Option<&Arc<CallMeter>>;

    /// Returns the start of the turn.
    fn turn(&self) -> Instant;

    /// Returns the deadline of the call.
    fn deadline(&self) -> Option<Instant>;

    /// Returns the notes of a call with this number of its method, unless the measure [has them](CallMeasure::noted).
    fn notes(&self, _method: usize) -> Option<CallNotes> {
        None
    }
}

impl CallMeasure {
    /// Creates the count of a call. `None` stands for a stream of requests.
    #[inline]
    pub(crate) fn new(method: u16, request_len: Option<usize>, is_in_turn: bool) -> Self {
        // Longer messages do not exist.
        let request_len = request_len.and_then(|len| u32::try_from(len).ok()).unwrap_or(COUNTED_LEN);
        Self { method, is_in_turn, request_len, state: None }
    }

    /// Creates the count of a call with this arrival.
    #[inline]
    pub(crate) fn arrived(method: u16, request_len: Option<usize>, arrival: CallArrival) -> Self {
        let mut measure = Self::new(method, request_len, matches!(arrival, CallArrival::InTurn(_)));
        if let CallArrival::Queued(arrived) = arrival {
            measure.set_queued(arrived);
        }
        measure
    }

    /// Notes the arrival of a call that was queued.
    #[cold]
    pub(crate) fn set_queued(&mut self, arrived: Instant) {
        self.set_state(MeasureState::Unbegun(CallStart { arrived: Some(arrived), notes: None }));
    }

    /// Adds the notes of a call that is recorded.
    #[inline]
    pub(crate) fn noted(mut self, notes: Option<CallNotes>) -> Self {
        if notes.is_some() {
            let arrived = self.take_start().arrived;
            self.set_state(MeasureState::Unbegun(CallStart { arrived, notes }));
        }
        self
    }

    fn take_start(&mut self) -> CallStart {
        match self.state.as_deref_mut() {
            Some(MeasureState::Unbegun(start)) => mem::take(start),
            _ => CallStart::default(),
        }
    }

    /// Sets the state, in the same memory if there was one.
    fn set_state(&mut self, state: MeasureState) {
        match &mut self.state {
            Some(before) => **before = state,
            None => self.state = Some(Box::new(state)),
        }
    }

    #[inline]
    pub(crate) fn is_in_turn(&self) -> bool {
        self.is_in_turn
    }

    #[inline]
    fn is_waiting(&self) -> bool {
        matches!(self.state.as_deref(), Some(MeasureState::Waiting(_)))
    }

    /// Called before each poll of the handler. Counts the start of a call outside of the turns of event loops.
    #[inline]
    pub(crate) fn before_poll(&mut self, clock: &impl CallClock) {
        if !self.is_in_turn
            && !self.is_waiting()
            && let Some(meter) = clock.meter()
        {
            self.begin(meter, now(), clock);
        }
    }

    /// Called after each poll of the handler. Counts the end of the call.
    // By reference: the answer is not moved.
    #[inline(always)] // It is the end of each call, and mostly one addition.
    pub(crate) fn after_poll(&mut self, clock: &impl CallClock, polled: &mut Poll<Result<Answer, Status>>) {
        let Some(meter) = clock.meter() else { return };
        if let Poll::Ready(Ok(answer)) = polled
            && let Some(len) = answer.body().content_len()
            && self.request_len != COUNTED_LEN
        {
            return meter
                .count_in_turn(self.method.into(), self.request_len as usize, len, || nanos_since(clock.turn()));
        }
        self.after_wait(meter, clock, polled);
    }

    /// Counts handlers with more than one poll, failures, and streams.
    #[cold]
    fn after_wait(
        &mut self,
        meter: &Arc<CallMeter>,
        clock: &impl CallClock,
        polled: &mut Poll<Result<Answer, Status>>,
    ) {
        if !self.is_waiting() {
            self.begin(meter, clock.turn(), clock);
        }
        // The wait for a permit of a layer has ended in this poll, if there was one.
        if let Some(waited) = meter.method(self.method.into()).and_then(waits::take_ended) {
            meter.here(self.method.into()).add_queued(waited);
        }
        let Some(MeasureState::Waiting(CancelledCall(waiting))) = self.state.as_deref_mut() else { return };
        let Poll::Ready(outcome) = polled else {
            if let Some(notes) = waiting.as_mut().and_then(|end| end.notes.as_mut()) {
                notes.wait();
            }
            return;
        };
        let Some(end) = waiting.take() else { return };
        match outcome {
            Ok(answer) => end.answered(answer),
            Err(status) => end.end(Err(CallFailure::Status(status)), now()),
        }
    }

    /// Counts the start of the call, now or at its arrival.
    #[cold]
    fn begin(&mut self, meter: &Arc<CallMeter>, now: Instant, clock: &impl CallClock) {
        let method = self.method.into();
        let cells = meter.here(method);
        cells.start();
        let CallStart { arrived, notes } = self.take_start();
        if let Some(arrived) = arrived {
            cells.add_queued(now.saturating_duration_since(arrived));
        }
        let start = arrived.unwrap_or(now);
        let request_len = mem::replace(&mut self.request_len, COUNTED_LEN);
        if request_len != COUNTED_LEN {
            cells.add_request(1, request_len as usize);
        }
        let notes = notes.or_else(|| clock.notes(method));
        let (meter, deadline) = (meter.clone(), clock.deadline());
        let end = CallEnd { meter, method, start, deadline, notes: notes.map(Box::new) };
        self.set_state(MeasureState::Waiting(CancelledCall(Some(end))));
    }
}

/// The request length of calls without a single request left to count.
const COUNTED_LEN: u32 = u32::MAX;

/// The clock of a call that knows its times itself.
pub(crate) struct OwnClock<'a> {
    meter: Option<&'a Arc<CallMeter>>,
    /// `None` outside of the turns of event loops.
    turn: Option<Instant>,
    deadline: Option<Instant>,
}

impl<'a> OwnClock<'a> {
    pub(crate) fn new(meter: Option<&'a Arc<CallMeter>>, arrival: CallArrival, deadline: Option<Instant>) -> Self {
        Self { meter, turn: arrival.turn(), deadline }
    }
}

impl CallClock for OwnClock<'_> {
    fn meter(&self) -> Option<&Arc<CallMeter>> {
        self.meter
    }

    fn turn(&self) -> Instant {
        self.turn.unwrap_or_else(now)
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

pin_project! {
    /// A call being counted.
    pub(crate) struct MeasuredCall<'a, F> {
        #[pin]
        handling: F,
        measure: CallMeasure,
        clock: OwnClock<'a>,
    }
}

impl<'a, F> MeasuredCall<'a, F> {
    pub(crate) fn new(measure: CallMeasure, clock: OwnClock<'a>, handling: F) -> Self {
        Self { handling, measure, clock }
    }
}

impl<F: Future<Output = Result<Answer, Status>>> Future for MeasuredCall<'_, F> {
    type Output = Result<Answer, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.measure.before_poll(this.clock);
        let mut polled = this.handling.poll(cx);
        this.measure.after_poll(this.clock, &mut polled);
        polled
    }
}

/// The count of a call made by a channel. Dropped before its end, the call counts as cancelled.
pub(crate) struct ChannelMeasure<'a> {
    /// `None` if nothing is counted, or no longer.
    counts: Option<ChannelCounts<'a>>,
    called: &'static Method,
    start: Instant,
    /// The length of a single request, counted with the end of the call. Zero before it is sent, [`COUNTED`] without one.
    request_len: AtomicUsize,
}

/// The counters of a call made by a channel.
#[derive(Clone, Copy)]
struct ChannelCounts<'a> {
    meter: &'a Arc<CallMeter>,
    /// The counters of the thread on which the call began. Most calls end there.
    cells: ThreadedCells<'a>,
}

impl<'a> ChannelCounts<'a> {
    /// Returns the counters of this thread.
    fn here(self, called: &'static Method) -> LocalCells<'a> {
        self.cells.if_here().unwrap_or_else(|| self.meter.here_of(called))
    }
}

impl<'a> ChannelMeasure<'a> {
    /// Counts the start of a call.
    #[inline]
    pub(crate) fn begin(meter: Option<&'a Arc<CallMeter>>, called: &'static Method, start: Instant) -> Self {
        let counts = meter.map(|meter| {
            let here = meter.here_of(called);
            here.start();
            ChannelCounts { meter, cells: here.with_thread() }
        });
        Self { counts, called, start, request_len: AtomicUsize::new(COUNTED) }
    }

    /// Counts a single request.
    fn add_request(&self, body: &Body) {
        if let Some(len) = body.content_len() {
            self.add_request_len(len);
        }
    }

    /// Notes a single request, counted with the end of the call.
    #[inline]
    pub(crate) fn note_request(&mut self, body: &Body) {
        if let Some(len) = body.content_len() {
            *self.request_len.get_mut() = len;
        }
    }

    /// Counts a single request of this length.
    fn add_request_len(&self, len: usize) {
        if let Some(counts) = self.counts {
            counts.here(self.called).add_request(1, len);
        }
    }

    /// Counts the requests of a call of any kind.
    pub(crate) fn with_requests(&self, call: Call) -> Call {
        self.add_request(call.body());
        match self.counts {
            Some(ChannelCounts { meter, .. }) => {
                let method = meter.number(self.called);
                let notes = || CallNotes::plain(self.called, meter.target(), None);
                call.map_body(|body| measured_requests(meter, method, notes, body))
            }
            None => call,
        }
    }

    /// Counts the waits of the call in queues that end while this future is polled.
    pub(crate) fn with_waits<F>(&self, calling: F) -> CountedWaits<'_, F> {
        CountedWaits { calling, counts: self.counts, called: self.called }
    }

    /// Returns the start of a call that is counted.
    #[inline]
    pub(crate) fn start(&self) -> Option<Instant> {
        self.counts.map(|_| self.start)
    }

    /// Begins a single request, counted with the end of the call. Returns where to note its length once it is encoded.
    #[inline]
    pub(crate) fn begin_request(&self) -> &AtomicUsize {
        self.request_len.store(0, Ordering::Relaxed);
        &self.request_len
    }

    /// Counts a request without an answer, if one was [begun](Self::begin_request) or [noted](Self::note_request).
    #[cold]
    pub(crate) fn add_begun_request(&mut self) {
        let len = mem::replace(self.request_len.get_mut(), COUNTED);
        if len != COUNTED {
            self.add_request_len(len);
        }
    }

    /// Counts a call with one begun or noted request and one answer, and its end after this time in nanoseconds.
    #[inline]
    pub(crate) fn end_unary(&mut self, response_len: usize, nanos: u64) {
        let Some(counts) = &self.counts else { return };
        match counts.cells.if_here() {
            Some(cells) if !recorder::is_on() => {
                cells.end_unary(*self.request_len.get_mut(), response_len, nanos);
                self.counts = None;
            }
            _ => self.end_and_record(response_len, nanos),
        }
    }

    /// Counts the only answer, and the end of the call.
    #[inline]
    fn end_with_one(&mut self, len: usize, arrival: Option<Instant>) {
        if self.counts.is_some() && *self.request_len.get_mut() != COUNTED {
            let nanos = match arrival {
                Some(at) => nanos_between(self.start, at),
                None => nanos_since(self.start),
            };
            return self.end_unary(len, nanos);
        }
        if let Some(counts) = self.counts.take() {
            let (cells, at) = (counts.here(self.called), arrival.unwrap_or_else(now));
            cells.add_response(1, len);
            cells.end(0, at.saturating_duration_since(self.start));
            self.record(counts.meter, at);
        }
    }

    #[cold]
    fn end_and_record(&mut self, response_len: usize, nanos: u64) {
        if let Some(counts) = self.counts.take() {
            counts.here(self.called).end_unary(*self.request_len.get_mut(), response_len, nanos);
            self.record(counts.meter, self.start + Duration::from_nanos(nanos));
        }
    }

    /// Records the end of a successful call, if this is on.
    fn record(&self, meter: &CallMeter, at: Instant) {
        if let Some(notes) = CallNotes::plain(self.called, meter.target(), None) {
            notes.record(self.start, at, Ok(()));
        }
    }

    /// Counts an answer, with its arrival if that is known. A stream is counted until its end.
    #[inline]
    pub(crate) fn answered(&mut self, answer: &mut Answer, arrival: Option<Instant>) {
        match answer.body().content_len() {
            Some(len) => self.end_with_one(len, arrival),
            None => self.take_end().into_iter().for_each(|end| end.answered(answer)),
        }
    }

    /// Counts the end of the call with this status. Returns the status.
    pub(crate) fn failed(&mut self, status: Status) -> Status {
        self.fail(CallFailure::Status(&status));
        status
    }

    #[cold]
    fn fail(&mut self, failure: CallFailure<'_>) {
        if let Some(end) = self.take_end() {
            end.end(Err(failure), now());
        }
    }

    /// Returns the rest of the count.
    fn take_end(&mut self) -> Option<CallEnd> {
        self.add_begun_request();
        let meter = self.counts.take()?.meter;
        let notes = CallNotes::plain(self.called, meter.target(), None).map(Box::new);
        let method = meter.number(self.called);
        Some(CallEnd { meter: meter.clone(), method, start: self.start, deadline: None, notes })
    }
}

pin_project! {
    /// A call of a channel whose waits are counted.
    pub(crate) struct CountedWaits<'a, F> {
        #[pin]
        calling: F,
        counts: Option<ChannelCounts<'a>>,
        called: &'static Method,
    }
}

impl<F: Future> Future for CountedWaits<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = this.calling.poll(cx);
        if let (Some(waited), Some(counts)) = (waits::take_ended(this.called), this.counts) {
            counts.here(this.called).add_queued(waited);
        }
        polled
    }
}

/// The length of a request counted at its start.
const COUNTED: usize = usize::MAX;

impl Drop for ChannelMeasure<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.counts.is_some() {
            self.fail(CallFailure::Code(Code::Cancelled));
        }
    }
}

/// The end of a call, not counted yet.
struct CallEnd {
    meter: Arc<CallMeter>,
    method: usize,
    start: Instant,
    deadline: Option<Instant>,
    /// `None` if the call is not recorded.
    notes: Option<Box<CallNotes>>,
}

impl CallEnd {
    fn end(self, outcome: Result<(), CallFailure<'_>>, at: Instant) {
        let Self { meter, method, start, notes, .. } = self;
        let code = outcome.map_or_else(CallFailure::code, |()| Code::Ok);
        meter.here(method).end(code.into(), at.saturating_duration_since(start));
        if let Some(notes) = notes {
            notes.record(start, at, outcome);
        }
    }

    /// Counts an answer. A stream is counted until its end.
    // By reference: most answers are not moved.
    fn answered(self, answer: &mut Answer) {
        if let Some(len) = answer.body().content_len() {
            self.meter.here(self.method).add_response(1, len);
            return self.end(Ok(()), now());
        }
        let (method, side, is_outgoing) = (self.method, MessageSide::Response, self.meter.target().is_none());
        let count = StreamCount::new(self.meter.clone(), method, side, is_outgoing, self.notes.as_deref().cloned());
        let streamed = mem::replace(answer, Answer::new(Body::from(Bytes::new())));
        *answer = streamed.map_body(|body| match body {
            Body::Many(messages) => Body::Many(measured(messages, count, Some(self))),
            body => body,
        });
    }
}

/// Counts a call dropped before its end.
struct CancelledCall(Option<CallEnd>);

impl Drop for CancelledCall {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            let now = now();
            let is_late = end.deadline.is_some_and(|deadline| deadline <= now);
            let code = if is_late { Code::DeadlineExceeded } else { Code::Cancelled };
            end.end(Err(CallFailure::Code(code)), now);
        }
    }
}

/// The counters for the messages of a stream.
struct StreamCount {
    meter: Arc<CallMeter>,
    method: usize,
    side: MessageSide,
    /// `true` for the messages sent by this process.
    is_outgoing: bool,
    record: Option<StreamRecord>,
}

#[derive(Clone, Copy)]
enum MessageSide {
    Request,
    Response,
}

impl StreamCount {
    fn new(
        meter: Arc<CallMeter>,
        method: usize,
        side: MessageSide,
        is_outgoing: bool,
        notes: Option<CallNotes>,
    ) -> Self {
        let record = notes.and_then(|notes| StreamRecord::start(notes, is_outgoing));
        Self { meter, method, side, is_outgoing, record }
    }

    fn add(&self, messages: u64, bytes: usize) {
        if messages == 0 {
            return;
        }
        let cells = self.meter.here(self.method);
        match self.side {
            MessageSide::Request => cells.add_request(messages, bytes),
            MessageSide::Response => cells.add_response(messages, bytes),
        }
        if let Some(record) = &self.record {
            record.add(messages, bytes);
        }
    }
}

/// Counts the messages of a stream of requests.
#[cold]
pub(crate) fn measured_requests(
    meter: &Arc<CallMeter>,
    method: usize,
    notes: impl FnOnce() -> Option<CallNotes>,
    body: Body,
) -> Body {
    match body {
        Body::Many(messages) => {
            let (side, is_outgoing) = (MessageSide::Request, meter.target().is_some());
            let count = StreamCount::new(meter.clone(), method, side, is_outgoing, notes());
            Body::Many(measured(messages, count, None))
        }
        body => body,
    }
}

fn measured(messages: Streaming<Bytes>, count: StreamCount, end: Option<CallEnd>) -> Streaming<Bytes> {
    messages.changed(|messages| MeasuredMessages { messages, count, handed: None, end: CancelledCall(end) })
}

/// A stream whose messages are counted, and the end of its call.
struct MeasuredMessages {
    messages: Streaming<Bytes>,
    count: StreamCount,
    /// The time at which the wire took the last messages to send. Until it asks for more, it has no room.
    handed: Option<Instant>,
    end: CancelledCall,
}

impl MeasuredMessages {
    /// Called before each poll. Counts the time since the wire had room for messages.
    fn note_room(&mut self) {
        if let Some(handed) = self.handed.take() {
            let blocked = now().saturating_duration_since(handed);
            self.count.meter.here(self.count.method).add_blocked(blocked);
            if let Some(record) = &self.count.record {
                record.set_handed(None);
            }
        }
    }

    fn note_end<T>(&mut self, next: PollNext<T>) -> PollNext<T> {
        let outcome = match &next {
            Poll::Ready(Some(Ok(_))) if self.count.is_outgoing => {
                self.handed = Some(now());
                if let Some(record) = &self.count.record {
                    record.set_handed(self.handed);
                }
                return next;
            }
            Poll::Ready(None) => Ok(()),
            Poll::Ready(Some(Err(status))) => Err(CallFailure::Status(status)),
            _ => return next,
        };
        if let Some(end) = self.end.0.take() {
            end.end(outcome, now());
        }
        next
    }
}

impl BatchSource<Bytes> for MeasuredMessages {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<Bytes> {
        self.note_room();
        let next = self.messages.poll(cx);
        if let Poll::Ready(Some(Ok(message))) = &next {
            self.count.add(1, message.len());
        }
        self.note_end(next)
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        full: usize,
        prefix: MessagePrefix,
    ) -> PollNext<Option<Bytes>> {
        self.note_room();
        let before = out.len();
        let next = self.messages.poll_into(cx, out, full, prefix);
        let (mut messages, mut bytes) = prefix.measure(&out[before..]);
        if let Poll::Ready(Some(Ok(Some(message)))) = &next {
            (messages, bytes) = (messages + 1, bytes + message.len());
        }
        self.count.add(messages, bytes);
        self.note_end(next)
    }

    fn poll_several(&mut self, cx: &mut Context<'_>) -> PollNext<ReceivedMessages<Bytes>> {
        self.note_room();
        let next = self.messages.poll_several(cx);
        if let Poll::Ready(Some(Ok(messages))) = &next {
            let (messages, bytes) = match messages {
                ReceivedMessages::One(message) => (1, message.len()),
                ReceivedMessages::Several(packed) => packed.measure(),
            };
            self.count.add(messages, bytes);
        }
        self.note_end(next)
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
