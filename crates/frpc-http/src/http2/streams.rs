//! The open streams of a connection: their handlers, request bodies and responses.

use std::{
    error::Error,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, atomic::AtomicUsize},
    task::{Context, Poll, Waker},
    time::Instant,
};

use bytes::Bytes;
use frpc::{HandlerFuture, HandlerPermit};
use frpc_http2::{Connection, ErrorCode, StreamId};
use futures_util::future::BoxFuture;
use http::{HeaderMap, Response};

use super::{
    request_body::BodyQueue,
    response::{self, GrpcBlocks, SendingResponse},
    sending::SendProgress,
    slot_table::SlotTable,
    task::RequestTask,
    wakes::{SlotWaker, WakeList},
};
use crate::serve::{GrpcCall, ResponseBody, ServeContext};

/// The streams of a connection with running handlers or unsent responses.
///
/// The connection polls them in its own task, except handlers in separate tasks. Most of the rest are ready at the
/// first poll, so their streams leave the table immediately.
pub(super) struct OpenStreams<'a> {
    context: &'a ServeContext,
    slots: Vec<Slot<'a>>,
    free: Vec<usize>,
    /// The slot of a waiting handler in place beyond the limit of the server.
    uncounted: Option<usize>,
    /// The slots of streams pending after their first poll.
    by_id: SlotTable,
    wakes: Arc<WakeList>,
    blocks: GrpcBlocks,
    /// The length of the queued answers of tasks. Most connections have no tasks.
    queued_answers: Option<Arc<AtomicUsize>>,
}

/// A place for one stream, with a waker shared by its streams.
struct Slot<'a> {
    waker: Waker,
    armed: Arc<SlotWaker>,
    stream: Option<OpenStream<'a>>,
}

struct OpenStream<'a> {
    id: StreamId,
    phase: StreamPhase<'a>,
    /// The queue of the request body, if the body did not arrive together with the head.
    body: Option<Arc<BodyQueue>>,
}

/// ```text
///   Calling, Answering or InTask ──response without a body──────▶ removed
///       └──response──▶ Sending ──end of the body────────────────────▲
/// ```
pub(super) enum StreamPhase<'a> {
    /// The handler of a unary gRPC call runs. It has a permit while it waits, if the server has one.
    Calling(Arc<GrpcCall>, HandlerFuture<'a>, Option<HandlerPermit>),
    /// The handler of any other request runs.
    Answering(BoxFuture<'a, Response<ResponseBody>>),
    /// The same in a task. `None` after the response.
    InTask(Option<RequestTask>),
    /// The rest of the response waits for data or for room. `None` if there is none.
    Sending(Option<SendingResponse>),
}

impl<'a> OpenStreams<'a> {
    pub(super) fn new(context: &'a ServeContext, wakes: Arc<WakeList>) -> Self {
        let (slots, free, by_id) = (Vec::new(), Vec::new(), SlotTable::default());
        let (uncounted, blocks, queued_answers) = (None, GrpcBlocks::default(), None);
        Self { context, slots, free, uncounted, by_id, wakes, blocks, queued_answers }
    }

    pub(super) fn queued_answers(&mut self) -> Arc<AtomicUsize> {
        self.queued_answers.get_or_insert_default().clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Adds a stream, and polls its handler for the first time.
    pub(super) fn start(
        &mut self,
        core: &mut Connection,
        id: StreamId,
        phase: StreamPhase<'a>,
        body: Option<Arc<BodyQueue>>,
    ) {
        let slot = self.free.pop().unwrap_or_else(|| self.add_slot());
        self.slots[slot].stream = Some(OpenStream { id, phase, body });
        if self.poll_stream(core, slot).is_pending() {
            self.by_id.insert(id, slot);
            self.count_handler(slot);
        }
    }

    /// Begins a unary gRPC call with its message, in a turn begun at this time. The call takes a slot only if its handler
    /// is not ready at its first poll.
    pub(super) fn call(
        &mut self,
        core: &mut Connection,
        id: StreamId,
        call: &Arc<GrpcCall>,
        message: Bytes,
        turn: Instant,
    ) {
        if self.free.is_empty() {
            let slot = self.add_slot();
            self.free.push(slot);
        }
        let Some(slot) = self.free.last().copied() else { return };
        let Slot { waker, armed, .. } = &self.slots[slot];
        armed.rearm();
        let (context, blocks, cx) = (self.context, &mut self.blocks, &mut Context::from_waker(waker));
        let mut answering = call.begin(context, message, turn);
        // A panic ends the call. Its possibly broken state is dropped with the call.
        let polled = catch_unwind(AssertUnwindSafe(|| match Pin::new(&mut answering).poll(cx) {
            Poll::Ready(answer) => {
                Poll::Ready(response::begin_grpc(core, blocks, id, call, call.reply(context, answer)))
            }
            Poll::Pending => Poll::Pending,
        }));
        let phase = match polled {
            Ok(Poll::Ready(None)) => return,
            Ok(Poll::Ready(rest)) => StreamPhase::Sending(rest),
            Ok(Poll::Pending) => StreamPhase::Calling(call.clone(), answering, None),
            Err(_) => {
                tracing::error!(stream = id.get(), "a handler panicked");
                return core.reset(id, ErrorCode::INTERNAL_ERROR);
            }
        };
        let is_waiting = matches!(phase, StreamPhase::Calling(..));
        self.free.pop();
        self.slots[slot].stream = Some(OpenStream { id, phase, body: None });
        // Sends as much of the rest as there is room for.
        if is_waiting || self.poll_stream(core, slot).is_pending() {
            self.by_id.insert(id, slot);
            self.count_handler(slot);
        }
    }

    /// Takes a permit for a waiting handler in place. Without one, it is the only such handler of the connection.
    fn count_handler(&mut self, slot: usize) {
        if let Some(OpenStream { phase: StreamPhase::Calling(_, _, permit), .. }) = &mut self.slots[slot].stream {
            *permit = GrpcCall::handler_permit(self.context);
            if permit.is_none() {
                self.uncounted = Some(slot);
            }
        }
    }

    /// Returns `true` if no further handler may begin without a permit.
    #[inline]
    pub(super) fn is_at_limit(&mut self) -> bool {
        self.uncounted.is_some() && self.has_uncounted()
    }

    #[cold]
    fn has_uncounted(&mut self) -> bool {
        let stream = self.uncounted.and_then(|slot| self.slots.get(slot)?.stream.as_ref());
        let is_running = stream.is_some_and(|stream| matches!(stream.phase, StreamPhase::Calling(_, _, None)));
        if !is_running {
            self.uncounted = None;
        }
        is_running
    }

    fn add_slot(&mut self) -> usize {
        if self.slots.is_empty() {
            // Many connections never have a second call at the same time.
            self.slots.reserve_exact(1);
        }
        let armed = SlotWaker::new(self.wakes.clone(), self.slots.len());
        self.slots.push(Slot { waker: armed.clone().into(), armed, stream: None });
        self.slots.len() - 1
    }

    /// Polls the stream of a slot.
    pub(super) fn poll_slot(&mut self, core: &mut Connection, slot: usize) {
        // A late waker may belong to a free or removed slot.
        let Some(id) = self.slots.get(slot).and_then(|slot| slot.stream.as_ref()).map(|stream| stream.id) else {
            return;
        };
        if self.poll_stream(core, slot).is_ready() {
            self.by_id.remove(id);
        }
    }

    /// Polls the stream of an occupied slot. The slot is free once the stream is done.
    fn poll_stream(&mut self, core: &mut Connection, slot: usize) -> Poll<()> {
        let Slot { waker, armed, stream: place } = &mut self.slots[slot];
        let Some(stream) = place else { return Poll::Ready(()) };
        armed.rearm();
        let cx = &mut Context::from_waker(waker);
        // A panic ends the call. Its possibly broken state is dropped with the call.
        let polled = catch_unwind(AssertUnwindSafe(|| stream.poll(cx, self.context, &mut self.blocks, core)));
        match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => {}
            Err(_) => {
                tracing::error!(stream = stream.id.get(), "a handler panicked");
                core.reset(stream.id, ErrorCode::INTERNAL_ERROR);
            }
        }
        // A task may still read the request. The error tells it about the end of the call.
        if let Some(body) = stream.body.take() {
            body.fail("the call is over");
        }
        *place = None;
        self.free.push(slot);
        Poll::Ready(())
    }

    /// Continues a response after room was freed.
    pub(super) fn resume(&mut self, core: &mut Connection, id: StreamId) {
        if let Some(slot) = self.by_id.get(id) {
            self.poll_slot(core, slot);
        }
    }

    /// Passes data to the handler of a stream. Returns `false` if no handler reads it.
    pub(super) fn push_data(&self, id: StreamId, data: &[u8], is_end: bool) -> bool {
        let Some(queue) = self.body(id) else { return false };
        let is_read = data.is_empty() || queue.push(data);
        if is_end {
            queue.complete(None);
        }
        is_read
    }

    /// Ends the body of a stream with trailers.
    pub(super) fn push_trailers(&self, id: StreamId, trailers: Option<HeaderMap>) {
        if let Some(queue) = self.body(id) {
            queue.complete(trailers);
        }
    }

    fn body(&self, id: StreamId) -> Option<&Arc<BodyQueue>> {
        self.slots[self.by_id.get(id)?].stream.as_ref()?.body.as_ref()
    }

    /// Drops the handler of a stream after its early end.
    pub(super) fn cancel(&mut self, id: StreamId, reason: impl Error + Send + Sync + 'static) {
        let Some(slot) = self.by_id.remove(id) else { return };
        let stream = self.slots[slot].stream.take();
        self.free.push(slot);
        if let Some(body) = stream.and_then(|stream| stream.body) {
            body.fail(reason);
        }
    }

    /// Frees unneeded memory of a connection without streams.
    pub(super) fn release_memory(&mut self) {
        debug_assert!(self.by_id.is_empty(), "streams keep their slots");
        (self.slots, self.free, self.by_id, self.queued_answers) = Default::default();
    }
}

impl OpenStream<'_> {
    /// Polls the handler or the body of the response. Completes when nothing is left to be done for the stream.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        context: &ServeContext,
        blocks: &mut GrpcBlocks,
        core: &mut Connection,
    ) -> Poll<()> {
        let begun = match &mut self.phase {
            StreamPhase::Calling(call, answer, _) => match Pin::new(answer).poll(cx) {
                Poll::Ready(answer) => response::begin_grpc(core, blocks, self.id, call, call.reply(context, answer)),
                Poll::Pending => return Poll::Pending,
            },
            StreamPhase::Answering(response) => match response.as_mut().poll(cx) {
                Poll::Ready(response) => response::begin(core, self.id, response),
                Poll::Pending => return Poll::Pending,
            },
            StreamPhase::InTask(task) => match RequestTask::poll_response(task, cx) {
                Poll::Ready(response) => response::begin(core, self.id, response),
                Poll::Pending => return Poll::Pending,
            },
            StreamPhase::Sending(rest) => rest.take(),
        };
        let Some(mut rest) = begun else { return Poll::Ready(()) };
        let progress = rest.poll_send(cx, core, self.id);
        self.phase = StreamPhase::Sending(Some(rest));
        match progress {
            SendProgress::Done | SendProgress::Failed => Poll::Ready(()),
            SendProgress::Pending => Poll::Pending,
        }
    }
}

impl OpenStreams<'_> {
    /// Drops all handlers, because the connection was lost.
    pub(super) fn close(&mut self) {
        self.cancel_all(&ConnectionLost);
    }

    /// Drops all handlers, because the connection has ended.
    pub(super) fn cancel_all(&mut self, reason: &(impl Error + Clone + Send + Sync + 'static)) {
        self.by_id.clear();
        self.free.clear();
        for stream in self.slots.drain(..).filter_map(|slot| slot.stream) {
            let OpenStream { phase, body, .. } = stream;
            drop(phase);
            if let Some(body) = body {
                body.fail(reason.clone());
            }
        }
    }
}

impl Drop for OpenStreams<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The peer closed the connection, or it failed.
#[derive(Clone, Debug)]
struct ConnectionLost;

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection was lost")
    }
}

impl Error for ConnectionLost {}
