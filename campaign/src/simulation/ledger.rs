//! The checker: all that callers, handlers and subscribers have seen.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use frpc::{CallError, Code, Status};
use tokio::time::Instant;

/// The record of one simulated world. Each rule that is broken becomes a violation.
pub(super) struct Ledger {
    start: Instant,
    state: Mutex<LedgerState>,
    /// Prints each event: the variable `FRPC_CAMPAIGN_TRACE`.
    is_traced: bool,
}

#[derive(Default)]
struct LedgerState {
    calls: Vec<CallRecord>,
    violations: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    /// The virtual time skipped by jumps of the clock.
    jumped: Duration,
    digest: DefaultHasher,
}

struct CallRecord {
    /// The method, the wire and the nodes, for reports.
    name: String,
    executions: u32,
    outcomes: u32,
    outcome: Option<CallOutcome>,
}

/// The end of a call for its caller.
#[derive(Clone, Debug)]
pub(super) enum CallOutcome {
    /// Every expected answer arrived.
    Answered,
    /// The call failed after this number of answers.
    Failed { status: Status, answers: u64 },
    /// The caller dropped the call.
    Cancelled,
    /// The call was a notification.
    Notified,
}

impl Ledger {
    pub(super) fn new() -> Self {
        let is_traced = std::env::var_os("FRPC_CAMPAIGN_TRACE").is_some();
        Self { start: Instant::now(), state: Mutex::default(), is_traced }
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trace(&self, event: impl FnOnce() -> String) {
        if self.is_traced {
            eprintln!("{:?} {}", self.elapsed(), event());
        }
    }

    /// Returns the virtual time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Begins a call. Returns its number.
    pub(super) fn begin_call(&self, name: String) -> u64 {
        let mut state = self.state();
        let call = state.calls.len() as u64;
        self.trace(|| format!("call {call}: {name}"));
        state.calls.push(CallRecord { name, executions: 0, outcomes: 0, outcome: None });
        call
    }

    /// Counts the start of a handler.
    pub(super) fn execute(&self, call: u64) {
        let now = self.elapsed();
        let mut state = self.state();
        (call, "executed", now).hash(&mut state.digest);
        self.trace(|| format!("call {call} is executed"));
        match state.calls.get_mut(index(call)) {
            Some(record) => record.executions += 1,
            None => state.violations.push(format!("a handler got call {call}, which no caller has made")),
        }
    }

    /// Ends a call.
    pub(super) fn end_call(&self, call: u64, outcome: CallOutcome) {
        let now = self.elapsed();
        let mut state = self.state();
        let text = match &outcome {
            CallOutcome::Failed { status, answers } => format!("{answers} {:?}", status.code()),
            other => format!("{other:?}"),
        };
        self.trace(|| format!("call {call} has ended: {text}"));
        (call, text, now).hash(&mut state.digest);
        let record = &mut state.calls[index(call)];
        record.outcomes += 1;
        record.outcome = Some(outcome);
    }

    /// Adds a broken rule.
    pub(super) fn violate(&self, what: String) {
        let now = self.elapsed();
        let mut state = self.state();
        self.trace(|| what.clone());
        what.hash(&mut state.digest);
        state.violations.push(format!("after {now:.3?}: {what}"));
    }

    /// Counts an event for the totals.
    pub(super) fn count(&self, what: &'static str, number: u64) {
        let now = self.elapsed();
        let mut state = self.state();
        self.trace(|| format!("{number} {what}"));
        (what, number, now).hash(&mut state.digest);
        *state.counts.entry(what).or_default() += number;
    }

    /// Notes a jump of the clock.
    pub(super) fn jump(&self, by: Duration) {
        self.state().jumped += by;
    }

    /// Returns the virtual time skipped by jumps so far.
    pub(super) fn jumped(&self) -> Duration {
        self.state().jumped
    }

    /// Checks all calls after the end of the world, and returns the counts, the violations and a digest of all events.
    pub(super) fn close(&self) -> (BTreeMap<&'static str, u64>, Vec<String>, u64) {
        let mut state = self.state();
        let LedgerState { calls, violations, counts, digest, .. } = &mut *state;
        for (call, record) in calls.iter().enumerate() {
            let CallRecord { name, executions, outcomes, outcome } = record;
            let mut violate = |what: String| violations.push(format!("call {call}, {name}: {what}"));
            if *outcomes != 1 {
                violate(format!("{outcomes} outcomes"));
            }
            if *executions > 1 {
                violate(format!("executed {executions} times; {outcome:?}"));
            }
            let count = match outcome {
                Some(CallOutcome::Answered) => {
                    if *executions == 0 {
                        violate("answered without an execution".to_owned());
                    }
                    "answered"
                }
                Some(CallOutcome::Failed { status, answers }) => match judge(status) {
                    Some(Verdict::Handler) if *executions == 0 => {
                        violate(format!("a handler's status without an execution: {status}"));
                        "failed by handlers"
                    }
                    Some(Verdict::Handler) => "failed by handlers",
                    Some(Verdict::NotExecuted) => {
                        if *executions > 0 || *answers > 0 {
                            violate(format!(
                                "executed, but reported as safe to repeat: {status} ({:?})",
                                status.call_error()
                            ));
                        }
                        "failed, not executed"
                    }
                    Some(Verdict::Uncertain) => "failed, maybe executed",
                    None => {
                        violate(format!("an unexpected status: {status:?}"));
                        "failed"
                    }
                },
                Some(CallOutcome::Cancelled) => "cancelled",
                Some(CallOutcome::Notified) => "notifications",
                None => "without an outcome",
            };
            *counts.entry(count).or_default() += 1;
        }
        counts.insert("calls", calls.len() as u64);
        (counts.clone(), violations.clone(), digest.finish())
    }
}

enum Verdict {
    Handler,
    NotExecuted,
    Uncertain,
}

/// Sorts a status by its promise. `None` if no part of the stack should return it.
fn judge(status: &Status) -> Option<Verdict> {
    match status.call_error() {
        Some(error @ CallError::MessageTooLarge { .. }) => panic!("simulated messages are short: {error}"),
        Some(error) if error.is_safe_to_repeat() => return Some(Verdict::NotExecuted),
        Some(_) => return Some(Verdict::Uncertain),
        None => {}
    }
    match status.code() {
        Code::Aborted if status.message() == HANDLER_FAILURE => Some(Verdict::Handler),
        Code::Unavailable if status.message() == "an injected failure" => Some(Verdict::NotExecuted),
        // From a server: its timer, its end, or the end of a stream of requests.
        Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable => Some(Verdict::Uncertain),
        _ => None,
    }
}

fn index(call: u64) -> usize {
    usize::try_from(call).unwrap_or(usize::MAX)
}

/// The message of the status of a handler that fails as ordered.
pub(super) const HANDLER_FAILURE: &str = "failed as ordered";
