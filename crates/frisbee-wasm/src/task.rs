//! Tasks in the event loop of the browser, with the interface of `tokio::task`.

use std::{
    cell::Cell,
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::{
    future::{AbortHandle as FutureAbortHandle, Abortable},
    stream::{FuturesUnordered, Stream},
};
use tokio::sync::oneshot;
pub use tokio::task::{coop, unconstrained, yield_now};
use wasm_bindgen_futures::spawn_local;

/// The number of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u64);

thread_local! {
    static NEXT_ID: Cell<u64> = const { Cell::new(0) };
}

/// Starts a task.
pub fn spawn<F: Future<Output: Send> + Send + 'static>(future: F) -> JoinHandle<F::Output> {
    let (abort, registration) = FutureAbortHandle::new_pair();
    let (sender, output) = oneshot::channel();
    let id = NEXT_ID.with(|next| Id(next.replace(next.get() + 1)));
    spawn_local(async move {
        if let Ok(output) = Abortable::new(future, registration).await {
            // Fails if the handle was dropped.
            let _ = sender.send(output);
        }
    });
    JoinHandle { abort: AbortHandle { abort, id }, output }
}

/// Runs a function in the event loop, because a page has no other thread.
pub fn spawn_blocking<T: Send + 'static>(function: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn(async move { function() })
}

/// Waits for the output of a task. Dropping it lets the task go on.
pub struct JoinHandle<T> {
    abort: AbortHandle,
    output: oneshot::Receiver<T>,
}

impl<T> JoinHandle<T> {
    /// Ends the task at its next turn.
    pub fn abort(&self) {
        self.abort.abort();
    }

    /// Returns a handle to end the task.
    pub fn abort_handle(&self) -> AbortHandle {
        self.abort.clone()
    }

    /// Returns the number of the task.
    pub fn id(&self) -> Id {
        self.abort.id
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let output = ready!(Pin::new(&mut self.output).poll(cx));
        Poll::Ready(output.map_err(|_| JoinError(self.abort.id)))
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("id", &self.abort.id).finish_non_exhaustive()
    }
}

/// Ends a task.
#[derive(Clone, Debug)]
pub struct AbortHandle {
    abort: FutureAbortHandle,
    id: Id,
}

impl AbortHandle {
    /// Ends the task at its next turn.
    pub fn abort(&self) {
        self.abort.abort();
    }

    /// Returns the number of the task.
    pub fn id(&self) -> Id {
        self.id
    }
}

/// The error of a task ended before its output. A panic ends the whole program instead.
#[derive(Debug)]
pub struct JoinError(Id);

impl JoinError {
    /// Returns the number of the task.
    pub fn id(&self) -> Id {
        self.0
    }

    /// Returns `true`.
    pub fn is_cancelled(&self) -> bool {
        true
    }

    /// Returns `false`.
    pub fn is_panic(&self) -> bool {
        false
    }

    /// Returns the error: there is no payload of a panic.
    pub fn try_into_panic(self) -> Result<Box<dyn std::any::Any + Send>, Self> {
        Err(self)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} was cancelled", self.0.0)
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        Self::other(error)
    }
}

/// Ends a task on drop, as `tokio_util::task::AbortOnDropHandle`.
#[derive(Debug)]
pub struct AbortOnDropHandle<T>(JoinHandle<T>);

impl<T> AbortOnDropHandle<T> {
    /// Ends this task on drop.
    pub fn new(task: JoinHandle<T>) -> Self {
        Self(task)
    }
}

impl<T> Drop for AbortOnDropHandle<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Future for AbortOnDropHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// A set of tasks. All end on drop.
#[derive(Debug)]
pub struct JoinSet<T>(FuturesUnordered<WithId<T>>);

impl<T: Send + 'static> JoinSet<T> {
    /// Returns an empty set.
    pub fn new() -> Self {
        Self(FuturesUnordered::new())
    }

    /// Starts a task in the set.
    pub fn spawn<F: Future<Output = T> + Send + 'static>(&mut self, future: F) -> AbortHandle {
        let task = spawn(future);
        let abort = task.abort_handle();
        self.0.push(WithId(AbortOnDropHandle::new(task)));
        abort
    }

    /// Returns `true` without tasks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Waits for the next output of a task. Returns `None` without tasks.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        let joined = std::future::poll_fn(|cx| self.poll_join_next_with_id(cx)).await;
        joined.map(|joined| joined.map(|(_, output)| output))
    }

    /// Polls for the next output of a task and its number.
    pub fn poll_join_next_with_id(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(Id, T), JoinError>>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}

impl<T: Send + 'static> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct WithId<T>(AbortOnDropHandle<T>);

impl<T> Future for WithId<T> {
    type Output = Result<(Id, T), JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.0.0.id();
        Pin::new(&mut self.0).poll(cx).map_ok(|output| (id, output))
    }
}
