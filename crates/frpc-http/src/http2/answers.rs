//! The tasks of HTTP/2 responses, and the timeout for peers that stop reading them.
//!
//! The flow-control windows of the peer decide how much of a response may be sent. Without this timeout, a peer that
//! opens no window but answers keepalive pings would keep responses here forever.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};
use tracing::debug;

use crate::{
    activity::{ConnectionActivity, RequestGuard},
    serve::ResponseBody,
};

/// Runs the responses of a connection. Drops a response after too long without progress, which resets its stream.
#[derive(Clone)]
pub(crate) struct ResponseExecutor(Arc<ExecutorState>);

struct ExecutorState {
    activity: Arc<ConnectionActivity>,
    write_stall_max: Duration,
    /// The progress of the next response to run. hyper passes each response to the executor right after it was begun.
    next: Mutex<Option<Arc<ResponseProgress>>>,
}

/// The progress of one response. Only its own task changes it.
#[derive(Debug, Default)]
pub(crate) struct ResponseProgress {
    /// The number of pieces passed to HTTP/2.
    given: AtomicUsize,
    /// `true` while HTTP/2 holds a piece. It asks for the next one when the windows of the peer have let this one pass.
    waits: AtomicBool,
}

impl ResponseProgress {
    fn give(&self) {
        self.given.fetch_add(1, Ordering::Relaxed);
        self.waits.store(true, Ordering::Relaxed);
    }

    /// Returns the number of the piece still held back by the peer.
    fn waiting(&self) -> Option<usize> {
        self.waits.load(Ordering::Relaxed).then(|| self.given.load(Ordering::Relaxed))
    }
}

impl ResponseExecutor {
    pub(crate) fn new(activity: Arc<ConnectionActivity>, write_stall_max: Duration) -> Self {
        Self(Arc::new(ExecutorState { activity, write_stall_max, next: Mutex::default() }))
    }

    /// Begins a response. The next call of `execute` must run it.
    pub(crate) fn begin(&self) -> Arc<ResponseProgress> {
        let progress = Arc::new(ResponseProgress::default());
        *self.0.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress.clone());
        progress
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for ResponseExecutor {
    fn execute(&self, answering: F) {
        let progress = self.0.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(progress) = progress else {
            // Not the task of a response, so no limit applies.
            tokio::spawn(answering);
            return;
        };
        let underway = self.0.activity.begin();
        let limit = self.0.write_stall_max;
        tokio::spawn(ResponseTask { answering, progress, limit, piece: 0, late: None, _underway: underway });
    }
}

pin_project! {
    /// The task of a response.
    struct ResponseTask<F> {
        #[pin]
        answering: F,
        progress: Arc<ResponseProgress>,
        limit: Duration,
        // The piece measured by `late`.
        piece: usize,
        // Created when the peer first holds back a piece, so that most responses need no timer.
        late: Option<Pin<Box<Sleep>>>,
        _underway: RequestGuard,
    }
}

impl<F: Future<Output = ()>> Future for ResponseTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let me = self.project();
        if me.answering.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(piece) = me.progress.waiting() else { return Poll::Pending };
        if piece != *me.piece {
            *me.piece = piece;
            match me.late {
                None => *me.late = Some(Box::pin(sleep(*me.limit))),
                Some(late) => late.as_mut().reset(Instant::now() + *me.limit),
            }
        }
        let Some(late) = me.late else { return Poll::Pending };
        ready!(late.as_mut().poll(cx));
        debug!(limit = ?me.limit, "reset a call: the peer did not read its response in time (write_stall_max)");
        Poll::Ready(())
    }
}

/// A response body in pieces of at most [`PIECE_LEN`]. HTTP/2 buffers at most one piece per response.
pub(crate) struct PiecewiseBody {
    body: ResponseBody,
    /// The rest of the latest data.
    rest: Bytes,
    progress: Arc<ResponseProgress>,
}

impl PiecewiseBody {
    pub(crate) fn new(body: ResponseBody, progress: Arc<ResponseProgress>) -> Self {
        Self { body, rest: Bytes::new(), progress }
    }
}

impl Body for PiecewiseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let me = &mut *self;
        // HTTP/2 asks for more, so the previous piece is through.
        me.progress.waits.store(false, Ordering::Relaxed);
        if me.rest.is_empty() {
            let Some(Ok(frame)) = ready!(Pin::new(&mut me.body).poll_frame(cx)) else { return Poll::Ready(None) };
            match frame.into_data() {
                Ok(data) => me.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let piece = me.rest.split_to(me.rest.len().min(PIECE_LEN));
        me.progress.give();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}

/// The maximum data of a response that HTTP/2 buffers for its peer.
const PIECE_LEN: usize = 32 * 1024;
