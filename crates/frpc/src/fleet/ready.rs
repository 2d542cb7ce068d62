//! An endpoint with a connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use frisbee::Address;
use frpc_balance::{CallOutcomes, EndpointLoad, EndpointState, ServerReport};
use tokio::sync::Notify;

use super::{clock::FleetClock, connections::AddedConnections, server::ServerCaller};
use crate::call::{load_report::LoadReport, metadata::Metadata};

/// An endpoint with a connection.
#[derive(Clone)]
pub(crate) struct ReadyEndpoint(Arc<Ready>);

struct Ready {
    state: EndpointState,
    address: Address,
    caller: ServerCaller,
    clock: FleetClock,
    outcomes: CallOutcomes,
    added: AddedConnections,
    /// Notified when a call found that the connection takes no more calls.
    retired: Notify,
    has_answered: AtomicBool,
}

impl AsRef<EndpointState> for ReadyEndpoint {
    fn as_ref(&self) -> &EndpointState {
        &self.0.state
    }
}

impl ReadyEndpoint {
    pub(super) fn new(state: EndpointState, address: Address, caller: ServerCaller, clock: FleetClock) -> Self {
        let (outcomes, retired, has_answered) = (CallOutcomes::default(), Notify::new(), AtomicBool::new(false));
        let added = AddedConnections::new(&caller);
        Self(Arc::new(Ready { state, address, caller, clock, outcomes, added, retired, has_answered }))
    }

    #[inline]
    pub(crate) fn load(&self) -> &EndpointLoad {
        &self.0.state.load
    }

    pub(super) fn set_weight(&self, weight: u32) {
        self.0.state.weight.store(weight, Ordering::Relaxed);
    }

    pub(super) fn clock(&self) -> FleetClock {
        self.0.clock
    }

    /// Returns a number for the address.
    pub(super) fn hash(&self) -> u64 {
        self.0.state.hash
    }

    pub(super) fn address(&self) -> &Address {
        &self.0.address
    }

    pub(super) fn joined(&self) -> Duration {
        self.0.state.joined
    }

    /// Returns the connections in addition to the first.
    #[inline]
    pub(super) fn added(&self) -> &AddedConnections {
        &self.0.added
    }

    #[inline]
    pub(crate) fn caller(&self) -> &ServerCaller {
        &self.0.caller
    }

    /// Records the report of the server in the trailers of an answer.
    pub(super) fn note_report(&self, trailers: &Metadata) {
        if let Some(report) = LoadReport::read(trailers) {
            self.load().record_report(&report, self.0.clock.now());
        }
    }

    /// Records the load in the last PONG of the server. Returns `false` if the server owes a PONG for too long.
    pub(super) fn look(&self) -> bool {
        if let Some(in_flight) = self.0.caller.peer_load() {
            let report = ServerReport { in_flight: Some(in_flight), ..ServerReport::default() };
            self.load().record_report(&report, self.0.clock.now());
        }
        !self.0.caller.is_silent()
    }

    /// Waits until the connection takes no more calls.
    pub(super) async fn lost(&self) {
        tokio::select! {
            // A simulation needs a fixed order. Both events have the same effect.
            biased;
            () = self.0.caller.caller().lost() => {}
            () = self.0.retired.notified() => {}
        }
    }

    /// Removes the endpoint from the picker until it has another connection.
    pub(super) fn retire(&self) {
        self.0.retired.notify_one();
    }

    pub(super) fn has_answered(&self) -> bool {
        self.0.has_answered.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn outcomes(&self) -> &CallOutcomes {
        &self.0.outcomes
    }

    #[inline]
    pub(super) fn note_answer(&self) {
        // Read first: the line stays shared between the threads of the callers.
        if !self.has_answered() {
            self.0.has_answered.store(true, Ordering::Relaxed);
        }
    }
}
