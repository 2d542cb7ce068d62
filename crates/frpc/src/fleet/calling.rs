//! A call to one of many servers: attempts, and the rules for another one.

use std::{future::ready, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use frisbee::Backoff;
use frpc_balance::{RetryProgress, RetryPushback, RetryTokens};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::{
    attempt::{Attempt, FrisbeeAttempt, Repeat},
    replay::ReplayedRequest,
    resolved::SharedCallPermit,
    routing::RouteRules,
    rules::{CallRules, HashKey},
    set::Fleet,
};
use crate::{
    call::{
        deadline::{CallTime, Deadline},
        exchange::{Answer, Body, Call},
        head::Head,
        metadata::Metadata,
        method::{Method, MethodKind},
        status::Status,
        streaming::{MetadataSlot, Streaming},
    },
    client::{caller::Caller, with_own_timeout},
    codec::{Format, json::Types},
    error::{CallError, recognize_refusal},
    service::boxed::BoxFuture,
    wire::frisbee::calling::request::UnaryRequest,
};

/// One call, whatever the number of its attempts.
pub(super) struct FleetCall {
    pub(super) fleet: Arc<Fleet>,
    pub(super) method: &'static Method,
    kind: MethodKind,
    format: Format,
    any_types: &'static Types,
    head: Head,
    pub(super) time: CallTime,
    pub(super) key: Option<u64>,
    pub(super) rules: CallRules,
    request: ReplayedRequest,
    pub(super) attempts: FleetAttempts,
    /// Counts the call at the limit of the resolver.
    permit: Option<SharedCallPermit>,
}

/// The attempts of one call so far.
#[derive(Default)]
pub(super) struct FleetAttempts {
    pub(super) made: u32,
    /// The endpoints of earlier attempts.
    tried: Vec<u64>,
    /// The pauses after failures of calls that may have been executed.
    progress: RetryProgress,
    /// The pauses after calls that were certainly not executed.
    backoff: Option<Backoff>,
}

impl FleetAttempts {
    pub(super) fn tried(&self) -> &[u64] {
        &self.tried
    }

    pub(super) fn note_tried(&mut self, attempt: &Attempt) {
        let hash = attempt.endpoint_hash();
        if !self.tried.contains(&hash) {
            self.tried.push(hash);
        }
    }

    /// Returns the pause before an attempt after a call that was certainly not executed. `None` after too many attempts.
    fn unexecuted_pause(&mut self) -> Option<Duration> {
        if self.made >= ATTEMPTS_MAX {
            return None;
        }
        // The first attempt on another server needs no pause.
        let backoff = self.backoff.get_or_insert_with(|| Backoff::new(UNEXECUTED_PAUSE));
        Some(if self.made > 1 { backoff.pause() } else { Duration::ZERO })
    }
}

impl FleetCall {
    fn new(fleet: Arc<Fleet>, call: Call) -> Result<Self, Status> {
        let (method, kind, format, any_types, mut time) =
            (call.method(), call.kind(), call.format(), call.any_types(), call.time());
        let (mut head, body) = call.into_parts();
        let current = fleet.current();
        let settings = &current.fleet;
        let rules = settings.rules(method, head.extensions().get::<RouteRules>().map(|route| &*route.0));
        if let Some(timeout) = rules.timeout.filter(|timeout| *timeout < time.opening.limit) {
            head.set_timeout(timeout);
            time = CallTime::start(Some(timeout), timeout);
        }
        let key = head.extensions().get::<HashKey>().map(|key| key.0).or_else(|| {
            let name = settings.key_header.as_deref()?;
            head.metadata().get(name).map(|value| frpc_balance::hash_key(value.as_bytes()))
        });
        let body = match (body, rules.request_len_max) {
            (Body::Many(messages), len_max @ Some(_)) => Body::Many(limited(messages, len_max, "request")),
            (body, len_max) => {
                body.content_len().map_or(Ok(()), |len| check_len(len, len_max, "request"))?;
                body
            }
        };
        let request = ReplayedRequest::new(body, settings.retry.replay_max);
        drop(current);
        let attempts = FleetAttempts::default();
        Ok(Self { fleet, method, kind, format, any_types, head, time, key, rules, request, attempts, permit: None })
    }

    /// Returns the call for another attempt.
    pub(super) fn next_call(&mut self) -> Call {
        self.attempts.made += 1;
        let mut call = Call::new(self.method, self.format, self.head.clone(), self.request.body()).with_kind(self.kind);
        call.set_any_types(self.any_types);
        call.with_time(self.time)
    }

    /// Begins an attempt on a ready endpoint, and waits for its answer.
    async fn attempt(&mut self) -> Result<(Attempt, Result<Answer, Status>), Status> {
        let Self { fleet, time, key, attempts, rules, method, .. } = &*self;
        let attempt = fleet.begin(time.opening, *key, &attempts.tried, rules.waits_for_ready, method).await?;
        let mut call = self.next_call();
        debug!(server = %attempt.endpoint().address(), attempt = self.attempts.made, "server picked");
        if self.attempts.made > 1 {
            self.fleet.count_repeat(self.method, false);
        }
        if self.attempts.made > 1 && self.format == Format::Proto {
            // Retries are rare, and the name and the number are valid.
            let _ =
                call.head_mut().metadata_mut().insert(Metadata::OF_RETRIES[0], (self.attempts.made - 1).to_string());
        }
        let outcome = attempt.server().caller().call(call).await.map_err(recognize_refusal);
        Ok((attempt, outcome))
    }

    /// Records a failed attempt, decides on another one, and pauses before it if necessary.
    ///
    /// # Errors
    ///
    /// The status of the attempt, if there is no other one.
    async fn fail(&mut self, mut attempt: Attempt, status: Status) -> Result<(), Status> {
        self.fleet.record_failure(&mut attempt, &status);
        self.attempts.note_tried(&attempt);
        drop(attempt);
        let deadline = self.time.whole.unwrap_or(self.time.opening);
        let Some(pause) = self.pause_after(&status) else { return Err(with_own_timeout(status, Some(deadline))) };
        debug!(
            attempt = self.attempts.made,
            code = status.code().name(),
            reason = status.message(),
            ?pause,
            "call retried"
        );
        let pausing = async {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            Ok(())
        };
        // The status of the attempt says more than the deadline.
        deadline.bound_unsent(pausing).await.map_err(|_| status)
    }

    /// Returns the pause before another attempt after a failed one. `None` if there is none.
    pub(super) fn pause_after(&mut self, status: &Status) -> Option<Duration> {
        match Repeat::of(status) {
            _ if !self.request.is_complete() => None,
            Some(Repeat::NotExecuted) => self.attempts.unexecuted_pause(),
            Some(Repeat::ByRules) => self.retry_pause(status),
            None => None,
        }
    }

    /// Returns the pause before a retry of a call that may have been executed. `None` if it must not be retried.
    fn retry_pause(&mut self, status: &Status) -> Option<Duration> {
        let policy = self.rules.retry.as_ref()?;
        let pushback = status.metadata().get(RetryPushback::NAME).map(RetryPushback::parse);
        let code = code_number(status);
        let pause = self.attempts.progress.fail(policy, code, pushback, fastrand::f32());
        if policy.codes.contains(code) || pushback == Some(RetryPushback::Stop) {
            self.fleet.retry_tokens.as_ref().map(RetryTokens::fail);
        }
        pause.filter(|_| self.fleet.may_repeat())
    }

    /// Records the success of the call.
    pub(super) fn succeed(&self) {
        if let Some(tokens) = &self.fleet.retry_tokens {
            tokens.succeed();
        }
        if let Some(throttle) = &self.fleet.throttle {
            throttle.accepted(Instant::now().into_std());
        }
    }

    /// Makes attempts until a server answers.
    async fn answer(&mut self) -> Result<(Attempt, Answer), Status> {
        loop {
            match self.attempt().await? {
                (attempt, Ok(answer)) => return Ok((attempt, answer)),
                (attempt, Err(status)) => self.fail(attempt, status).await?,
            }
        }
    }

    /// Makes a call with a single answer.
    async fn one(mut self) -> Result<Answer, Status> {
        let response_len_max = self.rules.response_len_max;
        let answer = match self.rules.hedging.take() {
            Some(policy) if self.kind == MethodKind::Unary => Box::pin(self.hedged(policy)).await?,
            _ => {
                let (mut attempt, answer) = self.answer().await?;
                attempt.answered();
                attempt.note_report(answer.trailers());
                self.succeed();
                answer
            }
        };
        if let Some(len) = answer.body().content_len() {
            check_len(len, response_len_max, "response")?;
        }
        Ok(answer)
    }

    /// Makes a call with a stream of answers. Another attempt is possible until the first of them has arrived.
    async fn many(mut self) -> Result<Answer, Status> {
        let response_len_max = self.rules.response_len_max;
        let begun = self.answer().await?;
        // Known when the first message arrives, from whichever attempt.
        let (metadata, trailers) = (MetadataSlot::default(), MetadataSlot::default());
        let slots = (metadata.clone(), trailers.clone());
        let messages = async move {
            let (attempt, first, rest) = self.first_message(begun).await?;
            Ok::<_, Status>(messages(self.fleet, attempt, self.permit, first, rest, slots))
        };
        let mut messages = Streaming::new(stream::once(messages).try_flatten());
        if response_len_max.is_some() {
            messages = limited(messages, response_len_max, "response");
        }
        Ok(Answer::new(Body::Many(messages.with_metadata_slot(Some(metadata)).with_trailers_slot(Some(trailers)))))
    }

    /// Waits for the first message. Makes other attempts if the call fails before.
    async fn first_message(
        &mut self,
        mut begun: (Attempt, Answer),
    ) -> Result<(Attempt, Option<Bytes>, Streaming<Bytes>), Status> {
        loop {
            let (mut attempt, answer) = begun;
            let metadata = Some(answer.metadata()).filter(|metadata| !metadata.is_empty()).cloned();
            let Body::Many(mut messages) = answer.into_body() else {
                return Err(Status::internal("the server answered with one message instead of a stream"));
            };
            if let Some(metadata) = metadata {
                let slot = MetadataSlot::new();
                slot.set(metadata);
                messages = messages.with_metadata_from(slot);
            }
            match messages.message().await {
                Ok(first) => {
                    attempt.answered();
                    self.succeed();
                    return Ok((attempt, first, messages));
                }
                Err(status) => self.fail(attempt, status).await?,
            }
            begun = self.answer().await?;
        }
    }
}

/// Returns the messages of an answer. The call is counted at its endpoint until their end.
fn messages(
    fleet: Arc<Fleet>,
    mut attempt: Attempt,
    permit: Option<SharedCallPermit>,
    first: Option<Bytes>,
    rest: Streaming<Bytes>,
    (metadata, trailers): (MetadataSlot, MetadataSlot),
) -> impl futures_core::Stream<Item = Result<Bytes, Status>> + Send + 'static {
    if let Some(known) = rest.metadata() {
        metadata.set(known.clone());
    }
    let of_rest = rest.trailers_slot();
    let (is_over, endpoint) = (first.is_none(), attempt.endpoint().clone());
    let rest = rest.inspect_err(move |status| {
        let _counted = &permit;
        fleet.record_failure(&mut attempt, status);
    });
    let end = stream::poll_fn(move |_| {
        if let Some(known) = of_rest.as_ref().and_then(|slot| slot.get()) {
            endpoint.note_report(known);
            trailers.set(known.clone());
        }
        Poll::Ready(None)
    });
    // A stream must not be polled after its end.
    let rest = if is_over { rest.take(0).left_stream() } else { rest.right_stream() };
    stream::iter(first.map(Ok)).chain(rest).chain(end)
}

/// Refuses a message longer than the service config allows.
fn check_len(len: usize, len_max: Option<u64>, which: &str) -> Result<(), Status> {
    match len_max {
        Some(len_max) if len as u64 > len_max => Err(Status::resource_exhausted(format!(
            "the {which} has {len} bytes, the service config of the channel allows {len_max}"
        ))),
        _ => Ok(()),
    }
}

fn limited(messages: Streaming<Bytes>, len_max: Option<u64>, which: &'static str) -> Streaming<Bytes> {
    Streaming::new(messages.and_then(move |message| ready(check_len(message.len(), len_max, which).map(|()| message))))
}

pub(super) fn code_number(status: &Status) -> u32 {
    u8::from(status.code()).into()
}

/// The maximum number of attempts of a call that certainly was not executed before.
const ATTEMPTS_MAX: u32 = 5;
/// The pause before the third attempt of such a call. [`Backoff`] computes the later pauses.
const UNEXECUTED_PAUSE: Duration = Duration::from_millis(10);

impl Caller for Arc<Fleet> {
    fn format(&self) -> Format {
        Format::Polyglot
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        if let Some(clusters) = self.clusters() {
            return match clusters.route(call) {
                Ok((fleet, call)) => Box::pin(async move { fleet.call(call).await }),
                Err(status) => Box::pin(ready(Err(status))),
            };
        }
        let now = Instant::now();
        if self.throttle.as_ref().is_some_and(|throttle| !throttle.admits(now.into_std(), fastrand::f32())) {
            return Box::pin(ready(Err(CallError::Throttled.into())));
        }
        let permit = match self.admit() {
            Ok(permit) => permit,
            Err(status) => return Box::pin(ready(Err(status))),
        };
        self.budget.call(self.clock.at(now));
        match FleetCall::new(self.clone(), call).map(|call| FleetCall { permit, ..call }) {
            Err(status) => Box::pin(ready(Err(status))),
            Ok(call) => match call.kind {
                MethodKind::Unary | MethodKind::ClientStreaming => call.one().boxed(),
                MethodKind::ServerStreaming | MethodKind::Bidirectional => call.many().boxed(),
            },
        }
    }
}

impl Fleet {
    /// Counts a call at the limit of the resolver.
    ///
    /// # Errors
    ///
    /// The limit is reached, or the resolver wants a part of the calls to fail.
    fn admit(&self) -> Result<Option<SharedCallPermit>, Status> {
        if !self.has_resolved() {
            return Ok(None);
        }
        let current = self.current();
        if current.dropped_per_million > fastrand::u32(..1_000_000) {
            return Err(Status::unavailable("the configuration of the service lets a part of the calls fail"));
        }
        let Some(limit) = &current.calls else { return Ok(None) };
        limit.try_begin().map(Some).ok_or_else(|| Status::unavailable("too many calls to the service are in flight"))
    }

    /// Returns `true` if the limits of the channel allow one more attempt, and counts it.
    pub(super) fn may_repeat(&self) -> bool {
        self.retry_tokens.as_ref().is_none_or(RetryTokens::admits) && self.budget.try_spend(self.clock.now())
    }

    /// Returns the format for a call to a method, on a ready endpoint.
    pub(crate) async fn method_format(
        &self,
        method: &'static Method,
        waits: bool,
        deadline: Deadline,
    ) -> Result<Format, Status> {
        let waits_for_ready = self.current().fleet.rules(method, None).waits_for_ready;
        self.any_ready(deadline, waits_for_ready, Some(method)).await?.caller().format(method, waits, deadline).await
    }

    /// Returns the format for a call with encoded messages.
    pub(crate) async fn bytes_format(&self, deadline: Deadline) -> Result<Format, Status> {
        self.any_ready(deadline, self.current().fleet.wait_for_ready, None).await?.caller().bytes_format(deadline).await
    }

    /// Begins the first attempt of a unary call, if the picked endpoint speaks frisbee and the method has no rules of its
    /// own.
    #[inline]
    pub(crate) fn try_begin_frisbee(&self, method: &Method, now: Instant) -> Option<FrisbeeAttempt> {
        if self.throttle.is_some() || self.has_rules(method) {
            return None;
        }
        let now = self.clock.at(now);
        let attempt = FrisbeeAttempt::new(self.try_begin(now, None, &[])?)?;
        self.budget.call(now);
        Some(attempt)
    }

    /// Makes the other attempts of a unary call after its first has failed.
    ///
    /// # Errors
    ///
    /// The status of the last attempt, if the call must not be made again.
    pub(crate) async fn repeat_unary(
        self: &Arc<Self>,
        method: &'static Method,
        head: &Head,
        request: &dyn UnaryRequest,
        time: CallTime,
        failed: Attempt,
        status: Status,
    ) -> Result<(Answer, Format), Status> {
        let mut call = FleetCall {
            fleet: self.clone(),
            method,
            kind: MethodKind::Unary,
            format: Format::Polyglot,
            any_types: Types::WELL_KNOWN,
            head: head.clone(),
            time,
            key: None,
            rules: self.current().fleet.rules(method, None),
            request: ReplayedRequest::One(Bytes::new()),
            attempts: FleetAttempts { made: 1, ..FleetAttempts::default() },
            // A first attempt without rules means that there is no limit.
            permit: None,
        };
        call.fail(failed, status).await?;
        let waits = !head.metadata().is_empty();
        call.format = self.method_format(method, waits, time.opening).await?;
        call.request = ReplayedRequest::One(request.encode(call.format)?.into_bytes());
        let format = call.format;
        Ok((call.one().await?, format))
    }
}
