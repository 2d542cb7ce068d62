//! Callers: random calls over one channel, each compared with its expected answers.

use std::{sync::Arc, time::Duration};

use frpc::{MethodKind, Request, Response, Status, Streaming};
use futures_util::stream::try_unfold;
use support::calls::{TestClient, Words, words};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout_at},
};

use super::{
    defect::Defect,
    ledger::{CallOutcome, Ledger},
    message::{Order, message, parse_message},
    wires::Wire,
};

/// A client of one node at another node.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) client: TestClient,
    pub(super) ledger: Arc<Ledger>,
    /// The wire and both nodes.
    pub(super) name: Arc<str>,
    pub(super) wire: Wire,
    pub(super) defect: Option<Defect>,
    /// The mean pause between calls.
    pub(super) pause: Duration,
}

/// One call, drawn before it is made.
#[derive(Clone, Debug)]
struct CallPlan {
    kind: MethodKind,
    order: Order,
    /// The messages in the stream of requests, their padding, and the pause before each.
    requests: (u64, usize, Duration),
    /// The pause of the caller after each answer.
    reading: Duration,
    timeout: Duration,
    /// The time after which the caller drops the call.
    patience: Option<Duration>,
}

impl Caller {
    /// Makes calls for this time, and returns after the end of the last one.
    pub(super) async fn run(self, length: Duration) {
        let (end, mut calls) = (self.ledger.elapsed() + length, JoinSet::new());
        while self.ledger.elapsed() < end {
            let burst = if fastrand::u8(..10) == 0 { 8 } else { 1 };
            for _ in 0..burst {
                let (caller, plan) = (self.clone(), CallPlan::draw(self.wire));
                calls.spawn(async move { caller.call(plan).await });
            }
            sleep(self.pause.mul_f64(2.0 * fastrand::f64())).await;
            while calls.try_join_next().is_some_and(|ended| ended.is_ok()) {}
        }
        while let Some(ended) = calls.join_next().await {
            if let Err(error) = ended {
                self.ledger.violate(format!("a caller panicked: {error}"));
            }
        }
    }

    /// Makes calls that must succeed: more bytes than all windows, in both directions.
    pub(super) async fn prove_healthy(&self) {
        let plan = |kind, count, len| CallPlan {
            kind,
            order: Order { call: 0, count, len, pause: Duration::ZERO, fails: false },
            requests: (count, len, Duration::ZERO),
            reading: Duration::ZERO,
            timeout: Duration::from_secs(20),
            patience: None,
        };
        // The first calls find out that the connection is gone.
        let mut attempts = 0;
        while !matches!(self.call(plan(MethodKind::Unary, 1, 100)).await, CallOutcome::Answered) {
            attempts += 1;
            if attempts == RECOVERY_MAX {
                self.ledger.violate(format!("{}: none of {attempts} calls without faults is answered", self.name));
                return;
            }
        }
        for kind in [MethodKind::Bidirectional, MethodKind::ServerStreaming] {
            let outcome = self.call(plan(self.wire.kind(kind), 50, 50_000)).await;
            if !matches!(outcome, CallOutcome::Answered) {
                self.ledger.violate(format!("{}: a healed channel fails: {outcome:?}", self.name));
            }
        }
    }

    async fn call(&self, mut plan: CallPlan) -> CallOutcome {
        let (kind, fails) = (plan.kind, if plan.order.fails { " that fails" } else { "" });
        plan.order.call = self.ledger.begin_call(format!("{kind:?}{fails} of {}", self.name));
        let call = plan.order.call;
        let (begun, patience) = (tokio::time::Instant::now(), plan.patience.unwrap_or(Duration::MAX));
        let mut answers = 0;
        let mut result = {
            let calling = self.make(&plan, &mut answers);
            let mut calling = std::pin::pin!(calling);
            loop {
                let jumped = self.ledger.jumped();
                let limit = plan.timeout + SLACK + jumped;
                let until = begun + limit.min(patience);
                match timeout_at(until, &mut calling).await {
                    Ok(result) => break Some(result),
                    Err(_) if limit >= patience => break None,
                    // A jump of the clock moves deadlines for which tasks have had no time.
                    Err(_) if self.ledger.jumped() != jumped => {}
                    Err(_) => {
                        let limit = plan.timeout;
                        self.ledger.violate(format!("{kind:?} {call} of {} does not end within {limit:?}", self.name));
                        break None;
                    }
                }
            }
        };
        if self.defect == Some(Defect::RepeatsCalls) && matches!(result, Some(Err(_))) {
            result = Some(self.make(&plan, &mut answers).await);
        }
        let outcome = match result {
            Some(Ok(())) => CallOutcome::Answered,
            Some(Err(status)) => CallOutcome::Failed { status, answers },
            None => CallOutcome::Cancelled,
        };
        self.ledger.count("messages", answers);
        self.ledger.end_call(call, outcome.clone());
        outcome
    }

    async fn make(&self, plan: &CallPlan, answers: &mut u64) -> Result<(), Status> {
        let CallPlan { kind, order, requests: (count, len, pause), timeout, .. } = plan.clone();
        let one = || {
            let mut request = Request::new(words(order.to_text(len)));
            request.set_timeout(timeout);
            request
        };
        let several = || {
            let call = order.call;
            let stream = Streaming::new(try_unfold(0, move |position| async move {
                if position == count {
                    return Ok::<_, Status>(None);
                }
                if !pause.is_zero() {
                    sleep(pause).await;
                }
                Ok(Some((words(message(call, position, len)), position + 1)))
            }));
            let mut request = Request::new(stream);
            request.set_timeout(timeout);
            request.metadata_mut().insert("order", order.to_text(10)).map(|()| request).expect("a valid name")
        };
        match kind {
            MethodKind::Unary => self.check_answer(plan, 0, answers, self.client.say(one()).await?.into_inner()),
            MethodKind::ClientStreaming => {
                self.check_answer(plan, count, answers, self.client.gather(several()).await?.into_inner())
            }
            MethodKind::ServerStreaming => {
                self.check_answers(plan, order.count, answers, self.client.count(one()).await?).await?
            }
            MethodKind::Bidirectional => {
                self.check_answers(plan, count, answers, self.client.chat(several()).await?).await?
            }
        }
        Ok(())
    }

    fn check_answer(&self, plan: &CallPlan, position: u64, answers: &mut u64, Words { text }: Words) {
        *answers += 1;
        if parse_message(&text) != Some((plan.order.call, position)) {
            let got = &text[..text.len().min(40)];
            self.ledger.violate(format!("answer {position} to call {} of {}: {got}", plan.order.call, self.name));
        }
    }

    async fn check_answers(
        &self,
        plan: &CallPlan,
        expected: u64,
        answers: &mut u64,
        stream: Response<Streaming<Words>>,
    ) -> Result<(), Status> {
        let mut stream = stream.into_inner();
        while let Some(answer) = stream.message().await? {
            self.check_answer(plan, *answers, answers, answer);
            if !plan.reading.is_zero() {
                sleep(plan.reading).await;
            }
        }
        if *answers != expected || plan.order.fails {
            let (call, name) = (plan.order.call, &self.name);
            self.ledger.violate(format!("call {call} of {name} ends well after {answers} of {expected} answers"));
        }
        Ok(())
    }
}

impl CallPlan {
    fn draw(wire: Wire) -> Self {
        let kind = match fastrand::u8(..10) {
            0..6 => MethodKind::Unary,
            6 | 7 => MethodKind::ServerStreaming,
            8 => MethodKind::ClientStreaming,
            _ => MethodKind::Bidirectional,
        };
        let len = || match fastrand::u8(..20) {
            0 => fastrand::usize(..150_000),
            1..4 => fastrand::usize(..8_000),
            _ => fastrand::usize(..100),
        };
        let pause = || match fastrand::u8(..8) {
            0 => Duration::from_millis(fastrand::u64(..400)),
            1 | 2 => Duration::from_millis(fastrand::u64(1..20)),
            _ => Duration::ZERO,
        };
        let count = fastrand::u64(..if fastrand::u8(..8) == 0 { 120 } else { 12 });
        let fails = fastrand::u8(..16) == 0;
        let timeout = Duration::from_millis(match fastrand::u8(..4) {
            0 => fastrand::u64(1..200),
            1 | 2 => fastrand::u64(200..5_000),
            _ => 30_000,
        });
        Self {
            kind: wire.kind(kind),
            order: Order { call: 0, count, len: len(), pause: pause(), fails },
            requests: (fastrand::u64(..if fastrand::u8(..8) == 0 { 120 } else { 12 }), len(), pause()),
            reading: pause(),
            timeout,
            patience: (fastrand::u8(..12) == 0).then(|| Duration::from_millis(fastrand::u64(..800))),
        }
    }
}

/// The time for which a call may outlast its timeout.
const SLACK: Duration = Duration::from_secs(1);
/// The number of calls within which a channel recovers from all faults.
const RECOVERY_MAX: u32 = 4;
