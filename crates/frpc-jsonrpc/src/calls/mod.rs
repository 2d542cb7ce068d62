//! The calls of one peer: messages in, answers out, independent of the connection type.

mod answer;
mod batch;
mod permits;
mod running;
mod subscriptions;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::{Duration, Instant as StdInstant},
};

use frpc::{Answer, Body, CancelGuard, Drain, Endpoint, Head, MemoryHold, Method, RpcSystem, Status, codec::Format};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use slab::Slab;
use tokio::time::Instant;
use tracing::error;

use self::{
    answer::{put_failure, put_invalid, put_no_message, put_result, put_too_many, put_unknown},
    batch::BatchAnswers,
    permits::CallPermits,
    running::{AnswerDestination, CallOutcome, FinishedCall, RunningCall},
    subscriptions::{NotificationStyle, ServerSubscriptions},
};
use frpc_json::Scanner;

use crate::{
    function::{Called, Context, Function, handle, memory},
    methods::{CallTarget, MethodNames, ServiceMethod},
    outbox::MessageOutbox,
    request::{MessageError, ParsedItem, ParsedMessage, ParsedRequest},
    settings::JsonRpcSettings,
};

/// State shared by all calls of a server.
#[derive(Clone)]
pub(crate) struct JsonRpcState {
    pub(crate) settings: Arc<JsonRpcSettings>,
    pub(crate) methods: Arc<MethodNames>,
    pub(crate) endpoint: Endpoint,
    /// The limit on calls in flight, of this wire or of the server.
    pub(crate) calls_max: usize,
    /// The server's limit on the duration of a call, for calls limited neither by their callers nor by the settings of
    /// this wire.
    pub(crate) time_default: Option<Duration>,
}

/// The calls and subscriptions of one peer.
pub(crate) struct PeerCalls {
    site: JsonRpcState,
    /// Context of all calls. Its deadline is updated for each function call with a time limit.
    context: Context,
    /// The deadline of all calls, if the caller sent one.
    deadline: Option<StdInstant>,
    /// Calls in flight. Allocated for the first call that is not answered immediately.
    running: Option<FuturesUnordered<RunningCall>>,
    permits: CallPermits,
    /// The total length of the messages of calls in flight.
    running_len: usize,
    /// A reservation in the memory account of the connection.
    hold: Option<MemoryHold>,
    batches: Slab<BatchAnswers>,
    /// `None` if the connection cannot carry notifications.
    subscriptions: Option<ServerSubscriptions>,
    is_draining: bool,
}

impl PeerCalls {
    /// Creates an empty set of calls. Subscriptions require a connection on which the server can send messages unasked.
    pub(crate) fn new(site: JsonRpcState, context: Context, can_subscribe: bool, drain: Option<Drain>) -> Self {
        let subscriptions = can_subscribe.then(|| ServerSubscriptions::new(site.settings.subscriptions_max));
        Self {
            site,
            deadline: context.deadline(),
            context,
            running: None,
            permits: CallPermits::new(drain),
            running_len: 0,
            hold: None,
            batches: Slab::new(),
            subscriptions,
            is_draining: false,
        }
    }

    /// Returns `true` if a message may start this number of calls. A batch starts when there is room for all of its
    /// calls, or when no other call is running.
    pub(crate) fn has_room(&self, calls: usize) -> bool {
        self.is_idle() || !self.is_full() && self.count() + calls <= self.site.calls_max
    }

    /// Returns the number of calls in flight.
    fn count(&self) -> usize {
        self.running.as_ref().map_or(0, FuturesUnordered::len)
    }

    /// Reserves memory of the connection for received input and calls in flight, from 64 KiB on.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory limit of the connection or of the server is reached.
    #[inline]
    pub(crate) fn hold(&mut self, received_len: usize) -> Result<(), Status> {
        let len = received_len + self.running_len;
        if len < COUNTED_LEN && self.hold.is_none() { Ok(()) } else { self.hold_counted(len) }
    }

    #[cold]
    fn hold_counted(&mut self, len: usize) -> Result<(), Status> {
        if len < COUNTED_LEN {
            self.hold = None;
            return Ok(());
        }
        let endpoint = &self.site.endpoint;
        self.hold.get_or_insert_with(|| endpoint.connection_account().hold()).resize(len.next_multiple_of(COUNTED_LEN))
    }

    /// Writes an error without an id, for input that exceeds a memory limit.
    pub(crate) fn refuse_with_status(&mut self, status: &Status, outbox: &mut MessageOutbox) {
        Self::put_alone(outbox, |out| put_failure(out, "null", status));
    }

    /// Returns `true` if no further call may start.
    pub(crate) fn is_full(&self) -> bool {
        let JsonRpcState { settings, calls_max, .. } = &self.site;
        self.count() >= *calls_max || self.running_len >= settings.calls_len_max || self.permits.is_missing()
    }

    /// Returns `true` if no call is in flight. Subscriptions do not count.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.as_ref().is_none_or(FuturesUnordered::is_empty)
    }

    /// Returns `true` if there is at least one subscription.
    pub(crate) fn has_subscriptions(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|subscriptions| !subscriptions.is_empty())
    }

    /// Refuses all further requests as not executed, and ends all subscriptions.
    pub(crate) fn drain(&mut self, outbox: &mut MessageOutbox) {
        self.is_draining = true;
        if let Some(subscriptions) = &mut self.subscriptions {
            subscriptions.end(outbox);
        }
    }

    /// Drops all subscriptions without notifications, for a connection at its end.
    pub(crate) fn drop_subscriptions(&mut self) {
        if let Some(subscriptions) = &mut self.subscriptions {
            subscriptions.clear();
        }
    }

    /// Answers bytes that are not a valid message.
    pub(crate) fn refuse(&mut self, MessageError { why, code }: &MessageError, outbox: &mut MessageOutbox) {
        Self::put_alone(outbox, |out| put_no_message(out, *code, why));
    }

    /// Starts the calls of a message with the length `len`.
    pub(crate) fn start(
        &mut self,
        message: ParsedMessage<'_>,
        len: usize,
        cx: &mut TaskContext<'_>,
        outbox: &mut MessageOutbox,
    ) {
        match message {
            ParsedMessage::One(ParsedItem::Request(request)) => {
                let start = outbox.len();
                let place = |id| AnswerDestination { id, batch: None, len };
                let started = self.start_request(&request, place, cx, &mut outbox.bytes);
                if started.is_ready() && outbox.len() > start {
                    outbox.end(start);
                }
            }
            ParsedMessage::One(ParsedItem::Invalid { id, why }) => {
                Self::put_alone(outbox, |out| put_invalid(out, id, why));
            }
            ParsedMessage::One(ParsedItem::Answer) => {}
            ParsedMessage::TooMany => {
                let batch_len_max = self.site.settings.batch_len_max;
                Self::put_alone(outbox, |out| put_too_many(out, batch_len_max));
            }
            ParsedMessage::Batch(items) => self.start_batch(items, len, cx, outbox),
        }
    }

    fn put_alone(outbox: &mut MessageOutbox, put: impl FnOnce(&mut Vec<u8>)) {
        let start = outbox.len();
        put(&mut outbox.bytes);
        outbox.end(start);
    }

    fn start_batch(
        &mut self,
        items: Vec<ParsedItem<'_>>,
        len: usize,
        cx: &mut TaskContext<'_>,
        outbox: &mut MessageOutbox,
    ) {
        let JsonRpcSettings { batches_in_order, batch_answers_len_max, .. } = *self.site.settings;
        // Empty batches were refused by the reader, so this does not divide by zero.
        let share = len / items.len();
        let start = outbox.len();
        outbox.bytes.push(b'[');
        let key = self.batches.vacant_key();
        let mut holes = Vec::new();
        for item in items {
            let from = outbox.len();
            let started = match item {
                ParsedItem::Request(request) => {
                    // Fail the remaining requests without executing them: their answers would not fit.
                    if from - start > batch_answers_len_max {
                        if let Some(id) = request.id {
                            put_failure(&mut outbox.bytes, id, &batch::too_long(batch_answers_len_max));
                        }
                        Poll::Ready(())
                    } else {
                        let place = |id| AnswerDestination { id, batch: Some((key, holes.len())), len: share };
                        self.start_request(&request, place, cx, &mut outbox.bytes)
                    }
                }
                ParsedItem::Invalid { id, why } => {
                    put_invalid(&mut outbox.bytes, id, why);
                    Poll::Ready(())
                }
                ParsedItem::Answer => Poll::Ready(()),
            };
            match started {
                Poll::Ready(()) if outbox.len() > from => outbox.bytes.push(b','),
                Poll::Ready(()) => {}
                Poll::Pending => holes.push(from - start - 1),
            }
        }
        if !holes.is_empty() {
            // Move the answers to the batch, so that other answers can be written before it is complete.
            let answers = outbox.bytes.split_off(start + 1);
            outbox.bytes.truncate(start);
            self.batches.insert(BatchAnswers::new(answers, holes, batches_in_order, batch_answers_len_max));
        } else if outbox.bytes.pop() == Some(b',') {
            outbox.bytes.push(b']');
            outbox.end(start);
        }
    }

    /// Starts the call of a request. Ready if the call ends immediately, with its answer written; a notification has none.
    #[inline]
    fn start_request(
        &mut self,
        request: &ParsedRequest<'_>,
        place: impl FnOnce(Option<Box<str>>) -> AnswerDestination,
        cx: &mut TaskContext<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<()> {
        let ParsedRequest { id, method, params } = request;
        if self.is_draining {
            let status = Status::unavailable("the server closes this connection: the call was not executed");
            return Self::fail(out, *id, &status);
        }
        let Some(target) = self.site.methods.find(method) else {
            if let Some(id) = id {
                put_unknown(out, id, method);
            }
            return Poll::Ready(());
        };
        match target {
            CallTarget::Function(function) => {
                let time = self.time_of_function();
                if let Some(at) = time.and_then(|time| Instant::now().checked_add(time)) {
                    self.context.set_deadline(at.into_std());
                }
                let mut inherited = self.site.endpoint.inherited(self.context.head());
                // Only functions with a context need their own: creating one allocates.
                let of_call = function.description().takes_context().then(|| self.context.of_call());
                let context = of_call.as_ref().map_or(&self.context, |(context, _)| context);
                let called = inherited.run(|| call_function(&**function, *id, *params, context, out));
                let guard = of_call.map(|(_, guard)| guard);
                let Some(later) = called else {
                    if let Some(guard) = guard {
                        guard.disarm();
                    }
                    return Poll::Ready(());
                };
                self.add(RunningCall::of_function(later, inherited, guard, place(id.map(Into::into)), time));
                Poll::Pending
            }
            CallTarget::Layered { function, method } => {
                let (function, method) = (function.clone(), *method);
                self.start_layered(function, method, request, place, cx, out)
            }
            CallTarget::Service(service) => {
                let service = service.clone();
                self.start_service(&service, request, place, cx, out)
            }
            CallTarget::Unsubscribe => {
                let is_ended = match (&mut self.subscriptions, subscription_of(*params)) {
                    (_, None) => {
                        let status =
                            Status::invalid_argument("params: expected the id of a subscription, such as [\"1\"]");
                        return Self::fail(out, *id, &status);
                    }
                    (Some(subscriptions), Some(subscription)) => subscriptions.remove(&subscription),
                    (None, Some(_)) => false,
                };
                if let Some(id) = id {
                    put_result(out, id, if is_ended { b"true" } else { b"false" });
                }
                Poll::Ready(())
            }
        }
    }

    /// Returns the time limit of a call: the caller's deadline or the configured limit, whichever is less.
    fn time(&self) -> Option<Duration> {
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now().into_std()));
        let times = [left, self.site.settings.call_time_max];
        times.into_iter().flatten().min()
    }

    /// Returns the time limit of a function call within the limits of the server. For services, the endpoint enforces
    /// these limits.
    fn time_of_function(&self) -> Option<Duration> {
        match self.time() {
            None => self.site.time_default,
            time => self.site.endpoint.time_of(time),
        }
    }

    /// Returns the head of a call made by the endpoint, and a guard to cancel the call when dropped.
    fn head(&self) -> (Head, CancelGuard) {
        let mut head = self.context.head().clone();
        if let Some(time) = self.time() {
            head.set_timeout(time);
        }
        let guard = head.cancel_on_drop();
        (head, guard)
    }

    fn fail(out: &mut Vec<u8>, id: Option<&str>, status: &Status) -> Poll<()> {
        if let Some(id) = id {
            put_failure(out, id, status);
        }
        Poll::Ready(())
    }

    fn start_service(
        &mut self,
        service: &Arc<ServiceMethod>,
        request: &ParsedRequest<'_>,
        place: impl FnOnce(Option<Box<str>>) -> AnswerDestination,
        cx: &mut TaskContext<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<()> {
        let method = service.found.method();
        if method.kind.has_request_stream() {
            let why = format!("{method} takes a stream, which JSON-RPC does not support: call it over frisbee or gRPC");
            return Self::fail(out, request.id, &Status::unimplemented(why));
        }
        let is_stream = method.kind.has_response_stream();
        if is_stream && request.id.is_some() && self.subscriptions.is_none() {
            let why = format!("{method} answers with a stream: subscribe to it over TCP or WebSocket");
            return Self::fail(out, request.id, &Status::unimplemented(why));
        }
        let body = match service.request(request.params) {
            Ok(body) => Body::from(body),
            Err(status) => return Self::fail(out, request.id, &status),
        };
        let (endpoint, found) = (self.site.endpoint.clone(), service.found);
        let (mut head, guard) = self.head();
        if self.site.settings.strict_json {
            head.set_strict_json();
        }
        let call = Box::pin(async move {
            let answer = endpoint.call(found, Format::Json, head, body).await;
            guard.disarm();
            answer
        });
        let notices = is_stream.then(|| NotificationStyle::of(&request.method));
        self.run(call, place(request.id.map(Into::into)), notices, cx, out)
    }

    /// Starts the call of a function through the layers of the server.
    fn start_layered(
        &mut self,
        function: Arc<dyn Function>,
        method: &'static Method,
        request: &ParsedRequest<'_>,
        place: impl FnOnce(Option<Box<str>>) -> AnswerDestination,
        cx: &mut TaskContext<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<()> {
        let body = Body::from(request.params.unwrap_or_default().to_owned());
        let (endpoint, context) = (self.site.endpoint.clone(), self.context.clone());
        let (head, guard) = self.head();
        let call = Box::pin(async move {
            let handler = move |call| {
                let (function, context) = (function.clone(), context.clone());
                async move { handle(&*function, |head| context.with_head(head), call).await }
            };
            let answer = endpoint.call_with(method, RpcSystem::JsonRpc, Format::Json, head, body, handler).await;
            guard.disarm();
            answer
        });
        self.run(call, place(request.id.map(Into::into)), None, cx, out)
    }

    /// Polls a call once and keeps it if it is still pending.
    fn run(
        &mut self,
        call: BoxFuture<'static, Result<Answer, Status>>,
        place: AnswerDestination,
        notices: Option<NotificationStyle>,
        cx: &mut TaskContext<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<()> {
        let mut running = RunningCall::of_endpoint(call, place, notices);
        match running.poll_unpin(cx) {
            Poll::Ready(FinishedCall { place: AnswerDestination { id, batch, .. }, outcome }) => {
                if let Some(id) = &id {
                    self.put_outcome(out, id, batch.is_some(), outcome);
                }
                Poll::Ready(())
            }
            Poll::Pending => {
                self.add(running);
                Poll::Pending
            }
        }
    }

    fn add(&mut self, running: RunningCall) {
        self.running_len += running.len();
        self.running.get_or_insert_default().push(running);
        self.permits.resize(self.count());
    }

    /// Writes the outcome of a call as an answer. A stream becomes a subscription.
    fn put_outcome(&mut self, out: &mut Vec<u8>, id: &str, is_in_batch: bool, outcome: CallOutcome) {
        let status = match (outcome, &mut self.subscriptions) {
            (CallOutcome::Result(result), _) => return put_result(out, id, &result),
            (CallOutcome::Failed(status), _) => status,
            (CallOutcome::Stream(_), _) if is_in_batch => {
                Status::failed_precondition("a subscription cannot be part of a batch: send its request alone")
            }
            (CallOutcome::Stream((notices, messages)), Some(subscriptions)) => {
                match subscriptions.add(notices, messages) {
                    Ok(subscription) => return put_result(out, id, format!("\"{subscription}\"").as_bytes()),
                    Err(status) => status,
                }
            }
            (CallOutcome::Stream(_), None) => Status::internal("this connection does not support subscriptions"),
        };
        put_failure(out, id, &status);
    }

    /// Polls calls and subscriptions, and writes the next answer or notification. Pending if there is none.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>, outbox: &mut MessageOutbox) -> Poll<()> {
        if let Some(running) = &mut self.running
            && let Poll::Ready(Some(finished)) = running.poll_next_unpin(cx)
        {
            self.permits.resize(self.count());
            self.finish(finished, outbox);
            return Poll::Ready(());
        }
        self.permits.poll(cx, self.count());
        match &mut self.subscriptions {
            Some(subscriptions) => subscriptions.poll(cx, outbox),
            None => Poll::Pending,
        }
    }

    fn finish(&mut self, finished: FinishedCall, outbox: &mut MessageOutbox) {
        let FinishedCall { place: AnswerDestination { id, batch, len }, outcome } = finished;
        self.running_len -= len;
        let Some((key, hole)) = batch else {
            if let Some(id) = id {
                let start = outbox.len();
                self.put_outcome(&mut outbox.bytes, &id, false, outcome);
                outbox.end(start);
            }
            return;
        };
        let mut answer = Vec::new();
        if let Some(id) = id {
            self.put_outcome(&mut answer, &id, true, outcome);
            self.batches[key].bound(&id, &mut answer);
        }
        if self.batches[key].fill(hole, answer) {
            let start = outbox.len();
            self.batches.remove(key).put(&mut outbox.bytes);
            if outbox.len() > start {
                outbox.end(start);
            }
        }
    }
}

/// Calls a function. Writes its answer if the function finishes immediately, and returns its future otherwise.
#[inline]
fn call_function(
    function: &dyn Function,
    id: Option<&str>,
    params: Option<&str>,
    context: &Context,
    out: &mut Vec<u8>,
) -> Option<running::FunctionFuture> {
    let start = out.len();
    answer::begin_result(out);
    let begun = out.len();
    let called = match memory::check(params, context) {
        Ok(()) => catch_unwind(AssertUnwindSafe(|| function.call(params, context, out))),
        Err(status) => Ok(Called::Failed(status)),
    };
    let failure = match called {
        Ok(Called::Written) => match id {
            Some(id) => {
                if out.len() == begun {
                    out.extend_from_slice(answer::NULL);
                }
                answer::end(out, id);
                return None;
            }
            None => None,
        },
        Ok(Called::Later(later)) => {
            out.truncate(start);
            return Some(later);
        }
        Ok(Called::Failed(status)) => Some(status),
        Err(_) => {
            error!(function = function.description().name(), "a function panicked");
            Some(running::panicked())
        }
    };
    out.truncate(start);
    if let (Some(id), Some(status)) = (id, failure) {
        put_failure(out, id, &status);
    }
    None
}

/// Returns the id of a subscription, the only param. It is a string, or a number for clients that parsed it as one.
fn subscription_of(params: Option<&str>) -> Option<String> {
    let params = params?;
    let mut scanner = Scanner::new(params, 2);
    let close = match scanner.peek()? {
        b'[' => b']',
        _ => b'}',
    };
    if !scanner.enter(close).ok()? {
        return None;
    }
    if close == b'}' {
        scanner.name().ok()?;
    }
    Some(scanner.value().ok()?.trim_matches('"').to_owned())
}

/// The threshold for reserving memory, and the granularity of the reservation.
const COUNTED_LEN: usize = 64 << 10;
