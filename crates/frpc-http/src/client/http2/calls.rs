//! The open calls of a connection.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Waker},
};

use bytes::Bytes;
use frpc_http2::{Connection, ErrorCode, Head, ReceivedMessage, StreamId};
use tokio::time::Instant;

use super::{
    call::{Command, Http2Call, Http2Failure, RELEASED_EARLY_MAX, ResponseStart},
    plain::PlainResponse,
};
use crate::{
    client::outgoing::OutgoingBody,
    http2::{ReceivedChunk, SendProgress, SendingBody, SlotTable, SlotWaker, WakeList},
};

/// The calls with open streams, and the callers to be woken.
pub(super) struct OpenCalls {
    slots: Vec<Slot>,
    free: Vec<usize>,
    by_id: SlotTable,
    /// The latest stream found in `by_id`. The frames of a short response arrive one after another.
    latest: Option<(StreamId, usize)>,
    wakes: Arc<WakeList<Command>>,
    plain: PlainResponse,
    /// Callers of responses with progress. They are woken together, once per input.
    wakers: Vec<Waker>,
    /// The time of the next search for late calls. It may be too early.
    deadline: Option<Instant>,
}

/// A place for one call, with a waker shared by its calls.
struct Slot {
    waker: Waker,
    armed: Arc<SlotWaker<Command>>,
    open: Option<OpenCall>,
}

pub(super) struct OpenCall {
    id: StreamId,
    call: Arc<Http2Call>,
    /// The rest of the request. Boxed, because a call with a short message has none, and moves.
    sending: Option<Box<SendingBody<OutgoingBody>>>,
    /// The arrived part of a response, until it is passed to the caller. Boxed, because most responses arrive whole.
    start: Option<Box<ResponseStart>>,
    /// `true` while the response may be short: its caller gets it as a whole.
    collects: bool,
}

impl OpenCall {
    /// Passes on the start of a response and all its later parts.
    fn stop_collecting(&mut self) -> Option<Waker> {
        if !mem::take(&mut self.collects) {
            return None;
        }
        let start = self.take_start();
        self.call.push_start(start)
    }

    fn has_no_data(&self) -> bool {
        self.start.as_ref().is_none_or(|start| start.data.is_empty())
    }

    fn take_start(&mut self) -> ResponseStart {
        self.start.take().map(|start| *start).unwrap_or_default()
    }
}

impl OpenCalls {
    pub(super) fn new(wakes: Arc<WakeList<Command>>, plain: PlainResponse) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_id: SlotTable::default(),
            latest: None,
            wakes,
            plain,
            wakers: Vec::new(),
            deadline: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns the time of the next [`expire`](Self::expire).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Includes a call, before it is started, in the search for late ones.
    #[inline]
    pub(super) fn watch(&mut self, call: &Http2Call) {
        if let Some(deadline) = call.deadline
            && self.deadline.is_none_or(|first| deadline < first)
        {
            self.deadline = Some(deadline);
        }
    }

    /// Ends late calls, including those in `waiting`.
    pub(super) fn expire<'a>(&'a mut self, now: Instant, waiting: impl Iterator<Item = &'a Arc<Http2Call>>) {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        let mut first: Option<Instant> = None;
        let open = self.slots.iter().filter_map(|slot| slot.open.as_ref()).map(|open| &open.call);
        for call in open.chain(waiting) {
            if call.deadline.is_some_and(|deadline| deadline <= now) {
                self.wakers.extend(call.expire());
            } else {
                first = first.into_iter().chain(call.deadline).min();
            }
        }
        self.deadline = first;
    }

    /// Adds a call after its head, and sends as much of its body as there is room for.
    #[inline]
    pub(super) fn start(
        &mut self,
        core: &mut Connection,
        id: StreamId,
        call: Arc<Http2Call>,
        body: Option<Box<OutgoingBody>>,
    ) {
        let slot = self.free.pop().unwrap_or_else(|| self.add_slot());
        let sending = body.map(|body| Box::new(SendingBody::new(*body)));
        let is_sending = sending.is_some();
        let collects = call.is_short && !is_sending;
        self.slots[slot].open = Some(OpenCall { id, call, sending, start: None, collects });
        self.by_id.insert(id, slot);
        if is_sending {
            self.poll_slot(core, slot);
        }
    }

    fn add_slot(&mut self) -> usize {
        let armed = SlotWaker::new(self.wakes.clone(), self.slots.len());
        self.slots.push(Slot { waker: armed.clone().into(), armed, open: None });
        self.slots.len() - 1
    }

    /// Continues the request of a slot.
    pub(super) fn poll_slot(&mut self, core: &mut Connection, slot: usize) {
        // A late waker may belong to a free or removed slot.
        let Some(Slot { waker, armed, open: Some(open) }) = self.slots.get_mut(slot) else { return };
        let Some(sending) = &mut open.sending else { return };
        armed.rearm();
        let cx = &mut Context::from_waker(waker);
        // The stream of a request is code of the application. A panic ends its call, not the connection.
        let id = open.id;
        let progress = catch_unwind(AssertUnwindSafe(|| sending.poll_send(cx, core, id)));
        match progress {
            Ok(SendProgress::Pending) => {}
            Ok(SendProgress::Done) => {
                open.sending = None;
                if open.call.is_complete() {
                    self.remove(id);
                }
            }
            Ok(SendProgress::Failed) => self.fail(id, Http2Failure::Abandoned),
            Err(_) => {
                tracing::error!(stream = id.get(), "the stream of a request panicked");
                core.reset(id, ErrorCode::CANCEL);
                self.fail(id, Http2Failure::Abandoned);
            }
        }
    }

    /// Continues a request after room was freed.
    pub(super) fn resume(&mut self, core: &mut Connection, id: StreamId) {
        if let Some(slot) = self.by_id.get(id) {
            self.poll_slot(core, slot);
        }
    }

    #[inline]
    fn open(&mut self, id: StreamId) -> Option<&mut OpenCall> {
        let slot = match self.latest {
            Some((latest, slot)) if latest == id => slot,
            _ => self.by_id.get(id)?,
        };
        self.latest = Some((id, slot));
        self.slots[slot].open.as_mut()
    }

    pub(super) fn push_head(&mut self, core: &mut Connection, id: StreamId, head: Arc<Head>, is_end: bool) {
        let is_settled = is_end && !core.is_open(id);
        let Some(open) = self.open(id) else { return };
        if open.collects && !is_end {
            open.start.get_or_insert_default().head = Some(head);
            return;
        }
        let waker = open.call.push_head(head, is_end, is_settled);
        self.end_push(id, waker, is_settled);
    }

    /// Passes data to the caller of a stream.
    pub(super) fn push_data(
        &mut self,
        core: &mut Connection,
        id: StreamId,
        data: &[u8],
        is_end: bool,
        chunk: &mut ReceivedChunk,
    ) {
        // Before the release: it may forget the stream.
        let is_settled = is_end && !core.is_open(id);
        let (released, waker) = match self.open(id) {
            Some(open) if open.collects && open.has_no_data() && !is_end && data.len() <= RELEASED_EARLY_MAX => {
                open.start.get_or_insert_default().data = chunk.copy(data);
                (data.len(), None)
            }
            Some(open) => {
                let waker = open.stop_collecting();
                let (released, later) = open.call.push_data(data, is_end, is_settled);
                (released, waker.or(later))
            }
            None => (data.len(), None),
        };
        if released > 0 {
            core.release(id, released);
        }
        self.end_push(id, waker, is_settled);
    }

    /// Completes a call with a whole response. Its stream is closed.
    pub(super) fn push_message(&mut self, message: ReceivedMessage<'_>, data: Bytes, now: Instant) {
        let Some(open) = self.remove(message.stream) else { return };
        let (head, trailers) = (message.head, message.trailers.unwrap_or_default());
        let waker = match open.collects && self.plain.matches(&head, &data, &trailers) {
            true => open.call.push_plain(data, now),
            false => open.call.push_trailers(ResponseStart { head: Some(head), data }, trailers, true),
        };
        self.wakers.extend(waker);
    }

    pub(super) fn push_trailers(&mut self, core: &mut Connection, id: StreamId, trailers: Arc<Head>, now: Instant) {
        let is_settled = !core.is_open(id);
        let Some(open) = self.open(id) else { return };
        let (start, is_whole) = (open.take_start(), open.collects && is_settled);
        let is_plain = |head: &Arc<Head>| is_whole && self.plain.matches(head, &start.data, &trailers);
        if start.head.as_ref().is_some_and(is_plain) {
            if let Some(waker) = self.remove(id).and_then(|open| open.call.push_plain(start.data, now)) {
                self.wakers.push(waker);
            }
            return;
        }
        let Some(open) = self.open(id) else { return };
        let waker = open.call.push_trailers(start, trailers, is_settled);
        self.end_push(id, waker, is_settled);
    }

    fn end_push(&mut self, id: StreamId, waker: Option<Waker>, is_settled: bool) {
        self.wakers.extend(waker);
        if is_settled {
            self.remove(id);
        }
    }

    /// Ends a call with a failure.
    pub(super) fn fail(&mut self, id: StreamId, failure: Http2Failure) {
        if let Some(mut open) = self.remove(id) {
            self.wakers.extend(open.stop_collecting());
            self.fail_call(&open.call, failure);
        }
    }

    /// Ends a call without a stream.
    pub(super) fn fail_call(&mut self, call: &Http2Call, failure: Http2Failure) {
        self.wakers.extend(call.fail(failure));
    }

    /// Removes a call from the table. Its request is dropped with the result.
    #[inline]
    pub(super) fn remove(&mut self, id: StreamId) -> Option<OpenCall> {
        let slot = self.by_id.remove(id)?;
        self.latest = None;
        let open = self.slots[slot].open.take()?;
        self.free.push(slot);
        Some(open)
    }

    /// Wakes the callers. Returns their number.
    pub(super) fn wake(&mut self) -> usize {
        let count = self.wakers.len();
        self.wakers.drain(..).for_each(Waker::wake);
        count
    }

    /// Ends all calls, because the connection has ended.
    pub(super) fn fail_all(&mut self, failure: &Http2Failure) {
        self.by_id.clear();
        self.latest = None;
        self.free.clear();
        for mut open in mem::take(&mut self.slots).into_iter().filter_map(|slot| slot.open) {
            self.wakers.extend(open.stop_collecting());
            self.wakers.extend(open.call.fail(failure.clone()));
        }
    }

    /// Frees unneeded memory of a connection without calls.
    pub(super) fn release_memory(&mut self) {
        if self.slots.len() > SLOTS_KEPT {
            (self.slots, self.free, self.latest) = Default::default();
            self.by_id.clear();
        }
        self.wakers.shrink_to(SLOTS_KEPT);
    }
}

/// The maximum number of slots kept by a connection without calls.
const SLOTS_KEPT: usize = 64;
