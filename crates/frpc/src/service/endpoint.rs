//! Services with erased types, for transports that find methods by path.

use std::{
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use frisbee::Dispatch;
use futures_util::stream;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{
    boxed::{BoxFuture, BoxService},
    ending::{EndFuture, EndSignal},
    handle::Service,
    services::{Common, GuardedHandler, Services, catch_panics, panicked, refuse},
    set::ServiceSet,
    table::{Collision, MethodEntry, MethodPosition},
};
use crate::{
    call::{
        account::MemoryAccount,
        context::{CallScope, InScope, Inherited},
        deadline::{DeadlineFuture, HandlerTime, within},
        exchange::{Answer, Body, Call},
        head::Head,
        measure::{CallArrival, CallClock, CallMeasure, MeasuredCall, OwnClock, measured_requests},
        meter::{CallMeter, nanos_since},
        method::{Method, MethodKind},
        packed::{BatchSource, MessagePrefix, PollNext},
        recorder::CallNotes,
        status::{Code, Status},
        streaming::Streaming,
        system::RpcSystem,
    },
    codec::{Format, MemoryBudget, json::Types},
    metrics::{self, MethodMetrics},
};

/// Services with erased types, as served by a transport. Cheap to clone.
///
/// ```
/// # use frpc::generated::{Answer, Call, Method, Service, Status};
/// # struct Echo;
/// # impl Service for Echo {
/// #     const NAME: &'static str = "echo.Echo";
/// #     const METHODS: &'static [Method] = &[Method::unary("echo.Echo", "Say", 10)];
/// #     async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
/// #         Ok(Answer::new(call.into_parts().1))
/// #     }
/// # }
/// use frpc::{Body, Endpoint, Head, codec::Format};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let endpoint = Endpoint::new(Echo)?;
/// let method = endpoint.find("echo.Echo/Say").expect("it is there");
/// let body = Body::from(&b"bytes of a message"[..]);
/// let answer = endpoint.call(method, Format::Proto, Head::default(), body).await?;
/// # let _ = answer;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Endpoint(Arc<dyn AnyServices>);

/// A method found in an [`Endpoint`].
#[derive(Clone, Copy, Debug)]
pub struct MethodHandle {
    entry: MethodEntry,
    system: RpcSystem,
}

impl Endpoint {
    /// Erases the type of a service, a [`BoxService`] or [`Services`].
    ///
    /// # Errors
    ///
    /// Fails if the same service was added twice.
    pub fn new(services: impl IntoEndpoint) -> Result<Self, Collision> {
        services.into_endpoint()
    }

    /// Erases the type of services shared with another transport.
    pub(crate) fn shared<S: ServiceSet, R: Send + Sync + 'static>(services: Arc<Services<S, R>>) -> Self {
        Self(services)
    }

    fn common(&self) -> &Common {
        self.0.common()
    }

    /// Returns `true` if both are clones of the same endpoint.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns all methods, sorted by operation.
    pub fn methods(&self) -> impl Iterator<Item = &'static Method> {
        self.common().table.methods().map(|entry| entry.method)
    }

    /// Returns the method with this path, such as `"package.Service/Method"`. A leading slash is ignored.
    pub fn find(&self, path: &str) -> Option<MethodHandle> {
        self.common().table.find_path(path).map(MethodHandle::new)
    }

    /// Returns the method called by a caller in this process.
    pub(crate) fn find_method(&self, method: &Method) -> Option<MethodHandle> {
        let found = self.common().table.find_name(method.service, method.name);
        found.filter(|entry| entry.method == method).map(MethodHandle::new)
    }

    /// Returns the method with this frisbee operation.
    pub fn find_operation(&self, operation: u16) -> Option<MethodHandle> {
        self.common().table.find(operation).filter(|entry| !entry.is_ambiguous()).map(MethodHandle::new)
    }

    /// Returns the mode in which unary handlers run: [`CallSettings::dispatch`](crate::CallSettings::dispatch).
    pub fn dispatch(&self) -> Dispatch {
        self.common().calls.dispatch
    }

    /// Returns the limit on concurrent unary calls of a connection: [`CallSettings::calls_max`](crate::CallSettings::calls_max).
    pub fn calls_max(&self) -> Option<u32> {
        self.common().calls.calls_max
    }

    /// Returns the maximum size of the metadata of a call: [`MessageSettings::metadata_len_max`](crate::MessageSettings::metadata_len_max).
    pub fn metadata_len_max(&self) -> usize {
        self.common().metadata_max()
    }

    /// Returns the memory limit for one decoded message of a caller:
    /// [`MessageSettings::message_memory_max`](crate::MessageSettings::message_memory_max).
    pub fn memory_budget(&self) -> MemoryBudget {
        self.common().messages.message_memory_max
    }

    /// Returns the types for an `Any` in JSON: [`MessageSettings::any_types`](crate::MessageSettings::any_types).
    pub fn any_types(&self) -> &'static Types {
        self.common().messages.any_types
    }

    /// Returns the memory account of the server: [`CallSettings::server_memory_max`](crate::CallSettings::server_memory_max).
    pub fn server_account(&self) -> MemoryAccount {
        self.common().account.clone()
    }

    /// Creates the memory account of a connection: [`CallSettings::connection_memory_max`](crate::CallSettings::connection_memory_max).
    pub fn connection_account(&self) -> MemoryAccount {
        self.common().connection_account()
    }

    /// Returns the values inherited by calls made on behalf of a call with this head. For wires that answer some calls
    /// without a method; methods inherit these values automatically.
    #[inline]
    pub fn inherited(&self, head: &Head) -> Inherited {
        Inherited::of(head, || &self.common().calls.inherit_metadata)
    }

    /// Returns `true` if layers were added around all services with [`Services::layer`].
    pub fn has_layers(&self) -> bool {
        !self.common().layers.is_empty()
    }

    /// Returns the time limit of a unary call with this requested timeout, according to the
    /// [times](crate::CallSettings::times) of the server. [`call`](Self::call) and [`call_with`](Self::call_with)
    /// apply it automatically.
    pub fn time_of(&self, timeout: Option<Duration>) -> Option<Duration> {
        let time = self.common().calls.times.of(MethodKind::Unary, timeout, Instant::now);
        time.map(HandlerTime::limit)
    }

    /// Answers a call with a handler of the wire, with the layers and time limits used for methods of services. For
    /// wires that serve more than services, such as plain functions. Layers see `method` as the called method.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handler.
    pub async fn call_with<F>(
        &self,
        method: &'static Method,
        system: RpcSystem,
        format: Format,
        mut head: Head,
        body: Body,
        handler: impl Fn(Call) -> F + Send + Sync,
    ) -> Result<Answer, Status>
    where
        F: Future<Output = Result<Answer, Status>> + Send + 'static,
    {
        let time = self.limit(method, &mut head);
        let scope = CallScope::of(&head, &self.common().calls.inherit_metadata);
        let end = |call| -> BoxFuture<'_, _> { Box::pin(handler(call)) };
        let notes = CallNotes::of_head(method, &head);
        let mut call = Call::new(method, format, head, body).with_system(system);
        call.set_memory_budget(self.common().messages.message_memory_max);
        let meter = self.common().meter();
        let number = meter.map_or(0, |meter| meter.number_over(method, system));
        let measure = CallMeasure::new(u16::try_from(number).unwrap_or(u16::MAX), call.body().content_len(), false);
        let measure = measure.noted(notes);
        let handling = within(time, catch_panics(scope, method, None, self.common().layers.call(call, &end)));
        let clock = OwnClock::new(meter, CallArrival::Now, time.and_then(HandlerTime::at));
        let answer = MeasuredCall::new(measure, clock, handling).await?;
        Ok(in_time(answer, time))
    }

    /// Calls a method. The messages of the answer have the same format. A panic of the handler becomes a status, and so
    /// does the end of its time: the [deadline](Head::deadline) of the call, limited by the
    /// [times](crate::CallSettings::times) of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handler. A stream that was already returned continues until it is dropped.
    pub async fn call(
        &self,
        method: MethodHandle,
        format: Format,
        mut head: Head,
        body: Body,
    ) -> Result<Answer, Status> {
        // Shortly before the limit of a shutdown, streaming calls end with a status. Unary calls keep running.
        if method.method().kind == MethodKind::Unary {
            return self.call_unary(method, format, head, body).await;
        }
        let (time, ending) = (self.limit(method.method(), &mut head), &self.common().ending);
        let answer = tokio::select! {
            biased;
            answer = self.begin(method, format, head, body, time, CallArrival::Now) => answer?,
            () = ending.ended() => return Err(EndSignal::status()),
        };
        Ok(in_time(answer, time).map_body(|body| match body {
            Body::Many(contents) => {
                Body::Many(contents.changed(|contents| UntilEnd { contents, ended: Box::pin(ending.ended_owned()) }))
            }
            body => body,
        }))
    }

    /// Calls a unary method, as [`call`](Self::call) does. The future has a type, so it needs no further box.
    #[inline]
    pub fn call_unary(&self, method: MethodHandle, format: Format, mut head: Head, body: Body) -> HandlerFuture<'_> {
        let time = self.limit(method.method(), &mut head);
        self.begin(method, format, head, body, time, CallArrival::Now)
    }

    /// Calls a unary method in a turn of an event loop that began at this time. The first poll follows in the same turn,
    /// and [`end_turn`](Self::end_turn) after it: one reading of the clock measures all calls of the turn.
    #[inline]
    pub fn call_unary_in_turn(
        &self,
        method: MethodHandle,
        format: Format,
        mut head: Head,
        body: Body,
        turn: frisbee::clock::Instant,
    ) -> HandlerFuture<'_> {
        let time = self.limit(method.method(), &mut head);
        self.begin(method, format, head, body, time, CallArrival::InTurn(turn))
    }

    /// Calls a unary method that arrived at this time and waited in a queue of its wire. Metrics count the wait, and the
    /// duration of the call includes it.
    pub fn call_unary_queued(
        &self,
        method: MethodHandle,
        format: Format,
        mut head: Head,
        body: Body,
        arrived: frisbee::clock::Instant,
    ) -> HandlerFuture<'_> {
        let time = self.limit(method.method(), &mut head);
        self.begin(method, format, head, body, time, CallArrival::Queued(arrived))
    }

    /// Ends a turn of an event loop that began at this time: its finished calls get their duration.
    #[inline]
    pub fn end_turn(&self, turn: frisbee::clock::Instant) {
        self.common().end_turn(|| nanos_since(turn));
    }

    /// Counts a call refused by a wire of this system, with the code told to its caller. `None` stands for an unknown
    /// method.
    pub fn count_refused(&self, method: Option<MethodHandle>, system: RpcSystem, code: Code) {
        self.common().count_refused(method.map(|method| method.over(system).entry), system, code);
    }

    /// Returns the time limit of the server for a call that begins now, and sets it as the deadline of its head.
    #[inline]
    fn limit(&self, method: &Method, head: &mut Head) -> Option<HandlerTime> {
        let time = self.common().calls.time_of(method, head.timeout(), Instant::now)?;
        if let Some(at) = time.at() {
            head.set_deadline(at);
        }
        Some(time)
    }

    /// Calls a method without the time limits of the server, within the given time.
    pub(crate) fn begin(
        &self,
        MethodHandle { entry: MethodEntry { method, target, number, .. }, system }: MethodHandle,
        format: Format,
        head: Head,
        body: Body,
        time: Option<HandlerTime>,
        arrival: CallArrival,
    ) -> HandlerFuture<'_> {
        let (scope, meter) = (CallScope::of(&head, &self.common().calls.inherit_metadata), self.common().meter());
        let body = match (body, meter) {
            (body @ Body::Many(_), Some(meter)) => {
                measured_requests(meter, number.into(), || CallNotes::of_head(method, &head), body)
            }
            (body, _) => body,
        };
        let measure = CallMeasure::arrived(number, body.content_len(), arrival);
        let measure = measure.noted(CallNotes::of_head(method, &head));
        let (handler, hold) = match self.common().admit(Call::new(method, format, head, body).with_system(system)) {
            Ok((call, hold)) => {
                // A service may panic before it returns its future. The call was moved into it, so nothing sees it again.
                let handler = catch_unwind(AssertUnwindSafe(|| self.0.handle(target, call)));
                (handler.unwrap_or_else(|_| refuse(panicked(method))), hold)
            }
            Err(status) => (refuse(status), None),
        };
        let clock =
            EndpointClock { common: self.common(), turn: arrival.turn(), deadline: time.and_then(HandlerTime::at) };
        HandlerFuture { handler: within(time, catch_panics(scope, method, hold, handler)), method, measure, clock }
    }

    pub(crate) fn meter(&self) -> Option<&Arc<CallMeter>> {
        self.common().meter()
    }

    /// Returns the settings of calls and messages, as text.
    pub(crate) fn settings(&self) -> String {
        let Common { calls, messages, compression, .. } = self.common();
        format!("{calls:#?}\n{messages:#?}\n{compression:#?}")
    }

    /// Returns the counters of each called method, sorted by name.
    pub fn metrics(&self) -> Vec<MethodMetrics> {
        self.meter().map(|meter| metrics::methods_of(meter)).unwrap_or_default()
    }

    /// Notifies all services that the server begins to shut down.
    pub(crate) fn shutting_down(&self) {
        self.0.shutting_down();
    }

    /// Ends all running streaming calls.
    pub(crate) fn end_streams(&self) {
        self.common().ending.end();
    }
}

impl MethodHandle {
    fn new(entry: MethodEntry) -> Self {
        Self { entry, system: RpcSystem::default() }
    }

    /// Returns the method.
    pub fn method(self) -> &'static Method {
        self.entry.method
    }

    /// Sets the RPC system of calls with this handle, for layers, traces and metrics.
    pub fn over(self, system: RpcSystem) -> Self {
        let number = self.entry.number - self.system.number() + system.number();
        Self { entry: MethodEntry { number, ..self.entry }, system }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.methods().map(Method::path)).finish()
    }
}

/// The dyn-compatible part of [`Services`].
trait AnyServices: Send + Sync {
    fn common(&self) -> &Common;
    fn shutting_down(&self);
    fn handle(&self, target: MethodPosition, call: Call) -> BoxFuture<'_, Result<Answer, Status>>;
}

impl<S: ServiceSet, R: Send + Sync> AnyServices for Services<S, R> {
    fn common(&self) -> &Common {
        &self.common
    }

    fn shutting_down(&self) {
        Self::shutting_down(self);
    }

    fn handle(&self, target: MethodPosition, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        Self::handle(self, target, call)
    }
}

pin_project! {
    /// A running handler of [`Endpoint::call_unary`].
    pub struct HandlerFuture<'a> {
        #[pin]
        handler: DeadlineFuture<InScope<GuardedHandler<BoxFuture<'a, Result<Answer, Status>>>>>,
        method: &'static Method,
        measure: CallMeasure,
        clock: EndpointClock<'a>,
    }
}

impl Future for HandlerFuture<'_> {
    type Output = Result<Answer, Status>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.measure.before_poll(this.clock);
        let mut polled = this.handler.poll(cx);
        this.measure.after_poll(this.clock, &mut polled);
        polled
    }
}

/// The clock of a call of an [`Endpoint`].
struct EndpointClock<'a> {
    common: &'a Common,
    turn: Option<frisbee::clock::Instant>,
    deadline: Option<frisbee::clock::Instant>,
}

impl CallClock for EndpointClock<'_> {
    #[inline]
    fn meter(&self) -> Option<&Arc<CallMeter>> {
        self.common.meter()
    }

    fn turn(&self) -> frisbee::clock::Instant {
        self.turn.unwrap_or_else(|| Instant::now().into_std())
    }

    fn deadline(&self) -> Option<frisbee::clock::Instant> {
        self.deadline
    }
}

impl fmt::Debug for HandlerFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerFuture").field("method", &self.method).finish_non_exhaustive()
    }
}

/// A stream that fails with a status when the server ends.
struct UntilEnd {
    contents: Streaming<Bytes>,
    ended: Pin<Box<EndFuture<WaitForCancellationFutureOwned>>>,
}

impl BatchSource<Bytes> for UntilEnd {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<Bytes> {
        if self.has_ended(cx) {
            return Poll::Ready(Some(Err(EndSignal::status())));
        }
        self.contents.poll(cx)
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        full: usize,
        prefix: MessagePrefix,
    ) -> PollNext<Option<Bytes>> {
        if self.has_ended(cx) {
            return Poll::Ready(Some(Err(EndSignal::status())));
        }
        self.contents.poll_into(cx, out, full, prefix)
    }
}

impl UntilEnd {
    /// Checked before messages are taken: a stream with messages always ready would otherwise never end.
    fn has_ended(&mut self, cx: &mut Context<'_>) -> bool {
        let has_ended = self.ended.as_mut().poll(cx).is_ready();
        if has_ended {
            self.contents = Streaming::over();
        }
        has_ended
    }
}

/// Fails the stream of an answer with a status when its time is up, even if a message is always ready.
fn in_time(answer: Answer, time: Option<HandlerTime>) -> Answer {
    let Some(time) = time else { return answer };
    answer.map_body(|body| match body {
        Body::Many(contents) => Body::Many(stream_in_time(contents, time)),
        body => body,
    })
}

fn stream_in_time(contents: Streaming<Bytes>, time: HandlerTime) -> Streaming<Bytes> {
    let trailers = contents.trailers_slot();
    let bounded = stream::try_unfold(contents, move |mut contents| async move {
        if time.is_over() {
            return Err(time.status());
        }
        let next = time.bound(contents.message()).await?;
        Ok(next.map(|content| (content, contents)))
    });
    Streaming::new(bounded).with_trailers_slot(trailers)
}

/// A type that converts to an [`Endpoint`]: a service, a [`BoxService`], [`Services`], or another endpoint.
pub trait IntoEndpoint: sealed::IntoEndpoint {}

impl<T: sealed::IntoEndpoint> IntoEndpoint for T {}

mod sealed {
    use super::{Collision, Endpoint};

    pub trait IntoEndpoint {
        fn into_endpoint(self) -> Result<Endpoint, Collision>;
    }
}

impl<T: Service> sealed::IntoEndpoint for T {
    fn into_endpoint(self) -> Result<Endpoint, Collision> {
        Services::new().add_service(self).into_endpoint()
    }
}

impl sealed::IntoEndpoint for Endpoint {
    fn into_endpoint(self) -> Result<Endpoint, Collision> {
        Ok(self)
    }
}

impl sealed::IntoEndpoint for BoxService {
    fn into_endpoint(self) -> Result<Endpoint, Collision> {
        Services::new().add_services([self]).into_endpoint()
    }
}

impl<S: ServiceSet, R: Send + Sync + 'static> sealed::IntoEndpoint for Services<S, R> {
    fn into_endpoint(self) -> Result<Endpoint, Collision> {
        self.complete()?;
        Ok(Endpoint(Arc::new(self)))
    }
}
