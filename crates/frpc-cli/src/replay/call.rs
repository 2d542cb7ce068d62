//! One replayed call: sends the recorded requests at their times, and collects the answers.

use std::{future::pending, time::Duration};

use bytes::Bytes;
use frpc::{Body, Call, Code, Head, Metadata, Status, Streaming};
use frpc_record::{CallEvent, CallEventKind, RecordedCall, RecordedMetadata};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{
    differences::{DifferenceList, IgnoredPaths},
    target::{ReplayMethod, ReplayTarget},
};
use crate::{
    arguments::metadata_text,
    failure::{Result, code_name},
    messages,
};

/// The pace and the extent of a replay.
#[derive(Clone, Debug)]
pub(crate) struct ReplayPlan {
    /// The factor of the recorded speed. Infinite without pauses.
    pub(crate) speed: f64,
    /// Metadata of each call, in addition to the recorded metadata.
    pub(crate) metadata: Metadata,
    /// `true` to send recorded metadata.
    pub(crate) sends_metadata: bool,
    /// `true` to compare metadata and trailers of answers.
    pub(crate) compares_metadata: bool,
    /// The deadline of each call, instead of the recorded one.
    pub(crate) timeout: Option<Duration>,
    pub(crate) ignored: IgnoredPaths,
}

impl ReplayPlan {
    pub(crate) fn scaled(&self, time: Duration) -> Duration {
        let scaled = Duration::try_from_secs_f64(time.as_secs_f64() / self.speed);
        scaled.map_or(SCALED_MAX, |scaled| scaled.min(SCALED_MAX))
    }
}

/// The answer to a replayed call.
#[derive(Debug, Default)]
struct ReplayedAnswer {
    messages: Vec<Bytes>,
    failure: Option<Status>,
    metadata: Metadata,
    trailers: Metadata,
}

/// The longest scaled time: a century. Later instants cannot be represented.
const SCALED_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// The deadline of calls recorded without one, in addition to their recorded time.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The longest wait of a request for the answers that came before it.
const TURN_MAX: Duration = Duration::from_secs(1);

/// The number of requests of a stream that may be queued.
const REQUESTS_AHEAD: usize = 16;

/// The progress of the answers, for requests that came after them.
const IS_OVER: usize = usize::MAX;

/// Replays a call, and compares its answer with the recorded one.
pub(crate) async fn replay<'a>(
    target: &ReplayTarget,
    method: &ReplayMethod,
    call: &RecordedCall,
    plan: &'a ReplayPlan,
) -> Result<DifferenceList<'a>> {
    let requests = call.requests().map(|message| method.request.recorded.convert(message, &method.request.replayed));
    let requests = requests.collect::<Result<Vec<_>>>()?;
    let answer = answer(method, call, plan, target.has_metadata, requests).await;
    let mut list = DifferenceList::new(&plan.ignored);
    compare(&mut list, target, method, call, plan, &answer)?;
    Ok(list)
}

async fn answer(
    method: &ReplayMethod,
    call: &RecordedCall,
    plan: &ReplayPlan,
    has_metadata: bool,
    requests: Vec<Bytes>,
) -> ReplayedAnswer {
    let begun = Instant::now();
    let (progress, seen) = watch::channel(0);
    let due = |time: Duration| begun + plan.scaled(time.saturating_sub(call.start));
    let (body, sending) = match (call.kind.has_request_stream(), requests.first()) {
        (false, request) => (Body::from(request.cloned().unwrap_or_default()), None),
        (true, _) => {
            let (sender, messages) = Streaming::channel(REQUESTS_AHEAD);
            (Body::Many(messages), Some(sender))
        }
    };
    let sending = async {
        let Some(sender) = sending else { return pending().await };
        let is_complete = send(&call.events, requests, &sender, seen.clone(), due).await;
        if !is_complete {
            // The handler ended the call without the end of this stream.
            seen.clone().wait_for(|answers| *answers == IS_OVER).await.ok();
        }
        drop(sender);
        pending().await
    };
    let outcome = call.outcome.as_ref();
    let is_left =
        outcome.and_then(|outcome| outcome.failure.as_ref()).is_some_and(|status| status.code() == Code::Cancelled);
    let mut answer = ReplayedAnswer::default();
    let leaving = async {
        match outcome {
            // As in the recording, the caller leaves.
            Some(outcome) if is_left => {
                sleep_until(due(outcome.time)).await;
                // Some answers may come later than in the recording.
                let expected = call.responses().count();
                let _ = timeout(TURN_MAX, seen.clone().wait_for(|answers| *answers >= expected)).await;
            }
            _ => pending().await,
        }
    };
    let request = request(method, call, plan, has_metadata, body);
    tokio::select! {
        () = receive(method, request, &mut answer, &progress) => {}
        () = sending => {}
        () = leaving => answer.failure = Some(Status::cancelled("the replay left, as in the recording")),
    }
    answer
}

/// Sends requests at their times, and not before the answers that came before them. Returns `true` after a stream that
/// its caller ended.
async fn send(
    events: &[CallEvent],
    requests: Vec<Bytes>,
    sender: &frpc::StreamSender<Bytes>,
    mut seen: watch::Receiver<usize>,
    due: impl Fn(Duration) -> Instant,
) -> bool {
    let (mut answers, mut requests, mut takes_turns) = (0, requests.into_iter(), true);
    for event in events {
        match &event.kind {
            CallEventKind::Response(_) => answers += 1,
            CallEventKind::Request(_) | CallEventKind::RequestsEnd { is_complete: true } => {
                sleep_until(due(event.time)).await;
                if takes_turns {
                    // A wire may deliver answers only after the requests, and a server may answer less.
                    takes_turns = timeout(TURN_MAX, seen.wait_for(|now| *now >= answers)).await.is_ok();
                }
                if !matches!(event.kind, CallEventKind::Request(_)) {
                    return true;
                }
                if let Some(request) = requests.next()
                    && sender.send(request).await.is_err()
                {
                    return false;
                }
            }
            _ => {}
        }
    }
    false
}

fn request(method: &ReplayMethod, call: &RecordedCall, plan: &ReplayPlan, has_metadata: bool, body: Body) -> Call {
    let mut head = Head::default();
    if plan.sends_metadata && has_metadata {
        let mut metadata = call.metadata.values.clone();
        // The replay is not a part of the recorded trace, and given values replace recorded ones.
        for name in ["traceparent", "tracestate"].into_iter().chain(plan.metadata.keys()) {
            metadata.remove(name);
        }
        *head.metadata_mut() = metadata;
    }
    head.metadata_mut().merge(plan.metadata.clone());
    let recorded = call.outcome.as_ref().map_or(Duration::ZERO, |outcome| outcome.time.saturating_sub(call.start));
    let usual = plan.scaled(recorded).saturating_add(ANSWER_MAX);
    head.set_timeout(plan.timeout.or(call.timeout).unwrap_or(usual));
    Call::new(method.method, method.request.replayed.format, head, body)
}

async fn receive(method: &ReplayMethod, call: Call, answer: &mut ReplayedAnswer, progress: &watch::Sender<usize>) {
    let received = async {
        let received = method.channel.call(call).await?;
        answer.metadata = received.metadata().clone();
        answer.trailers = received.trailers().clone();
        match received.into_body() {
            Body::One(message) => answer.messages.push(message.into_bytes()),
            Body::Many(mut messages) => {
                while let Some(message) = messages.message().await? {
                    if answer.messages.len() < ANSWERS_MAX {
                        answer.messages.push(message);
                    }
                    progress.send_modify(|answers| *answers += 1);
                }
                if let Some(metadata) = messages.metadata() {
                    answer.metadata = metadata.clone();
                }
                answer.trailers = messages.trailers().await?.unwrap_or_default();
            }
            _ => {}
        }
        Ok::<(), Status>(())
    };
    if let Err(status) = received.await {
        answer.trailers = status.metadata().clone();
        answer.failure = Some(status);
    }
    progress.send_replace(IS_OVER);
}

/// The maximum number of answers kept for one call. A server may answer more than in the recording, without end.
const ANSWERS_MAX: usize = 1_000_000;

fn compare(
    list: &mut DifferenceList<'_>,
    target: &ReplayTarget,
    method: &ReplayMethod,
    call: &RecordedCall,
    plan: &ReplayPlan,
    answer: &ReplayedAnswer,
) -> Result<()> {
    let Some(outcome) = &call.outcome else { return Ok(()) };
    let recorded: Vec<_> = call.responses().collect();
    for (at, (recorded, replayed)) in recorded.iter().zip(&answer.messages).enumerate() {
        let (one, other) = (method.response.recorded.value(recorded)?, method.response.replayed.value(replayed)?);
        list.compare_messages(call.kind.has_response_stream().then_some(at + 1), &one, &other);
    }
    let is_left = outcome.failure.as_ref().is_some_and(|status| status.code() == Code::Cancelled);
    if is_left {
        // The caller left at some time, so that neither number nor status of the answers is comparable.
        return Ok(());
    }
    if call.kind.has_response_stream() {
        let count = |len: usize| Some(Value::from(len));
        list.compare_outside("@messages", count(recorded.len()), count(answer.messages.len()));
    }
    let code = |failure: &Option<Status>| Some(failure.as_ref().map_or("ok", |status| code_name(status.code())).into());
    let text = |failure: &Option<Status>| failure.as_ref().map(|status| status.message().into());
    list.compare_outside("@status.code", code(&outcome.failure), code(&answer.failure));
    list.compare_outside("@status.message", text(&outcome.failure), text(&answer.failure));
    let pool = target.schema.as_ref().map(|schema| schema.pool());
    let details =
        |failure: &Option<Status>| failure.as_ref().map(|status| messages::details(status, pool)).unwrap_or_default();
    let (one, other) = (details(&outcome.failure), details(&answer.failure));
    for at in 0..one.len().max(other.len()) {
        list.compare_outside(&format!("@status.details[{at}]"), one.get(at).cloned(), other.get(at).cloned());
    }
    if plan.compares_metadata {
        compare_metadata(list, "@metadata", &outcome.metadata, &answer.metadata);
        compare_metadata(list, "@trailers", &outcome.trailers, &answer.trailers);
    }
    Ok(())
}

/// Compares the recorded entries. The wire may add more.
fn compare_metadata(list: &mut DifferenceList<'_>, path: &str, recorded: &RecordedMetadata, replayed: &Metadata) {
    let values = |metadata: &Metadata, name: &str| -> Option<Value> {
        let all: Vec<_> =
            metadata.iter().filter(|(other, _)| *other == name).map(|(_, value)| metadata_text(value)).collect();
        (!all.is_empty()).then(|| json!(all))
    };
    let mut names: Vec<_> = recorded.values.keys().collect();
    names.dedup();
    for name in names {
        list.compare_outside(&format!("{path}.{name}"), values(&recorded.values, name), values(replayed, name));
    }
}

/// Returns `true` for calls with everything that a replay needs.
pub(crate) fn is_replayable(call: &RecordedCall) -> bool {
    let has_request = call.kind.has_request_stream() || call.requests().next().is_some();
    call.outcome.is_some() && has_request
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ReplayPlan {
        pub(in crate::replay) fn at_speed(speed: f64) -> Self {
            Self {
                speed,
                metadata: Metadata::new(),
                sends_metadata: true,
                compares_metadata: false,
                timeout: None,
                ignored: IgnoredPaths::parse(&[]).unwrap(),
            }
        }
    }

    #[test]
    fn any_recorded_time_can_be_scaled() {
        for speed in [f64::MIN_POSITIVE, 1e-10, 1.0, f64::MAX, f64::INFINITY] {
            let plan = ReplayPlan::at_speed(speed);
            for time in [0, 1, u64::MAX] {
                let _ = Instant::now() + plan.scaled(Duration::from_micros(time)) + ANSWER_MAX;
            }
        }
    }
}
