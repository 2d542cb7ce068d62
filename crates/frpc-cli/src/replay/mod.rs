//! Replays of recorded calls.

mod call;
mod differences;
mod target;

use std::{collections::HashMap, sync::Arc};

use frpc_record::RecordedCall;
use tokio::{
    task::{Id, JoinSet},
    time::{Instant, sleep_until},
};

pub(crate) use self::{
    call::{ReplayPlan, is_replayable},
    differences::{Difference, IgnoredPaths},
    target::ReplayTarget,
};
use crate::failure::{CommandError, Result};

/// A replayed call.
#[derive(Debug)]
pub(crate) struct ReplayedCall {
    /// The position of the call among the replayed ones.
    pub(crate) at: usize,
    pub(crate) differences: Vec<Difference>,
    /// The number of differences, including the ones above the limit.
    pub(crate) total: usize,
}

/// Replays calls in their order, and reports each one at its end.
///
/// A call starts at its scaled time, after all calls that had ended before its start in the recording, and while fewer than
/// `calls_max` calls run.
pub(crate) async fn run(
    target: Arc<ReplayTarget>,
    calls: Arc<Vec<RecordedCall>>,
    plan: Arc<ReplayPlan>,
    calls_max: usize,
    mut report: impl FnMut(ReplayedCall) -> Result<()>,
) -> Result<()> {
    let (begun, first) = (Instant::now(), calls.first().map(|call| call.start).unwrap_or_default());
    let mut running = JoinSet::new();
    // The end of each running call in the recording.
    let mut ends = HashMap::new();
    for (at, call) in calls.iter().enumerate() {
        sleep_until(begun + plan.scaled(call.start.saturating_sub(first))).await;
        while ends.len() >= calls_max || ends.values().any(|end| *end <= call.start) {
            report(next(&mut running, &mut ends).await?)?;
        }
        let (target, calls, plan) = (target.clone(), calls.clone(), plan.clone());
        let task = running.spawn(async move {
            let call = &calls[at];
            let Some(method) = target.method_of(call) else {
                return Err(CommandError::new(format!("the method {} was not prepared", call.path())));
            };
            let list = call::replay(&target, method, call, &plan).await?;
            Ok(ReplayedCall { at, total: list.total, differences: list.found })
        });
        ends.insert(task.id(), call.outcome.as_ref().map_or(call.start, |outcome| outcome.time));
    }
    while !running.is_empty() {
        report(next(&mut running, &mut ends).await?)?;
    }
    Ok(())
}

async fn next(
    running: &mut JoinSet<Result<ReplayedCall>>,
    ends: &mut HashMap<Id, std::time::Duration>,
) -> Result<ReplayedCall> {
    match running.join_next_with_id().await {
        Some(Ok((id, replayed))) => {
            ends.remove(&id);
            replayed
        }
        Some(Err(error)) => Err(CommandError::new(format!("a replayed call panicked: {error}"))),
        None => Err(CommandError::new("no call is running")),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read},
        time::Duration,
    };

    use frpc::{Channel, Layered, Server, Streaming, testing::MemoryServer};
    use frpc_record::{RecordSettings, Recorder, Recording};
    use support::{
        calls::{TestClient, TestServer, TestService, words},
        in_virtual_time,
    };

    use super::*;

    /// Records a conversation of two requests, with ten seconds after each.
    async fn recorded() -> Recording {
        let (mut file, writer) = io::pipe().unwrap();
        let recorder = Recorder::to_writer(writer, RecordSettings::default()).unwrap();
        let service = Layered::new(TestServer::new(TestService::default()), recorder.clone());
        let (sender, requests) = Streaming::channel(1);
        let mut answers = TestClient::new(Channel::in_process(service)).chat(requests).await.unwrap().into_inner();
        for text in ["one", "two"] {
            sender.send(words(text)).await.unwrap();
            answers.message().await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        drop(sender);
        assert!(answers.message().await.unwrap().is_none());
        recorder.close();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        Recording::parse(bytes).unwrap()
    }

    /// Returns the time of a replay without differences.
    async fn replayed(calls: &[RecordedCall], speed: f64) -> Duration {
        let mut target = ReplayTarget::new(None, true);
        let service = TestServer::new(TestService::default());
        let server = MemoryServer::start(Server::builder().add_service(service)).await.unwrap();
        target.add(&calls[0], server.channel().await.unwrap(), calls[0].format).unwrap();
        let begun = Instant::now();
        let report = |call: ReplayedCall| {
            assert_eq!(call.total, 0, "{:?}", call.differences);
            Ok(())
        };
        run(Arc::new(target), Arc::new(calls.to_vec()), Arc::new(ReplayPlan::at_speed(speed)), 1, report)
            .await
            .unwrap();
        begun.elapsed()
    }

    #[test]
    fn recorded_times_are_scaled() {
        in_virtual_time(async {
            let recording = recorded().await;
            for (speed, seconds) in [(1.0, 20), (0.5, 40), (4.0, 5), (f64::INFINITY, 0)] {
                assert_eq!(replayed(recording.calls(), speed).await.as_secs(), seconds, "{speed}");
            }
        });
    }
}
