//! A connection on which calls wait for their answers, and the task that moves its messages.

use std::{
    collections::HashMap,
    future::poll_fn,
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use frpc::{CallError, CloseReason, Method, Status, Streaming};
use futures_core::Stream;
use futures_util::task::AtomicWaker;
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use super::answer::{Answer, members, request};
use crate::{
    failure::read_status,
    json::{DEPTH_MAX, Scanner},
};

/// A connection, as its task moves messages over it.
pub(super) trait Conduit: Send + 'static {
    /// Adds a message to those that are written next.
    fn queue(&mut self, message: &[u8]);

    /// Polls until all is written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Polls for a message of the server. `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>>;
}

/// A connection with calls. Dropping it ends the connection.
pub(super) struct Link(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Of the task.
    task: AtomicWaker,
}

#[derive(Default)]
struct State {
    next_id: u64,
    waiting: HashMap<u64, Waiting>,
    subscriptions: HashMap<String, Subscription>,
    /// Messages that the task has not taken.
    outgoing: Vec<Vec<u8>>,
    /// Set once the connection is over, to the failure of the calls on it.
    end: Option<Status>,
}

/// A call that waits for its answer.
enum Waiting {
    One(oneshot::Sender<Result<Bytes, Status>>),
    Many(oneshot::Sender<Result<Streaming<Bytes>, Status>>),
}

struct Subscription {
    messages: mpsc::Sender<Bytes>,
    end: Arc<OnceLock<Status>>,
}

/// The messages of a subscription. Dropping it ends the subscription.
struct Subscribed {
    messages: mpsc::Receiver<Bytes>,
    /// The failure behind the last message, if there is one.
    end: Arc<OnceLock<Status>>,
    _entry: Entry,
}

/// The place of a call or of a subscription, which is left when this is dropped.
struct Entry {
    shared: Arc<Shared>,
    of: Of,
}

enum Of {
    Call(u64),
    Subscription(String),
}

impl Link {
    /// Begins to move messages.
    pub(super) fn new(conduit: impl Conduit) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), task: AtomicWaker::new() });
        tokio::spawn(drive(shared.clone(), conduit));
        Self(shared)
    }

    /// Returns whether no other call can be made.
    pub(super) fn is_over(&self) -> bool {
        self.0.state().end.is_some()
    }

    /// Makes a call that is answered with one message.
    pub(super) async fn unary(&self, method: &Method, message: &[u8]) -> Result<Bytes, Status> {
        let (sender, answer) = oneshot::channel();
        let _entry = self.send(method, message, Waiting::One(sender))?;
        answer.await.unwrap_or_else(|_| Err(lost(false)))
    }

    /// Makes a call that is answered with a stream.
    pub(super) async fn subscribe(&self, method: &Method, message: &[u8]) -> Result<Streaming<Bytes>, Status> {
        let (sender, answer) = oneshot::channel();
        let _entry = self.send(method, message, Waiting::Many(sender))?;
        answer.await.unwrap_or_else(|_| Err(lost(false)))
    }

    fn send(&self, method: &Method, message: &[u8], waiting: Waiting) -> Result<Entry, Status> {
        let mut state = self.0.state();
        if state.end.is_some() {
            return Err(lost(false));
        }
        state.next_id += 1;
        let id = state.next_id;
        let text = request(id, method, message)?;
        state.outgoing.push(text);
        state.waiting.insert(id, waiting);
        drop(state);
        self.0.task.wake();
        Ok(Entry { shared: self.0.clone(), of: Of::Call(id) })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.0.end(|_| lost(true));
        self.0.task.wake();
    }
}

/// Returns the status of a call whose connection was lost.
fn lost(may_have_executed: bool) -> Status {
    CallError::ConnectionLost { reason: CloseReason::Peer, may_have_executed }.into()
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all calls. Nothing happens if they are ended.
    fn end(&self, why: impl Fn(()) -> Status) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        state.end = Some(why(()));
        for (_, waiting) in state.waiting.drain() {
            waiting.fail(why(()));
        }
        for (_, subscription) in state.subscriptions.drain() {
            let _ = subscription.end.set(why(()));
        }
    }

    /// Takes a message of the server. Returns why the connection cannot go on, if it cannot.
    fn take(self: &Arc<Self>, message: &Bytes) -> Result<(), Status> {
        let broken = |why: String| Status::internal(format!("the server sent what is not JSON-RPC: {why}"));
        let text = str::from_utf8(message).map_err(|error| broken(error.to_string()))?;
        let mut scanner = Scanner::new(text, DEPTH_MAX);
        if scanner.peek() != Some(b'[') {
            return self.take_one(message, text);
        }
        let mut is_more = scanner.enter(b']').map_err(|fault| broken(fault.to_string()))?;
        while is_more {
            let value = scanner.value().map_err(|fault| broken(fault.to_string()))?;
            self.take_one(message, value)?;
            is_more = scanner.is_more(b']').map_err(|fault| broken(fault.to_string()))?;
        }
        Ok(())
    }

    fn take_one(self: &Arc<Self>, message: &Bytes, text: &str) -> Result<(), Status> {
        let broken = |fault| Status::internal(format!("the server sent what is not JSON-RPC: {fault}"));
        let answer = Answer::read(text).map_err(broken)?;
        let Some(id) = answer.id else {
            if let Some(params) = answer.params {
                self.notify(message, params);
            }
            return Ok(());
        };
        let Ok(id) = id.parse() else {
            // The server could not read one of the requests, and nobody knows which.
            return match answer.error {
                Some(error) => Err(read_status(error)),
                None => Ok(()),
            };
        };
        let Some(waiting) = self.state().waiting.remove(&id) else { return Ok(()) };
        match (waiting, answer.outcome()) {
            (waiting, Err(status)) => waiting.fail(status),
            (Waiting::One(sender), Ok(result)) => drop(sender.send(Ok(message.slice_ref(result.as_bytes())))),
            (Waiting::Many(sender), Ok(result)) => drop(sender.send(Ok(self.subscribed(result)))),
        }
        Ok(())
    }

    fn subscribed(self: &Arc<Self>, id: &str) -> Streaming<Bytes> {
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let end = Arc::<OnceLock<Status>>::default();
        self.state().subscriptions.insert(id.to_owned(), Subscription { messages: sender, end: end.clone() });
        let entry = Entry { shared: self.clone(), of: Of::Subscription(id.to_owned()) };
        Streaming::new(Subscribed { messages, end, _entry: entry })
    }

    /// Gives a notification to the subscription that it is for.
    fn notify(&self, message: &Bytes, params: &str) {
        let (mut id, mut result, mut error, mut is_end) = (None, None, None, false);
        let read = members(params, |name, value| match name {
            "subscription" => id = Some(value),
            "result" => result = Some(value),
            "error" => error = Some(value),
            "end" => is_end = value == "true",
            _ => {}
        });
        let (Ok(()), Some(id)) = (read, id) else { return };
        let mut state = self.state();
        let Some(subscription) = state.subscriptions.get(id) else { return };
        let failure = match (result, error) {
            (_, Some(error)) => Some(read_status(error)),
            (Some(result), None) => match subscription.messages.try_send(message.slice_ref(result.as_bytes())) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    state.outgoing.push(unsubscribe(id));
                    Some(Status::resource_exhausted(format!(
                        "{MESSAGES_MAX} messages of the stream wait for their reader"
                    )))
                }
                // Its reader ends it.
                Err(mpsc::error::TrySendError::Closed(_)) => return,
            },
            (None, None) if is_end => None,
            (None, None) => return,
        };
        if let (Some(subscription), Some(status)) = (state.subscriptions.remove(id), failure) {
            let _ = subscription.end.set(status);
        }
    }
}

/// The messages of a stream that may wait for their reader. One that is slower loses the stream: others on the connection must not
/// wait for it.
const MESSAGES_MAX: usize = 1024;

/// Returns the notification that ends a subscription.
fn unsubscribe(id: &str) -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"rpc.unsubscribe\",\"params\":[{id}]}}").into_bytes()
}

impl Waiting {
    fn fail(self, status: Status) {
        match self {
            Self::One(sender) => drop(sender.send(Err(status))),
            Self::Many(sender) => drop(sender.send(Err(status))),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        match &self.of {
            Of::Call(id) => drop(state.waiting.remove(id)),
            Of::Subscription(id) => {
                if state.subscriptions.remove(id).is_some() {
                    state.outgoing.push(unsubscribe(id));
                    drop(state);
                    self.shared.task.wake();
                }
            }
        }
    }
}

impl Stream for Subscribed {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.messages.poll_recv(cx));
        Poll::Ready(match next {
            Some(message) => Some(Ok(message)),
            None => mem::take(&mut self.end).get().cloned().map(Err),
        })
    }
}

/// Moves messages until the connection is over.
async fn drive(shared: Arc<Shared>, mut conduit: impl Conduit) {
    let ended: Result<(), Status> = poll_fn(|cx| {
        shared.task.register(cx.waker());
        for _ in 0..ROUNDS_MAX {
            {
                let mut state = shared.state();
                if state.end.is_some() {
                    return Poll::Ready(Ok(()));
                }
                state.outgoing.drain(..).for_each(|message| conduit.queue(&message));
            }
            if let Poll::Ready(Err(error)) = conduit.poll_write(cx) {
                debug!(%error, "a connection to a server of JSON-RPC was lost");
                return Poll::Ready(Err(lost(true)));
            }
            match ready!(conduit.poll_next(cx)) {
                Ok(Some(message)) => {
                    if let Err(status) = shared.take(&message) {
                        return Poll::Ready(Err(status));
                    }
                }
                Ok(None) => return Poll::Ready(Err(lost(true))),
                Err(error) => {
                    debug!(%error, "a connection to a server of JSON-RPC was lost");
                    return Poll::Ready(Err(lost(true)));
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    if let Err(status) = ended {
        shared.end(|()| status.clone());
    }
}

/// The messages after which other tasks have their turn.
const ROUNDS_MAX: usize = 64;
