//! The services of one side, and the dispatch of calls to them.

use std::{
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::Either;
use pin_project_lite::pin_project;
use tracing::error;

use super::{
    boxed::{BoxFuture, BoxService},
    ending::EndSignal,
    handle::Service,
    layer::{Layer, LayerStack},
    set::ServiceSet,
    settings::{CallSettings, CompressionSettings, MessageSettings},
    table::{Collision, MethodEntry, MethodPosition, MethodTable},
};
use crate::{
    call::{
        account::{MemoryAccount, MemoryHold},
        context::{CallScope, InScope},
        deadline::{HandlerTime, within},
        exchange::{Answer, Body, Call, HELD_LEN},
        measure::{CallArrival, CallMeasure, MeasuredCall, OwnClock, measured_requests},
        meter::CallMeter,
        method::Method,
        packed::{BatchSource, MessagePrefix, PollNext},
        recorder::CallNotes,
        status::{Code, Status},
        streaming::Streaming,
        system::RpcSystem,
    },
    metrics,
};

/// Services, with a fallback router for all other packets and streams. Implements [`frisbee::Router`], so it can serve
/// any frisbee connection.
///
/// ```
/// # use frpc::generated::{Answer, Call, Method, Service, Status};
/// # struct Echo;
/// # impl Service for Echo {
/// #     const NAME: &'static str = "Echo";
/// #     const METHODS: &'static [Method] = &[];
/// #     async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> { call.unknown() }
/// # }
/// use frisbee::{Operation, Packet, HandlerTable};
/// use frpc::{Services, Unimplemented};
///
/// const NEWS: Operation = Operation::new(1000).unwrap();
///
/// let packets = HandlerTable::over(Unimplemented).on(NEWS, async |news: Packet| println!("{:?}", news.content));
/// let services = Services::new().add_service(Echo).over(packets);
/// let server = frisbee::Server::builder(services);
/// # let _ = server;
/// ```
///
/// Small answers are written straight to the connection. The outcome of [`route`](frisbee::Router::route) is then
/// [`Outcome::Nothing`](frisbee::Outcome::Nothing), so code around calls must be a [`Layer`](crate::Layer), not a
/// router around this one.
///
/// Use [`add_optional_service`](Self::add_optional_service) for a service enabled by a flag, and
/// [`add_services`](Self::add_services) for a list of services of different types.
#[derive(Clone, Debug)]
pub struct Services<S = (), R = Unimplemented> {
    services: S,
    pub(crate) fallback: R,
    pub(crate) common: Common,
}

/// The part of [`Services`] that does not depend on their types.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(super) table: MethodTable,
    pub(super) layers: LayerStack,
    pub(crate) calls: CallSettings,
    pub(crate) messages: MessageSettings,
    pub(crate) compression: CompressionSettings,
    /// Signals streaming calls to end because the server shuts down.
    pub(super) ending: EndSignal,
    /// The account for [`CallSettings::server_memory_max`].
    pub(super) account: MemoryAccount,
    /// `true` if `calls` sets no limit. Most calls check only this flag.
    pub(crate) is_unlimited: bool,
    /// The counters of calls. Empty until the set is complete, and without [`CallSettings::metrics`].
    meter: OnceLock<Arc<CallMeter>>,
}

impl Common {
    /// Returns the maximum size of the metadata of a call, as far as the wires can announce it.
    pub(super) fn metadata_max(&self) -> usize {
        self.messages.metadata_len_max.min(u16::MAX.into())
    }

    pub(super) fn connection_account(&self) -> MemoryAccount {
        MemoryAccount::for_connection(self.calls.connection_memory_max, &self.account)
    }

    /// Returns the counters of calls.
    #[inline]
    pub(crate) fn meter(&self) -> Option<&Arc<CallMeter>> {
        self.meter.get()
    }

    /// Counts a call that never reached a handler.
    #[cold]
    pub(crate) fn count_refused(&self, method: Option<MethodEntry>, system: RpcSystem, code: Code) {
        if let Some(meter) = self.meter() {
            let cells = meter.here(method.map_or_else(|| meter.other(system), |entry| entry.number.into()));
            cells.start();
            cells.end(code.into(), Duration::ZERO);
        }
    }

    /// Ends a turn of an event loop that polled handlers.
    #[inline]
    pub(crate) fn end_turn(&self, nanos: impl FnOnce() -> u64) {
        if let Some(meter) = self.meter() {
            meter.end_turn(nanos);
        }
    }

    /// Applies the limits of messages to a call.
    // By value: a reference would keep every call in memory on its way to the handler.
    #[inline(always)]
    pub(super) fn admit(&self, mut call: Call) -> Result<(Call, Option<MemoryHold>), Status> {
        call.set_memory_budget(self.messages.message_memory_max);
        call.set_any_types(self.messages.any_types);
        match call.counted_len() {
            None => Ok((call, None)),
            Some(len) => self.hold(call, len),
        }
    }

    /// Returns the hold for the memory of a message. It charges the account of the connection if the wire has one, and
    /// otherwise the account of the server.
    #[cold]
    fn hold(&self, mut call: Call, len: usize) -> Result<(Call, Option<MemoryHold>), Status> {
        if let Some(hold) = call.head().extensions().get::<MemoryHold>().cloned() {
            return Ok((call, Some(hold)));
        }
        let hold = self.account.hold();
        if len >= HELD_LEN {
            hold.grow(len)?;
        }
        call.head_mut().extensions_mut().insert(hold.clone());
        Ok((call, Some(hold)))
    }
}

/// The default fallback: answers every call with [`Code::Unimplemented`](crate::Code::Unimplemented) and refuses every
/// other stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unimplemented;

impl Services {
    /// Creates a set without services.
    pub fn new() -> Self {
        let calls = CallSettings::default();
        let common = Common {
            table: MethodTable::default(),
            layers: LayerStack::default(),
            messages: MessageSettings::default(),
            compression: CompressionSettings::default(),
            ending: EndSignal::default(),
            account: MemoryAccount::for_server(calls.server_memory_max),
            is_unlimited: calls.are_unlimited(),
            meter: OnceLock::new(),
            calls,
        };
        Self { services: (), fallback: Unimplemented, common }
    }
}

impl Default for Services {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: ServiceSet, R> Services<S, R> {
    /// Adds a service.
    pub fn add_service<T: Service>(self, service: T) -> Services<(S, T), R> {
        self.add(service, [T::METHODS])
    }

    /// Adds a service, if there is one. Calls to an absent service are answered like calls to unknown methods.
    pub fn add_optional_service<T: Service>(self, service: Option<T>) -> Services<(S, Option<T>), R> {
        let methods = if service.is_some() { T::METHODS } else { &[] };
        self.add(service, [methods])
    }

    /// Adds services with erased types. Each call to one of them allocates.
    pub fn add_services(self, services: impl IntoIterator<Item = BoxService>) -> Services<(S, Vec<BoxService>), R> {
        let services: Vec<BoxService> = services.into_iter().collect();
        let methods: Vec<&'static [Method]> = services.iter().map(BoxService::methods).collect();
        self.add(services, methods)
    }

    /// Adds a layer around all services, including services added later. It runs inside the layers added before.
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.common.layers = self.common.layers.with(layer);
        self
    }

    /// Sets the limits of calls.
    pub fn calls(mut self, calls: CallSettings) -> Self {
        self.common.account = MemoryAccount::for_server(calls.server_memory_max);
        self.common.is_unlimited = calls.are_unlimited();
        self.common.calls = calls;
        self
    }

    /// Sets the limits of received messages.
    pub fn messages(mut self, messages: MessageSettings) -> Self {
        self.common.messages = messages;
        self
    }

    /// Sets the compression of messages.
    pub fn compression(mut self, compression: CompressionSettings) -> Self {
        self.common.compression = compression;
        self
    }

    pub(crate) fn metadata_max(&self) -> usize {
        self.common.metadata_max()
    }

    fn add<T>(self, service: T, methods: impl IntoIterator<Item = &'static [Method]>) -> Services<(S, T), R> {
        let Self { services, fallback, mut common } = self;
        for (index, methods) in methods.into_iter().enumerate() {
            common.table = common.table.with(methods, S::SLOTS, index);
        }
        Services { services: (services, service), fallback, common }
    }

    pub(crate) fn with_fallback<T>(self, fallback: T) -> Services<S, T> {
        let Self { services, common, .. } = self;
        Services { services, fallback, common }
    }

    /// Completes the set: checks for methods added twice, and tells each service about all served methods.
    pub(crate) fn complete(&self) -> Result<(), Collision> {
        self.common.table.check()?;
        if self.common.calls.metrics {
            self.common.meter.get_or_init(|| metrics::add_server(self.common.table.by_path().collect()));
        }
        let methods: Vec<&'static Method> = self.common.table.methods().map(|entry| entry.method).collect();
        self.services.served_with(&methods);
        Ok(())
    }

    /// Notifies all services that the server begins to shut down.
    pub(crate) fn shutting_down(&self) {
        self.services.shutting_down();
    }

    /// Returns the signal for streaming calls to end.
    pub(crate) fn ending(&self) -> &EndSignal {
        &self.common.ending
    }

    pub(crate) fn table(&self) -> &MethodTable {
        &self.common.table
    }

    /// Calls a method within this time, in the scope from which the calls of its handler inherit, and counts the call. A panic
    /// of the handler becomes a status.
    #[inline(always)]
    pub(crate) fn call(
        &self,
        entry: MethodEntry,
        call: Call,
        time: Option<HandlerTime>,
    ) -> impl Future<Output = Result<Answer, Status>> + Send {
        self.call_at(entry, call, time, CallArrival::Now)
    }

    /// Calls a method like [`call`](Self::call), with this arrival.
    #[inline(always)]
    pub(crate) fn call_at(
        &self,
        entry: MethodEntry,
        call: Call,
        time: Option<HandlerTime>,
        arrival: CallArrival,
    ) -> impl Future<Output = Result<Answer, Status>> + Send {
        let meter = self.common.meter();
        let measure = CallMeasure::arrived(entry.number, call.body().content_len(), arrival);
        let clock = OwnClock::new(meter, arrival, call.head().deadline());
        let notes = CallNotes::of_head(entry.method, call.head());
        let call = match meter {
            Some(meter) if entry.method.kind.has_request_stream() => {
                call.map_body(|body| measured_requests(meter, entry.number.into(), || notes.clone(), body))
            }
            _ => call,
        };
        let scope = CallScope::of(call.head(), &self.common.calls.inherit_metadata);
        MeasuredCall::new(measure.noted(notes), clock, within(time, self.call_in(scope, entry, call)))
    }

    /// Calls a method without anything around the handler but the layers. Boxed.
    pub(super) fn handle(&self, target: MethodPosition, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        match self.common.layers.is_empty() {
            true => Box::pin(self.services.call(target, call)),
            false => call_through(&self.common.layers, &self.services, target, call),
        }
    }

    /// Calls a method in this scope. Not an async function: its state would contain one more copy of the call, and so
    /// would the state of each caller.
    #[inline(always)]
    pub(crate) fn call_in(
        &self,
        scope: CallScope,
        entry: MethodEntry,
        call: Call,
    ) -> impl Future<Output = Result<Answer, Status>> + Send {
        let MethodEntry { method, target, .. } = entry;
        let Self { services, common, .. } = self;
        let (handler, hold) = match common.admit(call) {
            Ok((call, hold)) if common.layers.is_empty() => (Either::Left(services.call(target, call)), hold),
            Ok((call, hold)) => (Either::Right(call_through(&common.layers, services, target, call)), hold),
            Err(status) => (Either::Right(refuse(status)), None),
        };
        catch_panics(scope, method, hold, handler)
    }
}

/// Runs a handler in the scope of its call, converts its panics to statuses, and holds its memory until it is dropped.
#[inline(always)]
pub(super) fn catch_panics<F>(
    scope: CallScope,
    method: &'static Method,
    hold: Option<MemoryHold>,
    handler: F,
) -> InScope<GuardedHandler<F>> {
    InScope::new(scope, GuardedHandler { handler, method, hold })
}

/// Calls a method through the layers. Boxed, so that only calls with layers pay for the size of this future.
#[cold]
fn call_through<'a, S: ServiceSet>(
    layers: &'a LayerStack,
    services: &'a S,
    target: MethodPosition,
    call: Call,
) -> BoxFuture<'a, Result<Answer, Status>> {
    Box::pin(async move {
        let end = |call| -> BoxFuture<'_, _> { Box::pin(services.call(target, call)) };
        layers.call(call, &end).await
    })
}

#[cold]
pub(super) fn refuse<'a>(status: Status) -> BoxFuture<'a, Result<Answer, Status>> {
    Box::pin(std::future::ready(Err(status)))
}

pin_project! {
    /// A handler whose panics become statuses.
    pub(crate) struct GuardedHandler<F> {
        #[pin]
        handler: F,
        method: &'static Method,
        // Released when the handler is dropped.
        hold: Option<MemoryHold>,
    }
}

impl<F: Future<Output = Result<Answer, Status>>> Future for GuardedHandler<F> {
    type Output = Result<Answer, Status>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Unwind safe: the handler is dropped after a panic, so its state is never seen again.
        let mut polled = catch_unwind(AssertUnwindSafe(|| this.handler.poll(cx)))
            .unwrap_or_else(|_| Poll::Ready(Err(panicked(this.method))));
        // By reference: an answer is not moved.
        match &mut polled {
            Poll::Ready(Err(status)) if status.code() == Code::Ok => *status = failed_with_ok(status, this.method),
            Poll::Ready(Ok(answer)) if matches!(answer.body(), Body::Many(_)) => guard_messages(answer, this.method),
            _ => {}
        }
        polled
    }
}

#[cold]
fn guard_messages(answer: &mut Answer, method: &'static Method) {
    let guarded = mem::replace(answer, Answer::new(Body::from(Bytes::new())));
    *answer = guarded.map_body(|body| match body {
        Body::Many(contents) => {
            let trailers = contents.trailers_slot();
            let messages = HandlerMessages { contents: Some(contents), method };
            Body::Many(Streaming::from_source(messages).with_trailers_slot(trailers))
        }
        body => body,
    });
}

/// The messages of a handler. A panic ends them with a status.
struct HandlerMessages {
    /// `None` after a panic.
    contents: Option<Streaming<Bytes>>,
    method: &'static Method,
}

impl HandlerMessages {
    fn poll_with<T>(&mut self, poll: impl FnOnce(&mut Streaming<Bytes>) -> PollNext<T>) -> PollNext<T> {
        let Some(contents) = &mut self.contents else { return Poll::Ready(None) };
        let method = self.method;
        match catch_unwind(AssertUnwindSafe(|| poll(contents))) {
            Ok(next) => {
                next.map(|next| next.map(|next| next.map_err(|status| sanitize_handler_status(status, method))))
            }
            Err(_) => {
                self.contents = None;
                Poll::Ready(Some(Err(panicked(method))))
            }
        }
    }
}

impl BatchSource<Bytes> for HandlerMessages {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<Bytes> {
        self.poll_with(|contents| contents.poll(cx))
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        full: usize,
        prefix: MessagePrefix,
    ) -> PollNext<Option<Bytes>> {
        self.poll_with(|contents| contents.poll_into(cx, out, full, prefix))
    }
}

/// Prepares the status of a handler for its caller. The code `Ok` is replaced, because some callers would not see a
/// failure.
pub(crate) fn sanitize_handler_status(status: Status, method: &Method) -> Status {
    if status.code() == Code::Ok { failed_with_ok(&status, method) } else { status }
}

#[cold]
fn failed_with_ok(status: &Status, method: &Method) -> Status {
    error!(service = method.service, method = method.name, "a handler failed with the code Ok");
    Status::unknown(format!("the handler failed with the code Ok: {}", status.message()))
}

pub(crate) fn panicked(method: &Method) -> Status {
    error!(service = method.service, method = method.name, "a handler panicked");
    Status::internal("the handler panicked")
}
