//! The state of frpc on a frisbee connection, on either side: this side's settings, the peer, and how to call its
//! methods.

use std::{
    ptr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use frisbee::{Connection, Operation, PeerProtocol};
use tokio::sync::OnceCell;

use super::{
    bytes::{
        compressed::{BudgetedBytes, CannotInflate, CompressionHeader, InflateBudget, InflatePermit, PeerCompression},
        hello::{MethodRoute, PART_NAME, PeerHello, is_received},
    },
    calling::pending::PendingCalls,
};
use crate::{
    call::{method::Method, status::Status},
    codec::{Compression, Format},
    service::{settings::CompressionSettings, table::MethodTable},
    wire::call_limit::CallCounter,
};

/// The settings of this side for all its connections.
#[derive(Debug)]
pub(crate) struct LocalSettings {
    /// The methods of this side. A packet with one of their operations is a request, so these operations cannot
    /// be called on the peer.
    pub(crate) serves: MethodTable,
    /// The maximum size of the metadata that the peer may send with a call or an answer.
    pub(crate) metadata_max: usize,
    pub(crate) compressing: CompressionSettings,
    /// True if messages of the peer may lose values here:
    /// [`MessageSettings::accept_narrowing`](crate::MessageSettings::accept_narrowing).
    pub(crate) accepts_narrowing: bool,
}

/// The state of frpc on a connection, on either side.
pub(crate) struct PeerState {
    pub(crate) own: Arc<LocalSettings>,
    /// The calls made from this side. Empty until the first one.
    pub(crate) calls: OnceLock<Arc<PendingCalls>>,
    /// The number of the connection in its table of calls.
    pub(crate) number: u64,
    /// The budget for inflated messages of the peer.
    inflated: InflateBudget,
    /// The number of concurrent unary calls of the peer, if [limited](crate::CallSettings::calls_max).
    pub(crate) served: CallCounter,
    /// The frpc part of the peer's HELLO, once the peer is recognized. `None` for a peer with plain fRPC.
    hello: OnceLock<Option<PeerHello>>,
    /// The methods looked up so far, in a hash table keyed by the low bits of their local operation.
    routes: [OnceLock<Box<KnownMethod>>; ROUTES_LEN],
}

/// The result of comparing the messages of a method, once known.
pub(crate) type SchemaCheck = OnceCell<Result<(), Status>>;

#[derive(Debug)]
struct KnownMethod {
    method: &'static Method,
    /// The address of the method in the last lookup. Comparing it is faster than comparing methods.
    seen: AtomicPtr<Method>,
    route: MethodRoute,
    /// The operation for plain packets, if a plain packet is sufficient.
    plain: Option<Operation>,
    /// The result of comparing the message types of the two peers, if they differ.
    check: SchemaCheck,
    next: OnceLock<Box<KnownMethod>>,
}

impl PeerState {
    /// Attaches a state to a new connection. If services are nested, the outer ones own the state.
    pub(crate) fn attach(own: Arc<LocalSettings>, connection: &Connection, calls: OnceLock<Arc<PendingCalls>>) {
        let number = calls.get().map_or(0, |calls| calls.open());
        let inflated = InflateBudget::new(&own.compressing, connection.config().content_len_max);
        let (served, hello, routes) = (CallCounter::default(), OnceLock::new(), Default::default());
        let _ = connection.set_state(Arc::new(Self { own, calls, number, inflated, served, hello, routes }));
    }

    /// Returns the state of a connection. `None` if frpc does not serve the connection.
    #[inline]
    pub(crate) fn of(connection: &Connection) -> Option<&Arc<Self>> {
        connection.state()
    }

    /// Returns the state of a connection with a recognized peer.
    pub(crate) fn recognized(connection: &Connection) -> Option<&Arc<Self>> {
        let state = Self::of(connection)?;
        state.hello(connection).map(|_| state)
    }

    /// Returns the frpc part of the peer's HELLO. The outer option is `None` until the peer is recognized.
    fn hello(&self, connection: &Connection) -> Option<Option<&PeerHello>> {
        if self.hello.get().is_none() {
            let hello = match connection.peer() {
                PeerProtocol::Extended(hello) => {
                    let has_ours = is_received(&self.own.serves, hello.content_len_max);
                    let mut part = hello.part(PART_NAME).and_then(|part| PeerHello::decode(part.clone()));
                    part.iter_mut().for_each(|part| part.has_ours = has_ours);
                    part
                }
                PeerProtocol::Plain => None,
                _ => return None,
            };
            let _ = self.hello.set(hello);
        }
        self.hello.get().map(Option::as_ref)
    }

    /// Returns the frpc part of a recognized peer, if it takes extended packets.
    pub(crate) fn extended(&self) -> Option<&PeerHello> {
        self.hello.get()?.as_ref().filter(|hello| hello.has_ours)
    }

    /// Returns the frpc part of the peer of a connection, if the peer takes extended packets.
    pub(crate) fn extended_on(connection: &Connection) -> Option<&PeerHello> {
        Self::hello_on(connection).filter(|hello| hello.has_ours)
    }

    /// Returns the frpc part of the peer of a connection, if the peer has sent one.
    pub(crate) fn hello_on(connection: &Connection) -> Option<&PeerHello> {
        Self::of(connection)?.hello(connection).flatten()
    }

    /// Returns the maximum size of metadata to the peer, on a connection served by frpc.
    pub(crate) fn metadata_max(connection: &Connection) -> usize {
        Self::hello_on(connection).map_or(0, |hello| hello.metadata_len_max)
    }

    /// Returns the announced default timeout of the peer's unary calls.
    #[inline]
    pub(crate) fn announced(connection: &Connection) -> Option<Duration> {
        Self::of(connection)?.hello.get()?.as_ref()?.timeout
    }

    /// Returns the compression settings for messages to the peer of a connection, if any.
    pub(crate) fn deflating(connection: &Connection) -> Option<PeerCompression> {
        let compressing = &Self::of(connection)?.own.compressing;
        if !compressing.compresses() {
            return None;
        }
        PeerCompression::choose(compressing, &Self::extended_on(connection)?.inflates, connection.content_len_max())
    }

    /// Inflates bytes of the peer, if the budget allows it now. They use the budget until the last slice of them is
    /// dropped.
    pub(crate) fn inflate(
        connection: &Connection,
        compressed: CompressionHeader,
        bytes: &[u8],
    ) -> Result<Bytes, CannotInflate> {
        let (state, algorithm) = Self::check(connection, compressed)?;
        let held = state.inflated.try_hold(compressed)?;
        Ok(Bytes::from_owner(BudgetedBytes { bytes: compressed.inflate(algorithm, bytes)?, _held: held }))
    }

    /// Inflates the request of a call.
    ///
    /// Waits for the budget up to the time limit of waiting packets, because the calls that use it may depend on this
    /// one.
    pub(crate) async fn inflate_request(
        connection: &Connection,
        compressed: CompressionHeader,
        bytes: &[u8],
    ) -> Result<(Bytes, InflatePermit), CannotInflate> {
        let (state, algorithm) = Self::check(connection, compressed)?;
        let held = state.inflated.hold(compressed, connection.config().handlers_stall_max).await?;
        Ok((compressed.inflate(algorithm, bytes)?, held))
    }

    /// Inflates the message of an answer. It counts against no budget, because its caller takes it immediately.
    pub(crate) fn inflate_answer(
        connection: &Connection,
        compressed: CompressionHeader,
        bytes: &[u8],
    ) -> Result<Bytes, Status> {
        let checked = Self::check(connection, compressed);
        checked.and_then(|(_, algorithm)| compressed.inflate(algorithm, bytes)).map_err(CannotInflate::answer_status)
    }

    /// Checks the limits before anything waits or allocates.
    fn check(connection: &Connection, compressed: CompressionHeader) -> Result<(&Self, Compression), CannotInflate> {
        let state = Self::of(connection).ok_or_else(|| compressed.unknown())?;
        let algorithm = compressed.check(&state.own.compressing, connection.config().content_len_max)?;
        Ok((state, algorithm))
    }

    /// Returns how to call a method of a recognized peer. Computed once per method.
    #[inline]
    pub(crate) fn route(&self, method: &'static Method) -> MethodRoute {
        self.known(method).route
    }

    /// Returns the operation for plain packets, if a plain packet is sufficient and this side does not serve the
    /// operation.
    #[inline]
    pub(crate) fn plain_operation(&self, method: &'static Method) -> Option<Operation> {
        self.known(method).plain
    }

    /// Returns the operation and the comparison result of a method with different messages on the peer.
    pub(crate) fn differing(&self, method: &'static Method) -> Option<(u16, &SchemaCheck)> {
        let known = self.known(method);
        match known.route {
            MethodRoute::Extended { operation, format: Format::Proto } => Some((operation, &known.check)),
            MethodRoute::Extended { .. } | MethodRoute::Plain | MethodRoute::Missing => None,
        }
    }

    /// Returns `true` if a method has the same messages on the peer, or was found to have fitting ones.
    pub(crate) fn fits(&self, method: &'static Method) -> bool {
        self.differing(method).is_none_or(|(_, check)| matches!(check.get(), Some(Ok(()))))
    }

    #[inline]
    fn known(&self, method: &'static Method) -> &KnownMethod {
        let mut slot = &self.routes[usize::from(method.operation) % ROUTES_LEN];
        loop {
            // A method that another task has inserted in the meantime comes earlier in the chain.
            let known = slot.get_or_init(|| Box::new(self.find(method)));
            if ptr::eq(known.seen.load(Ordering::Relaxed), method) {
                return known;
            }
            // A copy of the constant is equal by value. Its address is stored, because it is probably the next one
            // looked up.
            if known.method == method {
                known.seen.store(ptr::from_ref(method).cast_mut(), Ordering::Relaxed);
                return known;
            }
            slot = &known.next;
        }
    }

    #[cold]
    fn find(&self, method: &'static Method) -> KnownMethod {
        debug_assert!(self.hello.get().is_some(), "routes are stored for good, so they need a recognized peer");
        let route = self.extended().map_or(MethodRoute::Plain, |hello| hello.find(method));
        let plain = match route {
            MethodRoute::Plain => Some(method.operation),
            MethodRoute::Extended { operation, format: Format::Polyglot } => Some(operation),
            MethodRoute::Extended { .. } | MethodRoute::Missing => None,
        };
        let plain = plain.filter(|operation| !self.own.serves.contains(*operation)).and_then(Operation::new);
        let seen = AtomicPtr::new(ptr::from_ref(method).cast_mut());
        KnownMethod { method, seen, route, plain, check: SchemaCheck::new(), next: OnceLock::new() }
    }
}

const ROUTES_LEN: usize = 16;
