//! One attempt of a call on a picked endpoint.

use std::{sync::Arc, time::Duration};

use frisbee::{OpenError, RefusalReason};

use super::{connections::AddedCall, ready::ReadyEndpoint, server::ServerCaller};
use crate::{
    call::{
        metadata::Metadata,
        status::{Code, Status},
    },
    client::needs_another_connection,
    error::CallError,
    wire::frisbee::calling::reconnecting::FrisbeeCaller,
};

/// A call in flight to one endpoint. It is counted there until it is dropped.
pub(crate) struct Attempt {
    endpoint: ReadyEndpoint,
    /// The place on another connection than the first.
    added: Option<AddedCall>,
    started: Duration,
    state: AttemptState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptState {
    /// Its answer measures the latency of the endpoint.
    Measured,
    Unmeasured,
    /// It has an outcome, or needs none.
    Over,
}

/// An attempt over frisbee.
pub(crate) struct FrisbeeAttempt(Attempt);

impl FrisbeeAttempt {
    #[inline]
    pub(super) fn new(attempt: Attempt) -> Option<Self> {
        matches!(attempt.endpoint.caller(), ServerCaller::Frisbee(_)).then_some(Self(attempt))
    }

    #[inline]
    pub(crate) fn note_report(&self, trailers: &Metadata) {
        self.0.endpoint.note_report(trailers);
    }

    #[inline]
    pub(crate) fn frisbee(&self) -> &Arc<FrisbeeCaller> {
        match self.0.server() {
            ServerCaller::Frisbee(connection) => connection,
            ServerCaller::Other(_) => unreachable!("it was begun over frisbee"),
        }
    }

    /// Records an answer.
    #[inline]
    pub(crate) fn answered(mut self) {
        self.0.answered();
    }
}

impl From<FrisbeeAttempt> for Attempt {
    fn from(FrisbeeAttempt(attempt): FrisbeeAttempt) -> Self {
        attempt
    }
}

/// The reason to make another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The call was certainly not executed.
    NotExecuted,
    /// The call may have been executed, or a server has answered with a status. The rules of the method decide.
    ByRules,
}

impl Attempt {
    #[inline]
    pub(super) fn begin(endpoint: ReadyEndpoint, now: Duration) -> Self {
        let state = if endpoint.load().begin() { AttemptState::Measured } else { AttemptState::Unmeasured };
        let added = endpoint.added().begin(endpoint.load().in_flight());
        Self { endpoint, added, started: now, state }
    }

    #[inline]
    pub(crate) fn server(&self) -> &ServerCaller {
        self.added.as_ref().map_or_else(|| self.endpoint.caller(), AddedCall::caller)
    }

    /// Removes the connection of the attempt from the choice.
    fn retire(&self) {
        match &self.added {
            Some(added) => added.retire(),
            None => self.endpoint.retire(),
        }
    }

    pub(super) fn endpoint_hash(&self) -> u64 {
        self.endpoint.hash()
    }

    /// Records an answer.
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.endpoint.note_answer();
        self.endpoint.outcomes().succeed();
        if std::mem::replace(&mut self.state, AttemptState::Over) == AttemptState::Measured {
            let now = self.endpoint.clock().now();
            let latency = now.saturating_sub(self.started);
            self.endpoint.outcomes().measure(latency);
            self.endpoint.load().record(latency, now);
        }
    }

    /// Records the report of the server in the trailers of its answer.
    pub(crate) fn note_report(&self, trailers: &Metadata) {
        self.endpoint.note_report(trailers);
    }

    pub(super) fn endpoint(&self) -> &ReadyEndpoint {
        &self.endpoint
    }

    /// Records the end of a cancelled attempt. Its answer would have taken at least this long.
    #[cold]
    fn give_up(&self) {
        let (now, in_row) = (self.endpoint.clock().now(), self.endpoint.outcomes().give_up());
        self.endpoint.load().record_wait(now.saturating_sub(self.started), in_row, now);
    }

    /// Returns `true` if the server has accepted the call, although it failed.
    pub(super) fn was_accepted(status: &Status) -> bool {
        status.call_error().is_none() && !matches!(status.code(), Code::Unavailable | Code::ResourceExhausted)
    }

    /// Records a failure. Returns the number of failures in a row.
    #[cold]
    pub(super) fn failed(&mut self, status: &Status) -> u32 {
        self.endpoint.note_report(status.metadata());
        if std::mem::replace(&mut self.state, AttemptState::Over) == AttemptState::Measured {
            let now = self.endpoint.clock().now();
            self.endpoint.load().record_wait(now.saturating_sub(self.started), 1, now);
        }
        match status.call_error() {
            None => self.endpoint.note_answer(),
            Some(CallError::Unreachable(_)) => self.retire(),
            Some(_) if needs_another_connection(status) => self.retire(),
            Some(_) => {}
        }
        if Repeat::of(status) == Some(Repeat::NotExecuted) && !needs_another_connection(status) {
            // A busy server is not broken, but should get fewer calls.
            self.endpoint.load().penalize(self.endpoint.clock().now());
            return 0;
        }
        if is_fault_of_server(status) {
            self.endpoint.load().penalize(self.endpoint.clock().now());
            return self.endpoint.outcomes().fail();
        }
        if status.call_error().is_none() {
            self.endpoint.outcomes().succeed();
        }
        0
    }
}

impl Drop for Attempt {
    #[inline]
    fn drop(&mut self) {
        self.endpoint.load().end();
        if self.state != AttemptState::Over {
            self.give_up();
        }
    }
}

impl Repeat {
    /// Returns the reason to repeat a call with this status, if there is one.
    pub(super) fn of(status: &Status) -> Option<Self> {
        match status.call_error() {
            _ if needs_another_connection(status) => Some(Self::NotExecuted),
            Some(
                CallError::Unreachable(_)
                | CallError::TooManyForPeer { .. }
                | CallError::TooManyStreams { why: OpenError::TooManyForPeer { .. } },
            ) => Some(Self::NotExecuted),
            Some(CallError::Refused { why: RefusalReason::Busy }) => Some(Self::NotExecuted),
            Some(CallError::ConnectionLost { .. }) => Some(Self::ByRules),
            None if status.was_refused() => Some(Self::NotExecuted),
            None => Some(Self::ByRules),
            _ => None,
        }
    }
}

/// Returns whether the status shows a fault of the server rather than of the request.
fn is_fault_of_server(status: &Status) -> bool {
    match status.call_error() {
        Some(
            CallError::TooManyCalls { .. }
            | CallError::TooManyStreams { why: OpenError::TooManyStreams { .. } }
            | CallError::MessageTooLarge { .. }
            | CallError::NotSent { .. },
        ) => false,
        Some(_) => true,
        None => matches!(
            status.code(),
            Code::Unavailable | Code::Internal | Code::Unknown | Code::DeadlineExceeded | Code::DataLoss
        ),
    }
}
