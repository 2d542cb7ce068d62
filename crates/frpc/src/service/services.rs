//! The services of one side, and the way of a call to one of them.

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

/// Services, and a router for whatever is no call to one of them. A router itself, so it serves any frisbee connection.
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
/// A small answer goes straight to the connection, so the outcome of [`route`](frisbee::Router::route) is then
/// [`Outcome::Nothing`](frisbee::Outcome::Nothing): what wraps calls is a [`Layer`](crate::Layer), not a router around this one.
///
/// A service that a flag switches on is added by [`add_optional_service`](Self::add_optional_service), a list of services
/// of different types by [`add_services`](Self::add_services).
#[derive(Clone, Debug)]
pub struct Services<S = (), R = Unimplemented> {
    services: S,
    table: MethodTable,
    layers: Layers,
    metadata_len_max: usize,
    /// The names of metadata that calls of handlers inherit.
    inherited: Vec<String>,
    pub(crate) compressing: Compressing,
    pub(crate) accepts_narrowing: bool,
    memory: MemoryBudget,
    pub(crate) times: ServerTimes,
    /// Tells calls with streams that they have to end, because the server does.
    ending: Ending,
    connection_memory_max: usize,
    account: MemoryAccount,
    pub(crate) calls_max: Option<u32>,
    /// True as long as neither of these two says anything, which is all that most calls look at.
    pub(crate) is_unlimited: bool,
    pub(crate) fallback: R,
}

/// The router of last resort: answers every call with [`Code::Unimplemented`](crate::Code::Unimplemented), and refuses
/// every other stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unimplemented;

impl Services {
    /// Makes a set without services.
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

    /// Adds a service if there is one. Calls to one that is absent are answered as those to any unknown method.
    pub fn add_optional_service<T: Service>(self, service: Option<T>) -> Services<(S, Option<T>), R> {
        let methods = if service.is_some() { T::METHODS } else { &[] };
        self.add(service, [methods])
    }

    /// Adds services whose types are not told. Each call to one of them costs an allocation.
    pub fn add_services(self, services: impl IntoIterator<Item = BoxService>) -> Services<(S, Vec<BoxService>), R> {
        let services: Vec<BoxService> = services.into_iter().collect();
        let methods: Vec<&'static [Method]> = services.iter().map(BoxService::methods).collect();
        self.add(services, methods)
    }

    /// Puts a layer around all services, those that are still to be added as well, behind the layers that are there.
    pub fn layer(self, layer: impl Layer) -> Self {
        Self { layers: self.layers.with(layer), ..self }
    }

    /// Sets the size of the metadata that a call may bring, as [`Metadata::size`](crate::Metadata::size) counts it and two for
    /// each value. Default 8 KiB, at most 65 535. A call that brings more is answered with
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted). Callers are told, and fail before they send.
    pub fn metadata_len_max(self, metadata_len_max: usize) -> Self {
        Self { metadata_len_max: metadata_len_max.min(u16::MAX.into()), ..self }
    }

    /// Has calls that handlers make take along the metadata of these names that came with the call they serve, such as
    /// `traceparent`, unless they set values of their own. They always inherit its deadline. Both hold for calls that the
    /// handler itself makes, not for those of tasks that it spawns; [`Inherited`](crate::Inherited) takes them along to a thread.
    pub fn inherit_metadata(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { inherited: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the times that calls may take here, whatever their callers say.
    pub fn times(self, times: Times) -> Self {
        self.with_times(|own| own.all = times)
    }

    /// Sets the times that calls of one method may take here, in place of those for [all](Self::times).
    pub fn method_times(self, method: &'static Method, times: Times) -> Self {
        self.with_times(|own| own.methods.push((method, times)))
    }

    fn with_times(mut self, change: impl FnOnce(&mut ServerTimes)) -> Self {
        change(&mut self.times);
        self.is_unlimited = self.times.are_open() && self.calls_max.is_none();
        self
    }

    /// Sets the number of unary calls of one connection that may be under way at once. Default `None`: as many as the settings of
    /// the connection let wait and run. Callers are told: those beyond wait on their side, or
    /// [fail](crate::WhenFull::Fail) with [`CallError::TooManyForPeer`](crate::CallError::TooManyForPeer). A call that comes all
    /// the same is refused. Streams have [`Config::streams_max`](crate::Config::streams_max).
    ///
    /// Handlers that call each other back and forth over one connection need as many as they are deep, or the innermost waits
    /// until its time is up.
    pub fn calls_max(self, calls_max: impl Into<Option<u32>>) -> Self {
        let calls_max = calls_max.into();
        Self { calls_max, is_unlimited: self.times.are_open() && calls_max.is_none(), ..self }
    }

    /// Has answers compressed for callers that inflate this: messages of [`compression_len_min`](Self::compression_len_min)
    /// bytes or more, if they get shorter by it. Default: none are. Called again, it adds an algorithm for callers that do not
    /// inflate those before. Plain peers, such as Go clients, never get anything compressed.
    ///
    /// Compressing takes its time on the task of the handler. Whoever sees the length of compressed messages learns something of
    /// what is in them: do not compress secrets together with what others can choose.
    pub fn send_compressed(mut self, algorithm: Compression) -> Self {
        self.compressing.send.push(algorithm);
        self
    }

    /// Sets the length from which on messages are [compressed](Self::send_compressed). Default 1 KiB.
    pub fn compression_len_min(mut self, len_min: usize) -> Self {
        self.compressing.len_min = len_min;
        self
    }

    /// Sets how many bytes of messages may be inflated on a connection at the same time. Default 32 MiB; none at 0, which peers
    /// are told, so that they compress nothing. A message counts as long as its handler runs, messages of a stream that were
    /// compressed together until the next are asked for. One message within
    /// [`Config::content_len_max`](crate::Config::content_len_max), which bounds each when it is inflated, always fits when
    /// there is no other. A call beyond the limit waits for [`Config::handlers_stall_max`](crate::Config::handlers_stall_max),
    /// and then fails with [`ResourceExhausted`](crate::Code::ResourceExhausted), as streams do at once.
    ///
    /// Inflating takes its time on the task of the handler, up to that of one message of the largest length.
    pub fn inflated_len_max(mut self, inflated_len_max: usize) -> Self {
        self.compressing.inflated_len_max = inflated_len_max;
        self
    }

    /// Sets whether messages are accepted that lose values here because the peer has another version of the proto file: numbers
    /// that the type here does not hold (`int64` there and `int32` here: 2^40 becomes 0), and lists of entries that are maps here.
    /// Default: no, and calls of such methods fail with
    /// [`FailedPrecondition`](crate::Code::FailedPrecondition) before anything of them is sent. The side that reads a message
    /// decides: a server about requests, a caller about responses. The caller's log names the method and the field, whether calls
    /// fail or lose values, when a client is made or with the first call.
    ///
    /// Only callers over frisbee in Rust compare proto files. Callers that speak anything else are served as ever.
    pub fn accept_narrowing(self, accept: bool) -> Self {
        Self { accepts_narrowing: accept, ..self }
    }

    /// Sets how many bytes a message of a caller may take in memory when it is read, whatever its format. Default
    /// [`MemoryBudget`]: 128 MiB, or more where messages may be longer than 4 MiB. Beyond, a call is answered with
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted) and its message is not read. Polyglot and JSON have limits of their
    /// own besides, for each byte of input.
    pub fn message_memory_max(self, message_memory_max: usize) -> Self {
        Self { memory: MemoryBudget::new(message_memory_max), ..self }
    }

    /// Sets how many bytes of memory the messages of one connection may take together: those that are being received, and requests
    /// while their handlers run, with what they take when they are read. Default 256 MiB. A call beyond is answered with
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted) and not executed.
    ///
    /// It holds for the wires of HTTP and JSON-RPC; connections of frisbee have
    /// [`Config::handlers_len_max`](crate::Config::handlers_len_max) and [`Config::streams_len_max`](crate::Config::streams_len_max).
    /// Anything below 16 KiB does not count, nor does the memory of messages of less than 512 bytes once they are read, or of messages
    /// of streams once they are read.
    pub fn connection_memory_max(self, connection_memory_max: usize) -> Self {
        Self { connection_memory_max, ..self }
    }

    /// Sets how many bytes of memory the messages of all connections may take together, as
    /// [`connection_memory_max`](Self::connection_memory_max) counts them. Default 1 GiB. Requests in polyglot count with their
    /// length, from 64 KiB on.
    pub fn server_memory_max(self, server_memory_max: usize) -> Self {
        Self { account: MemoryAccount::of_server(server_memory_max), ..self }
    }

    pub(crate) fn account(&self) -> &MemoryAccount {
        &self.account
    }

    pub(crate) fn connection_account(&self) -> MemoryAccount {
        MemoryAccount::of_connection(self.connection_memory_max, &self.account)
    }

    /// Has what a message takes counted, on the account of its connection if its wire has one.
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

    /// Ends the additions: finds a method that is there twice, and tells all services what is beside them.
    pub(crate) fn complete(&self) -> Result<(), Collision> {
        self.table.check()?;
        let methods: Vec<&'static Method> = self.table.methods().map(|entry| entry.method).collect();
        self.services.beside(&methods);
        Ok(())
    }

    /// Tells all services that the server begins to shut down.
    pub(crate) fn shutting_down(&self) {
        self.services.shutting_down();
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Returns what tells calls with streams that they have to end.
    pub(crate) fn ending(&self) -> &Ending {
        &self.ending
    }

    pub(crate) fn table(&self) -> &MethodTable {
        &self.table
    }

    pub(crate) fn inherited_names(&self) -> &[String] {
        &self.inherited
    }

    /// Has a method handle a call, in a scope in which the calls of the handler inherit from it. A panic of the handler is a
    /// status.
    #[inline(always)]
    pub(crate) fn call(&self, entry: Entry, call: Call) -> impl Future<Output = Result<Answer, Status>> + Send {
        self.call_in(Scope::of(call.head(), &self.inherited), entry, call)
    }

    /// Has a method handle a call in this scope.
    // Not an async function, into whose state the call would be moved once more, and as little as its callers.
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

/// Puts a handler into the scope of its call, makes a status of its panic, and holds memory until it is dropped.
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

/// Has a method handle a call behind the layers. Boxed, so that only calls with layers hold the memory for it.
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
    /// A handler whose panic is a status, and none of whose statuses looks like a refusal of this side.
    struct Caught<F> {
        #[pin]
        handler: F,
        method: &'static Method,
        // Until the handler is dropped.
        hold: Option<MemoryHold>,
    }
}

impl<F: Future<Output = Result<Answer, Status>>> Future for Caught<F> {
    type Output = Result<Answer, Status>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The state that a panic leaves behind is dropped, and nothing sees it half changed.
        match catch_unwind(AssertUnwindSafe(|| this.handler.poll(cx))) {
            Ok(Poll::Ready(Err(status))) => Poll::Ready(Err(of_handler(status, this.method))),
            Ok(polled) => polled,
            Err(_) => Poll::Ready(Err(panicked(this.method))),
        }
    }
}

/// The memory of messages of one connection and of all, unless somebody sets others.
const CONNECTION_MEMORY_MAX: usize = 256 << 20;
const SERVER_MEMORY_MAX: usize = 1 << 30;

/// The size of metadata unless somebody sets another.
const METADATA_LEN_MAX: usize = 8 * 1024;

/// Returns the status of a handler as callers may get it. One with the code Ok would be no failure to some of them, and one that the
/// handler got from another server must not look like a refusal by this one.
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
