//! Attempts of one call in parallel, on different endpoints.

use std::future::pending;

use frpc_balance::{HedgingPolicy, RetryPushback};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::{
    attempt::Attempt,
    calling::{FleetCall, code_number},
    clock::after,
};
use crate::{
    call::{exchange::Answer, status::Status},
    error::recognize_refusal,
};

impl FleetCall {
    /// Makes a call with one request and one answer. While none arrives, further attempts begin after the delay of the
    /// policy, and failed attempts are repeated by the rules for retries. The first answer counts, and the other attempts
    /// are cancelled.
    pub(super) async fn hedged(mut self, policy: HedgingPolicy) -> Result<Answer, Status> {
        let (latencies, start) = (self.fleet.latencies(self.method), Instant::now());
        let p95 = latencies.p95(start.into_std());
        let mut running = FuturesUnordered::new();
        let mut started = 1;
        running.push(self.begin_parallel());
        let mut next = policy.delay(started, p95).map(after);
        // `true` if the next attempt is a retry, which the budget has allowed.
        let mut is_allowed = false;
        let mut failure = None;
        loop {
            let is_due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            let ended = tokio::select! {
                biased;
                Some(ended) = running.next() => Some(ended),
                () = is_due => None,
            };
            match ended {
                Some(Ok((mut attempt, Ok(answer)))) => {
                    attempt.answered();
                    attempt.note_report(answer.trailers());
                    let now = Instant::now();
                    latencies.record(now - start, now.into_std());
                    self.succeed();
                    return Ok(answer);
                }
                Some(Ok((mut attempt, Err(status)))) => {
                    self.fleet.record_failure(&mut attempt, &status);
                    self.attempts.note_tried(&attempt);
                    drop(attempt);
                    let pushback = status.metadata().get(RetryPushback::NAME).map(RetryPushback::parse);
                    let parallel = policy.delay_after_failure(started, code_number(&status), pushback);
                    is_allowed = parallel.is_none();
                    let is_last =
                        self.rules.retry.as_ref().is_some_and(|retry| self.attempts.made >= retry.attempts_max);
                    let pause = parallel.or_else(|| if is_last { None } else { self.pause_after(&status) });
                    // A server may ask for a pause of any length.
                    let is_in_time = |at: &Instant| self.time.opening.at.is_none_or(|deadline| *at < deadline);
                    next = pause.map(after).filter(is_in_time);
                    if next.is_none() && policy.is_fatal(code_number(&status)) {
                        return Err(status);
                    }
                    failure = Some(status);
                }
                Some(Err(status)) if running.is_empty() => return Err(status),
                Some(Err(_)) => {}
                None if !is_allowed && !self.fleet.may_repeat() => next = None,
                None => {
                    self.fleet.count_repeat(self.method, !is_allowed);
                    debug!(attempts = self.attempts.made, is_hedge = !is_allowed, "another attempt begun");
                    running.push(self.begin_parallel());
                    started += 1;
                    is_allowed = false;
                    next = policy.delay(started, p95).map(after);
                }
            }
            if running.is_empty() && next.is_none() {
                return Err(failure.unwrap_or_else(|| Status::unavailable("no attempt of the call remains")));
            }
        }
    }

    /// Returns a future for one more attempt.
    fn begin_parallel(
        &mut self,
    ) -> impl Future<Output = Result<(Attempt, Result<Answer, Status>), Status>> + Send + use<> {
        let (fleet, deadline, key, waits, method) =
            (self.fleet.clone(), self.time.opening, self.key, self.rules.waits_for_ready, self.method);
        let (tried, call) = (self.attempts.tried().to_vec(), self.next_call());
        // Further attempts avoid this endpoint, which is known only if one is ready now.
        let picked = fleet.try_begin(fleet.clock.now(), key, &tried);
        picked.iter().for_each(|attempt| self.attempts.note_tried(attempt));
        async move {
            let attempt = match picked {
                Some(attempt) => attempt,
                None => fleet.begin(deadline, key, &tried, waits, method).await?,
            };
            debug!(server = %attempt.endpoint().address(), "server picked");
            let outcome = attempt.server().caller().call(call).await.map_err(recognize_refusal);
            Ok((attempt, outcome))
        }
    }
}
