//! The services of one side, and the dispatch of calls to them.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::future::Either;
use pin_project_lite::pin_project;
use tracing::error;

use super::{
    boxed::{BoxFuture, BoxService},
    compressing::Compressing,
    ending::Ending,
    handle::Service,
    layer::{Layer, Layers},
    set::ServiceSet,
    table::{Collision, Entry, MethodTable, Target},
};
use crate::{
    call::{
        account::{MemoryAccount, MemoryHold},
        context::{InScope, Scope},
        deadline::{ServerTimes, Times},
        exchange::{Answer, Call, HELD_LEN},
        method::Method,
        status::{Code, Status},
    },
    codec::{Compression, MemoryBudget},
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
/// use frisbee::{Operation, Packet, Table};
/// use frpc::{Services, Unimplemented};
///
/// const NEWS: Operation = Operation::new(1000).unwrap();
///
/// let packets = Table::over(Unimplemented).on(NEWS, async |news: Packet| println!("{:?}", news.content));
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
    table: MethodTable,
    layers: Layers,
    metadata_len_max: usize,
    /// The names of the metadata inherited by calls of handlers.
    inherited: Vec<String>,
    pub(crate) compressing: Compressing,
    pub(crate) accepts_narrowing: bool,
    memory: MemoryBudget,
    pub(crate) times: ServerTimes,
    /// Signals streaming calls to end because the server shuts down.
    ending: Ending,
    connection_memory_max: usize,
    account: MemoryAccount,
    pub(crate) calls_max: Option<u32>,
    /// `true` if neither `times` nor `calls_max` sets a limit. Most calls check only this flag.
    pub(crate) is_unlimited: bool,
    pub(crate) fallback: R,
}

/// The default fallback: answers every call with [`Code::Unimplemented`](crate::Code::Unimplemented) and refuses every
/// other stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unimplemented;

impl Services {
    /// Creates a set without services.
    pub fn new() -> Self {
        Self {
            services: (),
            table: MethodTable::default(),
            layers: Layers::default(),
            metadata_len_max: METADATA_LEN_MAX,
            inherited: Vec::new(),
            compressing: Compressing::default(),
            accepts_narrowing: false,
            memory: MemoryBudget::default(),
            times: ServerTimes::default(),
            ending: Ending::default(),
            connection_memory_max: CONNECTION_MEMORY_MAX,
            account: MemoryAccount::of_server(SERVER_MEMORY_MAX),
            calls_max: None,
            is_unlimited: true,
            fallback: Unimplemented,
        }
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
    pub fn layer(self, layer: impl Layer) -> Self {
        Self { layers: self.layers.with(layer), ..self }
    }

    /// Sets the maximum size of the metadata of a call, as counted by [`Metadata::size`](crate::Metadata::size) plus
    /// two bytes per value. Default 8 KiB, at most 65 535. A larger call is answered with
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted). Peers are told the limit, so a larger call usually fails
    /// before it is sent.
    pub fn metadata_len_max(self, metadata_len_max: usize) -> Self {
        Self { metadata_len_max: metadata_len_max.min(u16::MAX.into()), ..self }
    }

    /// Names metadata that calls made by handlers inherit from the call they serve, such as `traceparent`. Values set
    /// by the handler take precedence. The deadline is always inherited. Calls of tasks spawned by the handler inherit
    /// nothing; use [`Inherited`](crate::Inherited) to pass these values to another thread.
    pub fn inherit_metadata(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { inherited: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the time limits of calls. They apply to any timeout that a caller requests.
    pub fn times(self, times: Times) -> Self {
        self.with_times(|own| own.all = times)
    }

    /// Sets the time limits of calls to one method, instead of the limits for [all](Self::times).
    pub fn method_times(self, method: &'static Method, times: Times) -> Self {
        self.with_times(|own| own.methods.push((method, times)))
    }

    fn with_times(mut self, change: impl FnOnce(&mut ServerTimes)) -> Self {
        change(&mut self.times);
        self.is_unlimited = self.times.are_open() && self.calls_max.is_none();
        self
    }

    /// Sets the maximum number of concurrent unary calls per connection. Default `None`: only the queue and handler
    /// settings of the connection limit them. Peers are told the limit: further calls wait on their side, or
    /// [fail](crate::WhenFull::Fail) with [`CallError::TooManyForPeer`](crate::CallError::TooManyForPeer). A call that
    /// arrives above the limit is refused. Streams are limited by [`Config::streams_max`](crate::Config::streams_max).
    ///
    /// Handlers that call each other back and forth over one connection need a limit of at least their nesting depth.
    /// Otherwise the innermost call waits until its time is up.
    pub fn calls_max(self, calls_max: impl Into<Option<u32>>) -> Self {
        let calls_max = calls_max.into();
        Self { calls_max, is_unlimited: self.times.are_open() && calls_max.is_none(), ..self }
    }

    /// Compresses answers for callers that accept this algorithm. Only messages of at least
    /// [`compression_len_min`](Self::compression_len_min) bytes are compressed, and only if they get shorter. Default:
    /// no compression. Further calls add algorithms for callers that do not accept the earlier ones. Plain peers, such
    /// as Go clients, never get compressed messages.
    ///
    /// Compression runs on the task of the handler. The length of a compressed message reveals something about its
    /// content: do not compress secrets together with data chosen by others.
    pub fn send_compressed(mut self, algorithm: Compression) -> Self {
        self.compressing.send.push(algorithm);
        self
    }

    /// Sets the minimum length of messages to [compress](Self::send_compressed). Default 1 KiB.
    pub fn compression_len_min(mut self, len_min: usize) -> Self {
        self.compressing.len_min = len_min;
        self
    }

    /// Sets the maximum number of inflated bytes held per connection. Default 32 MiB. At 0, peers are told not to
    /// compress. A message counts while its handler runs; stream messages compressed together count until the next ones
    /// are requested. A single message always fits if no other counts;
    /// [`Config::content_len_max`](crate::Config::content_len_max) bounds its inflated length. A call above the limit
    /// waits up to [`Config::handlers_stall_max`](crate::Config::handlers_stall_max), then fails with
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted). A stream fails immediately.
    ///
    /// Inflating runs on the task of the handler and may take as long as one message of the maximum length needs.
    pub fn inflated_len_max(mut self, inflated_len_max: usize) -> Self {
        self.compressing.inflated_len_max = inflated_len_max;
        self
    }

    /// Sets whether to accept messages that lose values because the peer uses another version of the proto file.
    /// Examples: numbers out of range here (`int64` at the peer and `int32` here: 2^40 becomes 0), and lists of entries
    /// decoded as maps here. Default: no. Calls of such methods fail with
    /// [`FailedPrecondition`](crate::Code::FailedPrecondition) before anything is sent. The reading side decides: a
    /// server for requests, a caller for responses. The caller logs the method and the field in both cases, when a
    /// client is created or at the first call.
    ///
    /// Only Rust callers over frisbee compare proto files. This setting does not affect other callers.
    pub fn accept_narrowing(self, accept: bool) -> Self {
        Self { accepts_narrowing: accept, ..self }
    }

    /// Sets the memory limit for one decoded message of a caller, in any format. Default [`MemoryBudget`]: 128 MiB, or
    /// more if messages may be longer than 4 MiB. A call above the limit is answered with
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted) and its message is not decoded. Polyglot and JSON also
    /// limit the memory per byte of input.
    pub fn message_memory_max(self, message_memory_max: usize) -> Self {
        Self { memory: MemoryBudget::new(message_memory_max), ..self }
    }

    /// Sets the memory limit for all messages of one connection: messages being received, and requests with their
    /// decoded form while their handlers run. Default 256 MiB. A call above the limit is answered with
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted) and not executed.
    ///
    /// Applies to the HTTP and JSON-RPC wires. Frisbee connections use
    /// [`Config::handlers_len_max`](crate::Config::handlers_len_max) and
    /// [`Config::streams_len_max`](crate::Config::streams_len_max). Not counted: anything below 16 KiB, the decoded
    /// form of messages shorter than 512 bytes, and the decoded form of stream messages.
    pub fn connection_memory_max(self, connection_memory_max: usize) -> Self {
        Self { connection_memory_max, ..self }
    }

    /// Sets the memory limit for the messages of all connections, counted like
    /// [`connection_memory_max`](Self::connection_memory_max). Default 1 GiB. Polyglot requests count with their
    /// encoded length, from 64 KiB on.
    pub fn server_memory_max(self, server_memory_max: usize) -> Self {
        Self { account: MemoryAccount::of_server(server_memory_max), ..self }
    }

    pub(crate) fn account(&self) -> &MemoryAccount {
        &self.account
    }

    pub(crate) fn connection_account(&self) -> MemoryAccount {
        MemoryAccount::of_connection(self.connection_memory_max, &self.account)
    }

    /// Returns the hold for the memory of a message. It charges the account of the connection if the wire has one, and
    /// otherwise the account of the server.
    #[cold]
    fn hold(&self, call: &mut Call, len: usize) -> Result<MemoryHold, Status> {
        if let Some(hold) = call.head().extensions().get::<MemoryHold>() {
            return Ok(hold.clone());
        }
        let hold = self.account.hold();
        if len >= HELD_LEN {
            hold.grow(len)?;
        }
        call.head_mut().extensions_mut().insert(hold.clone());
        Ok(hold)
    }

    pub(crate) fn memory_budget(&self) -> MemoryBudget {
        self.memory
    }

    pub(crate) fn metadata_max(&self) -> usize {
        self.metadata_len_max
    }

    fn add<T>(self, service: T, methods: impl IntoIterator<Item = &'static [Method]>) -> Services<(S, T), R> {
        let Self {
            services,
            mut table,
            layers,
            metadata_len_max,
            inherited,
            compressing,
            accepts_narrowing,
            memory,
            connection_memory_max,
            account,
            times,
            ending,
            calls_max,
            is_unlimited,
            fallback,
        } = self;
        for (index, methods) in methods.into_iter().enumerate() {
            table = table.with(methods, S::SLOTS, index);
        }
        Services {
            services: (services, service),
            table,
            layers,
            metadata_len_max,
            inherited,
            compressing,
            accepts_narrowing,
            memory,
            connection_memory_max,
            account,
            times,
            ending,
            calls_max,
            is_unlimited,
            fallback,
        }
    }

    pub(crate) fn with_fallback<T>(self, fallback: T) -> Services<S, T> {
        let Self {
            services,
            table,
            layers,
            metadata_len_max,
            inherited,
            compressing,
            accepts_narrowing,
            memory,
            connection_memory_max,
            account,
            times,
            ending,
            calls_max,
            is_unlimited,
            ..
        } = self;
        Services {
            services,
            table,
            layers,
            metadata_len_max,
            inherited,
            compressing,
            accepts_narrowing,
            memory,
            connection_memory_max,
            account,
            times,
            ending,
            calls_max,
            is_unlimited,
            fallback,
        }
    }

    /// Completes the set: checks for methods added twice, and tells each service about all served methods.
    pub(crate) fn complete(&self) -> Result<(), Collision> {
        self.table.check()?;
        let methods: Vec<&'static Method> = self.table.methods().map(|entry| entry.method).collect();
        self.services.beside(&methods);
        Ok(())
    }

    /// Notifies all services that the server begins to shut down.
    pub(crate) fn shutting_down(&self) {
        self.services.shutting_down();
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Returns the signal for streaming calls to end.
    pub(crate) fn ending(&self) -> &Ending {
        &self.ending
    }

    pub(crate) fn table(&self) -> &MethodTable {
        &self.table
    }

    pub(crate) fn inherited_names(&self) -> &[String] {
        &self.inherited
    }

    /// Calls a method, in the scope from which the calls of its handler inherit. A panic of the handler becomes a
    /// status.
    #[inline(always)]
    pub(crate) fn call(&self, entry: Entry, call: Call) -> impl Future<Output = Result<Answer, Status>> + Send {
        self.call_in(Scope::of(call.head(), &self.inherited), entry, call)
    }

    /// Calls a method in this scope. Not an async function: its state would contain one more copy of the call, and so
    /// would the state of each caller.
    #[inline(always)]
    pub(crate) fn call_in(
        &self,
        scope: Scope,
        entry: Entry,
        mut call: Call,
    ) -> impl Future<Output = Result<Answer, Status>> + Send {
        let Entry { method, target, .. } = entry;
        let Self { services, layers, .. } = self;
        call.set_memory_budget(self.memory);
        let hold = match call.counted_len() {
            None => Ok(None),
            Some(len) => self.hold(&mut call, len).map(Some),
        };
        let (hold, refused) = match hold {
            Ok(hold) => (hold, None),
            Err(status) => (None, Some(status)),
        };
        let handler = if let Some(status) = refused {
            Either::Right(refuse(status))
        } else if layers.is_empty() {
            Either::Left(services.call(target, call))
        } else {
            Either::Right(call_through(layers, services, target, call))
        };
        caught(scope, method, hold, handler)
    }
}

/// Runs a handler in the scope of its call, converts its panics to statuses, and holds its memory until it is dropped.
#[inline(always)]
pub(super) fn caught<F>(
    scope: Scope,
    method: &'static Method,
    hold: Option<MemoryHold>,
    handler: F,
) -> impl Future<Output = Result<Answer, Status>> + use<F>
where
    F: Future<Output = Result<Answer, Status>>,
{
    InScope::new(scope, Caught { handler, method, hold })
}

/// Calls a method through the layers. Boxed, so that only calls with layers pay for the size of this future.
#[cold]
fn call_through<'a, S: ServiceSet>(
    layers: &'a Layers,
    services: &'a S,
    target: Target,
    call: Call,
) -> BoxFuture<'a, Result<Answer, Status>> {
    Box::pin(async move {
        let end = |call| -> BoxFuture<'_, _> { Box::pin(services.call(target, call)) };
        layers.call(call, &end).await
    })
}

#[cold]
fn refuse<'a>(status: Status) -> BoxFuture<'a, Result<Answer, Status>> {
    Box::pin(std::future::ready(Err(status)))
}

pin_project! {
    /// A handler whose panics become statuses, and whose statuses never look like refusals by this side.
    struct Caught<F> {
        #[pin]
        handler: F,
        method: &'static Method,
        // Released when the handler is dropped.
        hold: Option<MemoryHold>,
    }
}

impl<F: Future<Output = Result<Answer, Status>>> Future for Caught<F> {
    type Output = Result<Answer, Status>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Unwind safe: the handler is dropped after a panic, so its state is never seen again.
        match catch_unwind(AssertUnwindSafe(|| this.handler.poll(cx))) {
            Ok(Poll::Ready(Err(status))) => Poll::Ready(Err(of_handler(status, this.method))),
            Ok(polled) => polled,
            Err(_) => Poll::Ready(Err(panicked(this.method))),
        }
    }
}

/// The default memory limits for messages of one connection and of all connections.
const CONNECTION_MEMORY_MAX: usize = 256 << 20;
const SERVER_MEMORY_MAX: usize = 1 << 30;

/// The default limit for the size of metadata.
const METADATA_LEN_MAX: usize = 8 * 1024;

/// Prepares the status of a handler for its caller. The code `Ok` is replaced, because some callers would not see a
/// failure. A status that the handler got from another server must not look like a refusal by this one.
pub(crate) fn of_handler(status: Status, method: &Method) -> Status {
    if status.code() == Code::Ok { failed_with_ok(status, method) } else { status.of_handler() }
}

#[cold]
fn failed_with_ok(status: Status, method: &Method) -> Status {
    error!(service = method.service, method = method.name, "a handler failed with the code Ok");
    Status::unknown(format!("the handler failed with the code Ok: {}", status.message()))
}

pub(crate) fn panicked(method: &Method) -> Status {
    error!(service = method.service, method = method.name, "a handler panicked");
    Status::internal("the handler panicked")
}
