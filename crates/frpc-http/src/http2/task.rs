//! Handlers in separate tasks. They hand their responses over to the connection.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::poll_fn,
    panic::resume_unwind,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use frpc::frisbee::keep_freed_memory;
use http::Response;
use http_body::{Body, Frame};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use crate::serve::ResponseBody;

/// The task of a handler. Dropping it drops the handler. A panic of the handler continues in the connection.
pub(super) struct HandlerTask<T>(AbortOnDropHandle<T>);

impl<T: Send + 'static> HandlerTask<T> {
    /// Runs a handler as a task, possibly on another thread. With threads per core, it stays on its core.
    pub(super) fn spawn(handler: impl Future<Output = T> + Send + 'static) -> Self {
        Self(AbortOnDropHandle::new(tokio::spawn(handler)))
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(cx).map(|ended| ended.unwrap_or_else(|error| end_like(error)))
    }
}

/// Panics like the task that has ended with this error.
#[cold]
fn end_like(error: JoinError) -> ! {
    match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        // Only the end of the runtime cancels a task whose handle is still here.
        Err(error) => resume_unwind(Box::new(error)),
    }
}

/// A request answered by a task.
pub(super) struct RequestTask {
    task: HandlerTask<()>,
    answer: Arc<AnswerQueue>,
}

impl RequestTask {
    /// Starts the task of a handler. `queued` is the length of all answers in the queues of a connection.
    pub(super) fn spawn(
        queued: Arc<AtomicUsize>,
        handler: impl Future<Output = Response<ResponseBody>> + Send + 'static,
    ) -> Self {
        let answer = Arc::new(AnswerQueue { state: Mutex::default(), queued });
        let writer = AnswerWriter(answer.clone());
        Self { task: HandlerTask::spawn(async move { writer.send(handler.await).await }), answer }
    }

    /// Waits for the response, and takes the task out of its place. The rest of the task is the body of the response.
    pub(super) fn poll_response(place: &mut Option<Self>, cx: &mut Context<'_>) -> Poll<Response<ResponseBody>> {
        let Some(request) = place else { return Poll::Pending };
        let response = ready!(request.poll_answer(cx, |state| state.response.take()));
        let (response, request) = (response.expect("a task ends with a response or a panic"), place.take());
        Poll::Ready(response.map(|whole| match (whole, request) {
            (None, Some(request)) => ResponseBody::stream(request),
            (whole, _) => whole.unwrap_or_else(ResponseBody::empty),
        }))
    }

    /// Takes a part of the answer. Returns `None` if the task has ended without it.
    fn poll_answer<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut AnswerState) -> Option<T>,
    ) -> Poll<Option<T>> {
        let mut state = self.answer.state();
        let len = state.len;
        if let Some(part) = take(&mut state) {
            self.answer.queued.fetch_sub(len - state.len, Ordering::Relaxed);
            // The task goes on before its answer is used up, so that neither side waits for the other.
            let handler = if state.len < QUEUE_LEN / 2 { state.handler.take() } else { None };
            drop(state);
            handler.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(part));
        }
        match state.end {
            AnswerEnd::Open => {
                state.connection = Some(cx.waker().clone());
                Poll::Pending
            }
            AnswerEnd::Complete => Poll::Ready(None),
            AnswerEnd::Abandoned => {
                drop(state);
                self.task.poll(cx).map(|()| None)
            }
        }
    }
}

impl Body for RequestTask {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.poll_answer(cx, |state| {
            let frame = state.pieces.pop_front()?;
            state.len -= len_of(&frame);
            Some(Ok(frame))
        })
    }

    fn is_end_stream(&self) -> bool {
        let state = self.answer.state();
        state.pieces.is_empty() && matches!(state.end, AnswerEnd::Complete)
    }
}

/// The answer of a task, on its way to the connection.
struct AnswerQueue {
    state: Mutex<AnswerState>,
    /// The length of all queues of the connection.
    queued: Arc<AtomicUsize>,
}

#[derive(Default)]
struct AnswerState {
    /// The response. Its body is `None` if it follows in pieces.
    response: Option<Response<Option<ResponseBody>>>,
    pieces: VecDeque<Frame<Bytes>>,
    /// The length of `pieces`, with an overhead for each.
    len: usize,
    end: AnswerEnd,
    /// The connection while it waits for more of the answer.
    connection: Option<Waker>,
    /// The task while it waits for room.
    handler: Option<Waker>,
}

#[derive(Default)]
enum AnswerEnd {
    /// More may follow.
    #[default]
    Open,
    Complete,
    /// The task was dropped, or panicked.
    Abandoned,
}

impl AnswerQueue {
    fn state(&self) -> MutexGuard<'_, AnswerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the connection, if it waits.
    fn wake_connection(&self) {
        let connection = self.state().connection.take();
        connection.into_iter().for_each(Waker::wake);
    }

    /// Waits until the queue has room.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        // A full connection leaves each task a little room: it goes on when the connection takes a piece of its queue.
        let is_scarce = self.queued.load(Ordering::Relaxed) >= QUEUES_LEN;
        if state.len < if is_scarce { QUEUE_LEN_MIN } else { QUEUE_LEN } {
            return Poll::Ready(());
        }
        state.handler = Some(cx.waker().clone());
        // The connection frees the pieces of a full queue, and the task allocates the next ones.
        keep_freed_memory();
        Poll::Pending
    }
}

impl Drop for AnswerQueue {
    fn drop(&mut self) {
        let len = self.state().len;
        self.queued.fetch_sub(len, Ordering::Relaxed);
    }
}

/// The task's side of an answer.
struct AnswerWriter(Arc<AnswerQueue>);

impl AnswerWriter {
    async fn send(self, response: Response<ResponseBody>) {
        if !response.body().is_stream() {
            self.0.state().response = Some(response.map(Some));
            return self.complete();
        }
        let (parts, mut body) = response.into_parts();
        self.0.state().response = Some(Response::from_parts(parts, None));
        poll_fn(|cx| self.poll_send(cx, &mut body)).await
    }

    /// Sends everything ready for which there is room. Only then wakes the connection: it could be moved to the thread
    /// of this task, and would have to wait for it.
    fn poll_send(&self, cx: &mut Context<'_>, body: &mut ResponseBody) -> Poll<()> {
        while self.0.poll_room(cx).is_ready() {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(frame)) => {
                    let Ok(frame) = frame;
                    let (len, mut state) = (len_of(&frame), self.0.state());
                    self.0.queued.fetch_add(len, Ordering::Relaxed);
                    state.len += len;
                    state.pieces.push_back(frame);
                }
                Poll::Ready(None) => {
                    self.complete();
                    return Poll::Ready(());
                }
                Poll::Pending => break,
            }
        }
        self.0.wake_connection();
        Poll::Pending
    }

    fn complete(&self) {
        self.0.state().end = AnswerEnd::Complete;
        self.0.wake_connection();
    }
}

impl Drop for AnswerWriter {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if matches!(state.end, AnswerEnd::Open) {
            state.end = AnswerEnd::Abandoned;
            drop(state);
            self.0.wake_connection();
        }
    }
}

fn len_of(frame: &Frame<Bytes>) -> usize {
    FRAME_LEN + frame.data_ref().map_or(0, Bytes::len)
}

/// A task waits once this much of its answer is not taken, counted with [`FRAME_LEN`]. The last piece may exceed it.
const QUEUE_LEN: usize = 192 << 10;

/// The same once the queues of a connection exceed [`QUEUES_LEN`]. A peer may ask for hundreds of answers that it does not
/// read.
const QUEUE_LEN_MIN: usize = 16 << 10;

/// The length of all queues of a connection from which on each one is short.
const QUEUES_LEN: usize = 4 << 20;

/// The memory of a piece besides its data.
const FRAME_LEN: usize = size_of::<Frame<Bytes>>();
