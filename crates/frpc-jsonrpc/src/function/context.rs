//! The context of a call.

use std::{future::Future, sync::Arc, time::Instant};

use frpc::{Address, CancelGuard, Extensions, Head, Metadata, codec::MemoryBudget};

/// The context of a call: its caller, metadata, deadline, and the states of the functions.
///
/// A function receives it through a parameter of type `&Context` or `Context`, invisible to callers.
///
/// ```
/// use frpc_jsonrpc::{Context, function};
///
/// /// Returns the address of the caller.
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

    /// Sets the memory limit for arguments.
    pub(crate) fn with_memory_budget(self, memory: MemoryBudget) -> Self {
        Self { memory, ..self }
    }

    pub(crate) fn memory_budget(&self) -> MemoryBudget {
        self.memory
    }

    /// Sets the deadline of the next call.
    pub(crate) fn set_deadline(&mut self, at: Instant) {
        self.head.set_deadline(at);
    }

    /// Returns a context with the same states for a call with `head`.
    pub(crate) fn with_head(&self, head: Head) -> Self {
        Self { head, states: self.states.clone(), memory: self.memory }
    }

    /// Returns the context of one call. Dropping the guard cancels the call.
    pub(crate) fn of_call(&self) -> (Self, CancelGuard) {
        let mut context = self.clone();
        let guard = context.head.cancel_on_drop();
        (context, guard)
    }

    /// Returns the head of the call.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the address of the caller, or `None` for a call within this process.
    pub fn peer_addr(&self) -> Option<Address> {
        self.head.peer_addr()
    }

    /// Returns the metadata of the call: headers over HTTP, metadata over frisbee, and nothing over TCP.
    pub fn metadata(&self) -> &Metadata {
        self.head.metadata()
    }

    /// Returns the deadline of the call: that of its caller or the [limit](crate::JsonRpcSettings::call_time_max) of the
    /// server, if any.
    ///
    /// Calls made by the function have the same deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.head.deadline()
    }

    /// Waits until the caller gives up or the deadline passes, for tasks spawned by a function; see
    /// [`Head::cancelled`].
    ///
    /// Once the call is answered, it never completes. A JSON-RPC caller over TCP or by POST may close its side and still
    /// read the answer. It counts as gone after [`half_closed_max`](crate::JsonRpcSettings::half_closed_max), by POST after the
    /// setting of that name of the HTTP wire.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.head.cancelled()
    }

    /// Returns the [state](super::Functions::state) of type `T`, if the functions have one.
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.states.get()
    }
}
