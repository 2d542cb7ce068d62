//! A connection on which calls wait for their answers, and the task that moves its messages.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::poll_fn,
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use frpc::{CallError, CloseReason, Method, Status, Streaming, client::Deadline};
use futures_core::Stream;
use futures_util::task::AtomicWaker;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::Instant,
};
use tracing::{debug, info};

use super::answer::{Answer, members, request};
use crate::{
    failure::read_status,
    json::{DEPTH_MAX, Scanner},
};

/// A connection, as its task moves messages over it.
pub(super) trait Conduit: Send + 'static {
    /// Adds a message to those that are written next.
    fn queue(&mut self, message: &[u8]);

    /// Returns the bytes that are not written.
    fn queued(&self) -> usize;

    /// Polls until all is written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Polls for a message of the server. `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>>;

    /// Returns why the server refused a message of this side, if it ended the connection for that reason.
    fn refusal(&self) -> Option<Status> {
        None
    }
}

/// A connection with calls. Dropping it ends the connection.
pub(super) struct Link(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Of the task.
    task: AtomicWaker,
    /// Bytes that may be added to the messages that the task has not taken.
    room: Arc<Semaphore>,
    message_len_max: u32,
}

#[derive(Default)]
struct State {
    next_id: u64,
    waiting: HashMap<u64, Waiting>,
    /// The number of those that were given up.
    given_up: usize,
    subscriptions: HashMap<String, Subscription>,
    outgoing: VecDeque<Outgoing>,
    /// The time since when calls wait and nothing came.
    silent_since: Option<Instant>,
    /// True once a call has timed out on a connection that had been silent for long.
    is_silent: bool,
    /// The number of messages that the server has sent.
    heard: u64,
    /// Set once the connection is over, to the failure of the calls on it.
    end: Option<Status>,
}

/// A message that the task has not taken.
struct Outgoing {
    /// That of a call.
    id: Option<u64>,
    text: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

/// A call that waits for its answer.
enum Waiting {
    One(oneshot::Sender<Result<Bytes, Status>>),
    Many(oneshot::Sender<Result<Streaming<Bytes>, Status>>),
    /// Its caller has given up. A stream that it is answered with is ended.
    GivenUp {
        is_stream: bool,
    },
}

/// The reason why a connection cannot go on.
enum Broken {
    /// The server breaks the rules: the status of all calls.
    Server(Status),
    /// The server refused a message of this side without saying which.
    Refused(Status),
    /// The connection failed, or brought what is no message.
    Io(io::Error),
    Lost,
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
    /// Begins to move messages, of which those of this side have no more than this number of bytes.
    pub(super) fn new(conduit: impl Conduit, message_len_max: u32) -> Self {
        let room = Arc::new(Semaphore::new(QUEUE_LEN_MAX as usize));
        let shared = Arc::new(Shared { state: Mutex::default(), task: AtomicWaker::new(), room, message_len_max });
        tokio::spawn(drive(shared.clone(), conduit));
        Self(shared)
    }

    /// Returns whether calls are made on another connection.
    pub(super) fn is_over(&self) -> bool {
        let state = self.0.state();
        state.end.is_some() || state.is_silent || state.given_up >= GIVEN_UP_MAX
    }

    /// Returns the number of messages that the server has sent.
    pub(super) fn heard(&self) -> u64 {
        self.0.state().heard
    }

    /// Makes a call that is answered with one message.
    pub(super) async fn unary(&self, method: &Method, message: &[u8], deadline: Deadline) -> Result<Bytes, Status> {
        self.call(method, message, deadline, Waiting::One).await
    }

    /// Makes a call that is answered with a stream.
    pub(super) async fn subscribe(
        &self,
        method: &Method,
        message: &[u8],
        deadline: Deadline,
    ) -> Result<Streaming<Bytes>, Status> {
        self.call(method, message, deadline, Waiting::Many).await
    }

    async fn call<T>(
        &self,
        method: &Method,
        message: &[u8],
        deadline: Deadline,
        waiting: impl FnOnce(oneshot::Sender<Result<T, Status>>) -> Waiting,
    ) -> Result<T, Status> {
        let shared = &self.0;
        let id = shared.next_id();
        let text = request(id, method, message)?;
        let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
        if len > shared.message_len_max {
            let limit = shared.message_len_max;
            return Err(CallError::MessageTooLarge { len: text.len(), limit }.into());
        }
        let acquiring = shared.room.clone().acquire_many_owned(len.min(QUEUE_LEN_MAX));
        let room = deadline.bound_unsent(async { acquiring.await.map_err(|_| lost(false)) }).await?;
        let (sender, answer) = oneshot::channel();
        let entry = shared.send(Outgoing { id: Some(id), text, _room: Some(room) }, id, waiting(sender))?;
        match deadline.bound(async { Ok(answer.await) }).await {
            Ok(outcome) => outcome.unwrap_or_else(|_| Err(lost(true))),
            Err(_) => Err(entry.late(deadline)),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.0.end(|| lost(true));
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

    fn next_id(&self) -> u64 {
        let mut state = self.state();
        state.next_id += 1;
        state.next_id
    }

    fn send(self: &Arc<Self>, message: Outgoing, id: u64, waiting: Waiting) -> Result<Entry, Status> {
        let mut state = self.state();
        if state.end.is_some() {
            return Err(lost(false));
        }
        state.outgoing.push_back(message);
        state.waiting.insert(id, waiting);
        state.silent_since.get_or_insert_with(Instant::now);
        drop(state);
        self.task.wake();
        Ok(Entry { shared: self.clone(), of: Of::Call(id) })
    }

    /// Ends all calls. Nothing happens if they are ended. Those that the task has not taken may be made again.
    fn end(&self, why: impl Fn() -> Status) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        state.end = Some(why());
        self.room.close();
        for message in mem::take(&mut state.outgoing) {
            if let Some(waiting) = message.id.and_then(|id| state.waiting.remove(&id)) {
                waiting.fail(lost(false));
            }
        }
        for (_, waiting) in state.waiting.drain() {
            waiting.fail(why());
        }
        for (_, subscription) in state.subscriptions.drain() {
            let _ = subscription.end.set(why());
        }
    }

    /// Ends all calls, one of which the server has refused. If there is only one, it is that one.
    fn end_refused(&self, status: Status) {
        let mut state = self.state();
        let unsent: HashSet<u64> = state.outgoing.iter().filter_map(|message| message.id).collect();
        let mut sent = state.waiting.keys().filter(|id| !unsent.contains(id)).copied();
        let refused = match (sent.next(), sent.next()) {
            (Some(id), None) => state.waiting.remove(&id),
            _ => None,
        };
        drop(state);
        let why = format!("the server refused a request without saying which: {}", status.message());
        let reason = CloseReason::Io(Arc::new(io::Error::other(why)));
        self.end(|| CallError::ConnectionLost { reason: reason.clone(), may_have_executed: true }.into());
        if let Some(refused) = refused {
            refused.fail(status);
        }
    }

    /// Takes a message of the server. Returns why the connection cannot go on, if it cannot.
    fn take(self: &Arc<Self>, message: &Bytes) -> Result<(), Broken> {
        {
            let mut state = self.state();
            state.silent_since = state.silent_since.map(|_| Instant::now());
            state.heard += 1;
        }
        let text = str::from_utf8(message).map_err(|error| broken(&error))?;
        let mut scanner = Scanner::new(text, DEPTH_MAX);
        if scanner.peek() != Some(b'[') {
            return self.take_one(message, text);
        }
        let mut is_more = scanner.enter(b']').map_err(|fault| broken(&fault))?;
        while is_more {
            let value = scanner.value().map_err(|fault| broken(&fault))?;
            self.take_one(message, value)?;
            is_more = scanner.is_more(b']').map_err(|fault| broken(&fault))?;
        }
        Ok(())
    }

    fn take_one(self: &Arc<Self>, message: &Bytes, text: &str) -> Result<(), Broken> {
        let answer = Answer::read(text).map_err(|fault| broken(&fault))?;
        let id = match (answer.id, answer.error) {
            (Some("null") | None, Some(error)) => return Err(Broken::Refused(read_status(error))),
            (Some(id), _) => id,
            (None, None) => {
                if let Some(params) = answer.params {
                    self.notify(message, params);
                }
                return Ok(());
            }
        };
        // An id of another form is none that this side has given.
        let Some(waiting) = id.parse().ok().and_then(|id| self.answered(id)) else { return Ok(()) };
        match (waiting, answer.outcome()) {
            (waiting, Err(status)) => waiting.fail(status),
            (Waiting::One(sender), Ok(result)) => drop(sender.send(Ok(message.slice_ref(result.as_bytes())))),
            (Waiting::Many(sender), Ok(result)) => drop(sender.send(Ok(self.subscribed(result)))),
            (Waiting::GivenUp { is_stream: true }, Ok(result)) => drop(self.subscribed(result)),
            (Waiting::GivenUp { is_stream: false }, Ok(_)) => {}
        }
        Ok(())
    }

    /// Takes the call that was answered out of those that wait.
    fn answered(&self, id: u64) -> Option<Waiting> {
        let mut state = self.state();
        let waiting = state.waiting.remove(&id)?;
        state.given_up -= usize::from(matches!(waiting, Waiting::GivenUp { .. }));
        if state.waiting.is_empty() {
            state.silent_since = None;
        }
        Some(waiting)
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
                    state.outgoing.push_back(unsubscribe(id));
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
fn unsubscribe(id: &str) -> Outgoing {
    let text = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"rpc.unsubscribe\",\"params\":[{id}]}}").into_bytes();
    Outgoing { id: None, text, _room: None }
}

impl Waiting {
    fn fail(self, status: Status) {
        match self {
            Self::One(sender) => drop(sender.send(Err(status))),
            Self::Many(sender) => drop(sender.send(Err(status))),
            Self::GivenUp { .. } => {}
        }
    }
}

impl Entry {
    /// Returns the status of a call that has no time left, and looks whether the server is still there.
    fn late(self, deadline: Deadline) -> Status {
        let Of::Call(id) = &self.of else { return deadline.passed() };
        let mut state = self.shared.state();
        if state.outgoing.iter().any(|message| message.id == Some(*id)) {
            return deadline.passed_unsent();
        }
        if let Some(silence) = state.silent_since.map(|since| since.elapsed()).filter(|silence| *silence >= SILENCE_MAX)
        {
            info!(?silence, "a server of JSON-RPC says nothing while calls time out: others go over a new connection");
            state.is_silent = true;
        }
        deadline.passed()
    }
}

impl State {
    /// Gives up a call that has no answer. One that the task has not taken is not sent.
    fn give_up(&mut self, id: u64) {
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        if let Some(index) = self.outgoing.iter().position(|message| message.id == Some(id)) {
            self.outgoing.remove(index);
            self.waiting.remove(&id);
            return;
        }
        let is_stream = matches!(waiting, Waiting::Many(_));
        *waiting = Waiting::GivenUp { is_stream };
        self.given_up += 1;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        match &self.of {
            Of::Call(id) => state.give_up(*id),
            Of::Subscription(id) => {
                if state.subscriptions.remove(id).is_some() {
                    state.outgoing.push_back(unsubscribe(id));
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
    let ended: Result<(), Broken> = poll_fn(|cx| {
        shared.task.register(cx.waker());
        for _ in 0..ROUNDS_MAX {
            let mut has_room = true;
            while has_room {
                let mut state = shared.state();
                if state.end.is_some() {
                    return Poll::Ready(Ok(()));
                }
                has_room = false;
                while conduit.queued() < CONDUIT_LEN_MAX {
                    let Some(message) = state.outgoing.pop_front() else { break };
                    conduit.queue(&message.text);
                    has_room = true;
                }
                drop(state);
                match conduit.poll_write(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => {
                        debug!(%error, "a connection to a server of JSON-RPC was lost");
                        // It may have said why before.
                        return poll_last_words(&shared, &mut conduit, cx);
                    }
                    Poll::Pending => break,
                }
            }
            match ready!(conduit.poll_next(cx)) {
                Ok(Some(message)) => {
                    if let Err(broken) = shared.take(&message) {
                        return Poll::Ready(Err(broken));
                    }
                }
                Ok(None) => return Poll::Ready(Err(conduit.refusal().map_or(Broken::Lost, Broken::Refused))),
                Err(error) => return Poll::Ready(Err(Broken::Io(error))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    match ended {
        Ok(()) => {}
        Err(Broken::Lost) => shared.end(|| lost(true)),
        Err(Broken::Server(status)) => shared.end(|| status.clone()),
        Err(Broken::Refused(status)) => shared.end_refused(status),
        Err(Broken::Io(error)) => {
            debug!(%error, "a connection to a server of JSON-RPC was lost");
            let reason = CloseReason::Io(Arc::new(error));
            shared.end(|| CallError::ConnectionLost { reason: reason.clone(), may_have_executed: true }.into());
        }
    }
}

/// Takes the messages that have arrived on a connection that cannot be written any more.
fn poll_last_words(shared: &Arc<Shared>, conduit: &mut impl Conduit, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
    while let Poll::Ready(Ok(Some(message))) = conduit.poll_next(cx) {
        if let Err(broken) = shared.take(&message) {
            return Poll::Ready(Err(broken));
        }
    }
    Poll::Ready(Err(conduit.refusal().map_or(Broken::Lost, Broken::Refused)))
}

fn broken(why: &dyn std::fmt::Display) -> Broken {
    Broken::Server(Status::internal(format!("the server sent what is not JSON-RPC: {why}")))
}

/// The messages after which other tasks have their turn.
const ROUNDS_MAX: usize = 64;

/// The bytes of messages that may wait for their connection. A call that has no room waits for it as long as it has time.
const QUEUE_LEN_MAX: u32 = 1 << 20;

/// The bytes that a connection is given to write at a time.
const CONDUIT_LEN_MAX: usize = 64 << 10;

/// The time for which a server may say nothing while calls wait. Once one of them has timed out after that, others go over a new
/// connection.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The calls that were given up and not answered from which on others go over a new connection.
const GIVEN_UP_MAX: usize = 4096;

#[cfg(test)]
mod tests;
