//! The circumstances of a call, for the functions that ask.

use std::{future::Future, sync::Arc, time::Instant};

use frpc::{Address, CancelGuard, Extensions, Head, Metadata, codec::MemoryBudget};

/// The circumstances of a call: its caller, its metadata, its deadline, and the states that were given to the functions.
///
/// A function gets it as an argument of the type `&Context` or `Context`; callers do not see it.
///
/// ```
/// use frpc_jsonrpc::{Context, function};
///
/// /// Tells who calls.
/// #[function]
/// fn who_am_i(context: &Context) -> String {
///     context.peer_addr().map_or_else(|| "somebody in this process".to_owned(), |peer| peer.to_string())
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Context {
    head: Head,
    states: Arc<Extensions>,
    memory: MemoryBudget,
}

impl Context {
    pub(crate) fn new(head: Head, states: Arc<Extensions>) -> Self {
        Self { head, states, memory: MemoryBudget::default() }
    }

    /// Sets how much memory the arguments may take.
    pub(crate) fn with_memory_budget(self, memory: MemoryBudget) -> Self {
        Self { memory, ..self }
    }

    pub(crate) fn memory_budget(&self) -> MemoryBudget {
        self.memory
    }

    /// Sets when the call ends, for the next one.
    pub(crate) fn set_deadline(&mut self, at: Instant) {
        self.head.set_deadline(at);
    }

    /// Returns that of a call with this head, with the same states.
    pub(crate) fn with_head(&self, head: Head) -> Self {
        Self { head, states: self.states.clone(), memory: self.memory }
    }

    /// Returns that of one call, whose caller has given up once the guard is dropped.
    pub(crate) fn of_call(&self) -> (Self, CancelGuard) {
        let mut context = self.clone();
        let guard = context.head.cancel_on_drop();
        (context, guard)
    }

    /// Returns what goes with the call.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the address that the call came from. `None` for a call of this process.
    pub fn peer_addr(&self) -> Option<Address> {
        self.head.peer_addr()
    }

    /// Returns the names and values that travelled with the call: over HTTP its headers, over frisbee its metadata, over TCP none.
    pub fn metadata(&self) -> &Metadata {
        self.head.metadata()
    }

    /// Returns when the call ends: its caller gives up, or the [limit](crate::JsonRpc::call_time_max) is reached, if there is either.
    /// Calls that the function makes end then as well.
    pub fn deadline(&self) -> Option<Instant> {
        self.head.deadline()
    }

    /// Waits until the caller has given up or its time is over, for what a function leaves behind; see [`Head::cancelled`]. Once the call
    /// is answered, it waits for ever. A caller of JSON-RPC over TCP that has closed its side may still read: it has given up after
    /// [`half_closed_max`](crate::JsonRpc::half_closed_max).
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.head.cancelled()
    }

    /// Returns the [state](super::Functions::state) of this type, if one was given to the functions.
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.states.get()
    }
}
