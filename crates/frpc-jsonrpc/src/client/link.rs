//! A client connection: its calls in flight, its subscriptions, and the task that moves its messages.

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    future::poll_fn,
    io, mem,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use frpc::{CallError, CloseReason, Method, Status, Streaming, client::Deadline, shown};
use frpc_json::{DEPTH_MAX, Scanner};
use futures_core::Stream;
use futures_util::task::AtomicWaker;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::Instant,
};
use tracing::{debug, info};

use super::answer::{ServerMessage, members, request};
use crate::failure::read_status;

/// A connection that carries whole messages.
pub(super) trait MessageSocket: Send + 'static {
    /// Queues a message for writing.
    fn queue(&mut self, message: &[u8]);

    /// Returns the number of queued bytes.
    fn queued(&self) -> usize;

    /// Writes queued messages. Ready when all are written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Polls for a message from the server, or `None` at the end of the connection.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>>;

    /// Returns the reason if the server closed the connection because of one of our messages.
    fn refusal(&self) -> Option<Status> {
        None
    }
}

/// A client connection. Dropping it closes the connection and ends its calls.
pub(super) struct JsonRpcLink(Arc<SharedLink>);

struct SharedLink {
    state: Mutex<SharedLinkState>,
    /// Wakes the task of the connection.
    task: AtomicWaker,
    /// Permits for the bytes in `SharedLinkState::outgoing`.
    room: Arc<Semaphore>,
    /// Notified at the end of the connection.
    ended: Notify,
    message_len_max: u32,
}

#[derive(Default)]
struct SharedLinkState {
    next_id: u64,
    waiting: HashMap<u64, WaitingCall>,
    /// The number of [`WaitingCall::GivenUp`] entries.
    given_up: usize,
    subscriptions: HashMap<String, NotificationSender>,
    outgoing: VecDeque<QueuedRequest>,
    /// The start of the current silence: the last message of the server, or the first waiting call after it. `None` if
    /// no call is waiting.
    silent_since: Option<Instant>,
    /// `true` once a call has timed out on a silent connection.
    is_silent: bool,
    /// The number of messages that the server has sent.
    heard: u64,
    /// The status of the next unsent call, if the server speaks another protocol. Only one call reports it; later calls
    /// connect again.
    mismatch: Option<Status>,
    /// The status of all calls, once the connection has ended.
    end: Option<Status>,
}

/// A queued message.
struct QueuedRequest {
    /// The id of the call, or `None` for a notification.
    id: Option<u64>,
    text: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

/// A call waiting for its answer.
enum WaitingCall {
    One(oneshot::Sender<Result<Bytes, Status>>),
    Many(oneshot::Sender<Result<Streaming<Bytes>, Status>>),
    /// The caller is gone. If the answer starts a stream, the stream is ended.
    GivenUp {
        is_stream: bool,
    },
}

/// The reason why a connection cannot continue.
enum LinkFailure {
    /// The server violated the protocol. All calls end with this status.
    Server(Status),
    /// The server refused one of our messages without naming it.
    Refused(Status),
    /// The connection failed.
    Io(io::Error),
    Lost,
}

struct NotificationSender {
    messages: mpsc::Sender<Bytes>,
    /// The number of bytes of undelivered messages.
    unread_len: Arc<AtomicUsize>,
    end: Arc<OnceLock<Status>>,
}

/// The receiving side of a subscription. Dropping it ends the subscription.
struct NotificationReceiver {
    /// Dropped before the entry, which then finds it closed.
    messages: mpsc::Receiver<Bytes>,
    unread_len: Arc<AtomicUsize>,
    /// The error after the last message, if any.
    end: Arc<OnceLock<Status>>,
    _entry: RegistrationGuard,
}

/// The registration of a call or subscription, removed on drop.
struct RegistrationGuard {
    shared: Arc<SharedLink>,
    of: RegistrationKey,
}

enum RegistrationKey {
    Call(u64),
    Subscription(String),
}

impl JsonRpcLink {
    /// Spawns the task of a connection. Requests are limited to `message_len_max` bytes.
    pub(super) fn new(conduit: impl MessageSocket, message_len_max: u32) -> Self {
        let room = Arc::new(Semaphore::new(QUEUE_LEN_MAX as usize));
        let (task, ended) = (AtomicWaker::new(), Notify::new());
        let shared = Arc::new(SharedLink { state: Mutex::default(), task, room, ended, message_len_max });
        tokio::spawn(drive(LinkTask(shared.clone()), conduit));
        Self(shared)
    }

    /// Returns `true` if new calls should use another connection.
    pub(super) fn is_over(&self) -> bool {
        let state = self.0.state();
        state.end.is_some() || state.is_silent || state.given_up >= GIVEN_UP_MAX
    }

    /// Waits for the end of the connection.
    pub(super) async fn ended(&self) {
        let mut ended = pin!(self.0.ended.notified());
        ended.as_mut().enable();
        if self.0.state().end.is_none() {
            ended.await;
        }
    }

    /// Returns the status of a call without an attempt to send it, if the server was just found to speak another protocol.
    pub(super) fn take_mismatch(&self) -> Option<Status> {
        self.0.state().mismatch.take()
    }

    /// Returns the number of messages that the server has sent.
    pub(super) fn heard(&self) -> u64 {
        self.0.state().heard
    }

    /// Makes a call with a single response.
    pub(super) async fn unary(&self, method: &Method, message: &[u8], deadline: Deadline) -> Result<Bytes, Status> {
        self.call(method, message, deadline, WaitingCall::One).await
    }

    /// Makes a call with a response stream.
    pub(super) async fn subscribe(
        &self,
        method: &Method,
        message: &[u8],
        deadline: Deadline,
    ) -> Result<Streaming<Bytes>, Status> {
        self.call(method, message, deadline, WaitingCall::Many).await
    }

    async fn call<T>(
        &self,
        method: &Method,
        message: &[u8],
        deadline: Deadline,
        waiting: impl FnOnce(oneshot::Sender<Result<T, Status>>) -> WaitingCall,
    ) -> Result<T, Status> {
        let shared = &self.0;
        let id = shared.next_id();
        let text = request(id, method, message)?;
        let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
        if len > shared.message_len_max {
            let limit = shared.message_len_max;
            return Err(CallError::MessageTooLarge { len: text.len(), limit }.into());
        }
        // Wait for room before registering the call, so that a call without room has no entry.
        let acquiring = shared.room.clone().acquire_many_owned(len.min(QUEUE_LEN_MAX));
        let room = deadline.bound_unsent(async { acquiring.await.map_err(|_| shared.state().unsent()) }).await;
        let room = room.inspect_err(|_| shared.state().leave_if_silent())?;
        let (sender, answer) = oneshot::channel();
        let entry = shared.send(QueuedRequest { id: Some(id), text, _room: Some(room) }, id, waiting(sender))?;
        match deadline.bound(async { Ok(answer.await) }).await {
            Ok(outcome) => outcome.unwrap_or_else(|_| Err(lost(true))),
            Err(_) => Err(entry.timeout_status(deadline)),
        }
    }
}

impl Drop for JsonRpcLink {
    fn drop(&mut self) {
        self.0.end(|| lost(true));
        self.0.task.wake();
    }
}

/// Returns the status of a call on a lost connection.
fn lost(may_have_executed: bool) -> Status {
    CallError::ConnectionLost { reason: CloseReason::Peer, may_have_executed }.into()
}

impl SharedLink {
    fn state(&self) -> MutexGuard<'_, SharedLinkState> {
        // No code panics while the state is inconsistent, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_id(&self) -> u64 {
        let mut state = self.state();
        state.next_id += 1;
        state.next_id
    }

    fn send(
        self: &Arc<Self>,
        message: QueuedRequest,
        id: u64,
        waiting: WaitingCall,
    ) -> Result<RegistrationGuard, Status> {
        let mut state = self.state();
        if state.end.is_some() {
            return Err(state.unsent());
        }
        state.outgoing.push_back(message);
        state.waiting.insert(id, waiting);
        state.silent_since.get_or_insert_with(Instant::now);
        drop(state);
        self.task.wake();
        Ok(RegistrationGuard { shared: self.clone(), of: RegistrationKey::Call(id) })
    }

    /// Ends all calls and subscriptions. Has no effect on a connection already ended. Queued calls fail as not
    /// executed, so they may be retried.
    fn end(&self, why: impl Fn() -> Status) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        state.end = Some(why());
        self.ended.notify_waiters();
        self.room.close();
        for message in mem::take(&mut state.outgoing) {
            if let Some(waiting) = message.id.and_then(|id| state.waiting.remove(&id)) {
                waiting.fail(state.unsent());
            }
        }
        for (_, waiting) in state.waiting.drain() {
            waiting.fail(why());
        }
        for (_, subscription) in state.subscriptions.drain() {
            let _ = subscription.end.set(why());
        }
    }

    /// Ends all calls after the server refused one of them without naming it. If only one was sent, it receives the
    /// refusal.
    fn end_refused(&self, status: Status) {
        let mut state = self.state();
        let unsent: HashSet<u64> = state.outgoing.iter().filter_map(|message| message.id).collect();
        let mut sent = state.waiting.keys().filter(|id| !unsent.contains(id)).copied();
        let refused = match (sent.next(), sent.next()) {
            (Some(id), None) => state.waiting.remove(&id),
            _ => None,
        };
        drop(state);
        let why = format!("the server refused a request without naming it: {}", shown(status.message()));
        let reason = CloseReason::Io(Arc::new(io::Error::other(why)));
        self.end(|| CallError::ConnectionLost { reason: reason.clone(), may_have_executed: true }.into());
        if let Some(refused) = refused {
            refused.fail(status);
        }
    }

    /// Handles a message from the server. Returns an error if the connection cannot continue.
    fn handle_message(self: &Arc<Self>, message: &Bytes) -> Result<(), LinkFailure> {
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

    fn take_one(self: &Arc<Self>, message: &Bytes, text: &str) -> Result<(), LinkFailure> {
        let answer = ServerMessage::read(text).map_err(|fault| broken(&fault))?;
        if let Some(status) = answer.refusal() {
            return Err(LinkFailure::Refused(status));
        }
        if !answer.is_answer() {
            if let (None, Some(params)) = (answer.id, answer.params) {
                self.notify(params);
            }
            return Ok(());
        }
        let last = self.state().next_id;
        let id = answer.call_id(last).map_err(|fault| broken(&fault))?;
        // Ignore a second answer.
        let Some(waiting) = self.remove_answered(id) else { return Ok(()) };
        match (waiting, answer.outcome()) {
            (waiting, Err(status)) => waiting.fail(status),
            (WaitingCall::One(sender), Ok(result)) => drop(sender.send(Ok(message.slice_ref(result.as_bytes())))),
            (WaitingCall::Many(sender), Ok(result)) => {
                let subscribed = self.subscribed(result);
                let failure = subscribed.as_ref().err().cloned();
                let _ = sender.send(subscribed);
                return failure.map_or(Ok(()), |status| Err(LinkFailure::Server(status)));
            }
            (WaitingCall::GivenUp { is_stream: true }, Ok(result)) => {
                drop(self.subscribed(result).map_err(LinkFailure::Server)?);
            }
            (WaitingCall::GivenUp { is_stream: false }, Ok(_)) => {}
        }
        Ok(())
    }

    /// Removes an answered call.
    fn remove_answered(&self, id: u64) -> Option<WaitingCall> {
        let mut state = self.state();
        let waiting = state.waiting.remove(&id)?;
        state.given_up -= usize::from(matches!(waiting, WaitingCall::GivenUp { .. }));
        if state.waiting.is_empty() {
            state.silent_since = None;
        }
        Some(waiting)
    }

    fn subscribed(self: &Arc<Self>, id: &str) -> Result<Streaming<Bytes>, Status> {
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let (unread_len, end) = (Arc::<AtomicUsize>::default(), Arc::<OnceLock<Status>>::default());
        let sender = NotificationSender { messages: sender, unread_len: unread_len.clone(), end: end.clone() };
        match self.state().subscriptions.entry(id.to_owned()) {
            Entry::Vacant(entry) => drop(entry.insert(sender)),
            // The messages of both would be mixed up.
            Entry::Occupied(_) => {
                return Err(invalid(&format_args!("two streams have the subscription {}", shown(id))));
            }
        }
        let entry = RegistrationGuard { shared: self.clone(), of: RegistrationKey::Subscription(id.to_owned()) };
        Ok(Streaming::new(NotificationReceiver { messages, unread_len, end, _entry: entry }))
    }

    /// Passes a notification to its subscription.
    fn notify(&self, params: &str) {
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
            (Some(result), None) if subscription.push(result) => return,
            (Some(_), None) => {
                // This runs on the task of the connection, so it needs no wake-up.
                state.outgoing.push_back(unsubscribe(id));
                Some(Status::resource_exhausted(format!(
                    "the reader of the stream is too slow: {MESSAGES_MAX} messages or {MESSAGES_LEN_MAX} bytes are waiting"
                )))
            }
            (None, None) if is_end => None,
            (None, None) => return,
        };
        if let (Some(subscription), Some(status)) = (state.subscriptions.remove(id), failure) {
            let _ = subscription.end.set(status);
        }
    }
}

/// The maximum number of undelivered messages of a stream. A full stream is ended, because waiting for its reader would
/// block all other calls on the connection.
const MESSAGES_MAX: usize = 1024;

/// The number of bytes of undelivered messages at which a stream is full. The last message may exceed it, so that a
/// message of any length fits.
const MESSAGES_LEN_MAX: usize = 16 << 20;

/// Returns the notification for ending a subscription.
fn unsubscribe(id: &str) -> QueuedRequest {
    let text = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"rpc.unsubscribe\",\"params\":[{id}]}}").into_bytes();
    QueuedRequest { id: None, text, _room: None }
}

impl NotificationSender {
    /// Queues a message. Returns `false` if the stream is full. Without a reader, whose `Drop` ends the subscription, the
    /// message is dropped.
    fn push(&self, result: &str) -> bool {
        if self.unread_len.load(Relaxed) >= MESSAGES_LEN_MAX {
            return false;
        }
        // Count before sending, because the reader may take the message immediately.
        self.unread_len.fetch_add(result.len(), Relaxed);
        // Copied: a slice would keep the whole buffer of the connection in memory.
        let sent = self.messages.try_send(Bytes::copy_from_slice(result.as_bytes()));
        !matches!(sent, Err(mpsc::error::TrySendError::Full(_)))
    }
}

impl WaitingCall {
    fn fail(self, status: Status) {
        match self {
            Self::One(sender) => drop(sender.send(Err(status))),
            Self::Many(sender) => drop(sender.send(Err(status))),
            Self::GivenUp { .. } => {}
        }
    }
}

impl RegistrationGuard {
    /// Returns the status of a call after its deadline.
    fn timeout_status(self, deadline: Deadline) -> Status {
        let RegistrationKey::Call(id) = &self.of else { return deadline.passed() };
        let mut state = self.shared.state();
        state.leave_if_silent();
        let is_unsent = state.outgoing.iter().any(|message| message.id == Some(*id));
        if is_unsent { deadline.passed_unsent() } else { deadline.passed() }
    }
}

impl SharedLinkState {
    /// Marks a silent connection as unusable, after a call has timed out. An unsent call counts too: the peer may have
    /// stopped reading.
    fn leave_if_silent(&mut self) {
        if let Some(silence) = self.silent_since.map(|since| since.elapsed()).filter(|silence| *silence >= SILENCE_MAX)
        {
            info!(?silence, "JSON-RPC server is silent while calls time out; later calls use a new connection");
            self.is_silent = true;
        }
    }

    /// Returns the status of a call that was not sent before the connection ended. It is final if the server speaks
    /// another protocol.
    fn unsent(&mut self) -> Status {
        self.mismatch.take().unwrap_or_else(|| lost(false))
    }

    /// Gives up a call. It is never sent if it is still queued.
    fn give_up(&mut self, id: u64) {
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        if let Some(index) = self.outgoing.iter().position(|message| message.id == Some(id)) {
            self.outgoing.remove(index);
            self.waiting.remove(&id);
            return;
        }
        let is_stream = matches!(waiting, WaitingCall::Many(_));
        *waiting = WaitingCall::GivenUp { is_stream };
        self.given_up += 1;
    }
}

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        match &self.of {
            RegistrationKey::Call(id) => state.give_up(*id),
            RegistrationKey::Subscription(id) => {
                // After its end, the server may have given the id to another stream. Only this receiver is closed.
                if state.subscriptions.get(id).is_some_and(|subscription| subscription.messages.is_closed()) {
                    state.subscriptions.remove(id);
                    // It needs no permit: there is at most one per subscription.
                    state.outgoing.push_back(unsubscribe(id));
                    drop(state);
                    self.shared.task.wake();
                }
            }
        }
    }
}

impl Stream for NotificationReceiver {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.messages.poll_recv(cx));
        Poll::Ready(match next {
            Some(message) => {
                self.unread_len.fetch_sub(message.len(), Relaxed);
                Some(Ok(message))
            }
            None => mem::take(&mut self.end).get().cloned().map(Err),
        })
    }
}

/// The task of a connection. Also ends the calls if the runtime drops it.
struct LinkTask(Arc<SharedLink>);

impl Drop for LinkTask {
    fn drop(&mut self) {
        let reason = CloseReason::Io(Arc::new(io::Error::other("the runtime of the connection has ended")));
        self.0.end(|| CallError::ConnectionLost { reason: reason.clone(), may_have_executed: true }.into());
    }
}

/// Moves messages until the connection ends.
async fn drive(task: LinkTask, mut conduit: impl MessageSocket) {
    let shared = &task.0;
    let ended: Result<(), LinkFailure> = poll_fn(|cx| {
        // Register before reading the state, so that no wake-up is lost.
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
                        debug!(%error, "connection to a JSON-RPC server lost");
                        // The server may have sent the reason before closing.
                        return poll_last_messages(shared, &mut conduit, cx);
                    }
                    Poll::Pending => break,
                }
            }
            match ready!(conduit.poll_next(cx)) {
                Ok(Some(message)) => {
                    if let Err(broken) = shared.handle_message(&message) {
                        return Poll::Ready(Err(broken));
                    }
                }
                Ok(None) => return Poll::Ready(Err(conduit.refusal().map_or(LinkFailure::Lost, LinkFailure::Refused))),
                Err(error) => return Poll::Ready(Err(LinkFailure::Io(error))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    match ended {
        Ok(()) => {}
        Err(LinkFailure::Lost) => shared.end(|| lost(true)),
        Err(LinkFailure::Server(status)) => shared.end(|| status.clone()),
        Err(LinkFailure::Refused(status)) => shared.end_refused(status),
        Err(LinkFailure::Io(error)) => {
            debug!(%error, "connection to a JSON-RPC server lost");
            // A server that has sent a message does speak JSON-RPC.
            let is_foreign = error.kind() == io::ErrorKind::InvalidData && shared.state().heard == 0;
            let reason = CloseReason::Io(Arc::new(error));
            let lost =
                |may_have_executed| CallError::ConnectionLost { reason: reason.clone(), may_have_executed }.into();
            if is_foreign {
                shared.state().mismatch = Some(lost(false));
            }
            shared.end(|| lost(true));
        }
    }
}

/// Handles messages received before a write error. They may contain the reason for it.
fn poll_last_messages(
    shared: &Arc<SharedLink>,
    conduit: &mut impl MessageSocket,
    cx: &mut Context<'_>,
) -> Poll<Result<(), LinkFailure>> {
    while let Poll::Ready(Ok(Some(message))) = conduit.poll_next(cx) {
        if let Err(broken) = shared.handle_message(&message) {
            return Poll::Ready(Err(broken));
        }
    }
    Poll::Ready(Err(conduit.refusal().map_or(LinkFailure::Lost, LinkFailure::Refused)))
}

fn broken(why: &dyn std::fmt::Display) -> LinkFailure {
    LinkFailure::Server(invalid(why))
}

fn invalid(why: &dyn std::fmt::Display) -> Status {
    Status::internal(format!("the server sent an invalid JSON-RPC message: {why}"))
}

/// The maximum number of messages before yielding to other tasks.
const ROUNDS_MAX: usize = 64;

/// The maximum length of queued requests. A call without room waits until its deadline.
const QUEUE_LEN_MAX: u32 = 1 << 20;

/// The maximum length of messages handed to the connection at a time.
const CONDUIT_LEN_MAX: usize = 64 << 10;

/// The minimum silence of the server for a call timeout to move later calls to a new connection.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The number of given-up calls without an answer at which new calls move to a new connection.
const GIVEN_UP_MAX: usize = 4096;

#[cfg(test)]
mod tests;
