//! Overloaded servers: the calls they do handle are answered in time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use frpc::{
    Call, CallError, CallSettings, Channel, ChannelCallSettings, Code, Config, Dispatch, RefusalReason, Request,
    Response, Server, ServerBuilder, Services, Status, Streaming, TimeLimits, interceptor,
    layers::{AdaptiveLimit, CallPriority, ConcurrencyLimit, LimitSettings, OverloadSettings, RateLimit, RateSettings},
    metrics::CallTotals,
};
use support::{
    MILLI, SECOND, assert_elapsed,
    calls::{
        TestClient, TestServer, TestService, Words, ask, asking, connect, only_connection, quiet, quiet_channel,
        schema::test_server::Test, serve_and_connect, stream_of, words,
    },
    in_virtual_time, settle,
};
use tokio::{
    io::duplex,
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};

/// Answers each call after this time.
#[derive(Clone)]
struct Slow {
    work: Duration,
    /// Number of started calls.
    begun: Arc<AtomicUsize>,
}

impl Slow {
    fn new(work: Duration) -> Self {
        Self { work, begun: Arc::default() }
    }
}

impl Test for Slow {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        sleep(self.work).await;
        Ok(request.into_inner().into())
    }

    async fn count(&self, _: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn gather(&self, _: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn chat(&self, _: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

/// Runs at most this number of handlers as tasks.
fn as_tasks(limit: usize) -> CallSettings {
    CallSettings { dispatch: Dispatch::Limited(limit.try_into().unwrap()), ..CallSettings::default() }
}

/// Calls per second with four handlers of 10 ms each.
const CAPACITY: usize = 400;
const DEADLINE: Duration = Duration::from_millis(500);

/// Sends `per_milli` calls per millisecond to a server for three seconds, regardless of the results. Returns the number
/// of calls from the last two seconds with a timely answer.
async fn goodput(server: ServerBuilder, per_milli: usize) -> usize {
    let slow = Slow::new(10 * MILLI);
    let server = server.add_service(TestServer::new(slow.clone())).without_listener().unwrap();
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    let channel = quiet_channel()
        .calls(ChannelCallSettings { calls_max: 1 << 15, ..ChannelCallSettings::default() })
        .timeout(DEADLINE)
        .attach(ours)
        .await
        .unwrap();
    let client = TestClient::new(channel);
    let mut calls = Vec::new();
    for milli in 0..3000 {
        for _ in 0..per_milli {
            let call = asking(&client, "hi");
            if milli >= 1000 {
                calls.push(call);
            }
        }
        sleep(MILLI).await;
    }
    let mut answered = 0;
    for call in calls {
        answered += usize::from(call.await.unwrap().is_ok());
    }
    answered
}

#[test]
fn throughput_is_kept_at_ten_times_the_capacity() {
    let limited = || Server::builder().config(quiet());
    for name in ["in place", "as tasks", "in a layer"] {
        in_virtual_time(async {
            let server = match name {
                "in place" => limited().config(Config { handlers_max: 4, ..quiet() }),
                "as tasks" => limited().calls(as_tasks(4)),
                _ => limited().layer(ConcurrencyLimit::new(4)).config(Config { handlers_max: 100_000, ..quiet() }),
            };
            let answered = goodput(server, 10 * CAPACITY / 1000).await;
            let possible = 2 * CAPACITY;
            assert!(answered * 10 >= possible * 9, "{name}: {answered} of {possible} answered in time");
        });
    }
}

#[test]
fn a_server_within_its_capacity_refuses_nothing() {
    in_virtual_time(async {
        let server = Server::builder().config(Config { handlers_max: 12, ..quiet() });
        assert_eq!(goodput(server, 1).await, 2000);
    });
}

#[test]
fn an_expired_queued_call_is_safe_to_retry() {
    in_virtual_time(async {
        let slow = Slow::new(10 * SECOND);
        let server = Server::builder().config(Config { handlers_max: 1, ..quiet() });
        // The server gives up first.
        let server = server.calls(CallSettings {
            times: TimeLimits { max: Some(5 * SECOND), ..TimeLimits::default() },
            ..CallSettings::default()
        });
        let server = server.add_service(TestServer::new(slow.clone())).without_listener().unwrap();
        let client = connect(&server).await;
        let calls = [asking(&client, "a"), asking(&client, "b")];
        sleep(6 * SECOND).await;
        let [first, second] = calls.map(|call| async { call.await.unwrap().unwrap_err() });
        assert_eq!(first.await.code(), Code::DeadlineExceeded);
        let second = second.await;
        assert_eq!(second.code(), Code::DeadlineExceeded);
        let error = second.call_error().unwrap();
        assert!(
            matches!(error, CallError::Refused { why: RefusalReason::Expired }) && error.is_safe_to_repeat(),
            "{second}"
        );
        assert_eq!(slow.begun.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn handler_timeouts_count_from_the_arrival_of_the_call() {
    let in_place = || Server::builder().config(Config { handlers_max: 1, ..quiet() });
    let times = TimeLimits { max: Some(60 * SECOND), ..TimeLimits::default() };
    let servers: [fn(_, _) -> ServerBuilder; 3] = [
        |server: ServerBuilder, _| server,
        |server, times| server.calls(CallSettings { times, ..CallSettings::default() }),
        |server, _| server.calls(as_tasks(1)),
    ];
    for make in servers {
        for own in [None, Some(10 * SECOND)] {
            in_virtual_time(async {
                let left = Arc::new(Mutex::new(Vec::new()));
                let seen = left.clone();
                let server = make(in_place(), times).layer(interceptor(move |call: &mut frpc::Call| {
                    let deadline = call.head().deadline().map(Instant::from_std);
                    seen.lock().unwrap().push(deadline.map(|deadline| deadline - Instant::now()));
                    Ok(())
                }));
                let server = server.add_service(TestServer::new(Slow::new(2 * SECOND))).without_listener().unwrap();
                let (ours, theirs) = duplex(64 * 1024);
                server.attach(theirs);
                let client = TestClient::new(quiet_channel().timeout(10 * SECOND).attach(ours).await.unwrap());
                // Let the peers exchange their hellos.
                asking(&client, "hi").await.unwrap().unwrap();
                left.lock().unwrap().clear();
                let calls = [0, 1].map(|_| {
                    let (client, mut request) = (client.clone(), Request::new(words("hi")));
                    own.inspect(|own| request.set_timeout(*own - MILLI));
                    tokio::spawn(async move { client.say(request).await })
                });
                for call in calls {
                    call.await.unwrap().unwrap();
                }
                let left = left.lock().unwrap();
                for (left, expected) in left.iter().zip([10 * SECOND, 8 * SECOND]) {
                    let left = left.expect("the caller said");
                    assert!(left <= expected && left + 10 * MILLI >= expected, "{left:?} left of {expected:?}");
                }
            });
        }
    }
}

#[test]
fn calls_of_a_server_to_its_client_follow_the_same_rules() {
    in_virtual_time(async {
        let server = Server::builder().config(quiet()).without_listener().unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let slow = Slow::new(3 * SECOND);
        let offering = quiet_channel().config(Config { handlers_max: 1, ..quiet() });
        let _channel = offering.add_service(TestServer::new(slow.clone())).attach(ours).await.unwrap();
        let channel = Channel::over(&only_connection(&server).await).unwrap();
        channel.connection().unwrap().recognized().await.unwrap();
        let client = TestClient::new(channel.with_timeout(2 * SECOND));
        let long = TestClient::new(client.channel().clone().with_timeout(60 * SECOND));
        let first = asking(&long, "a");
        settle().await;
        let expired = asking(&client, "b");
        assert_eq!(expired.await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
        first.await.unwrap().unwrap();
        settle().await;
        assert_eq!(slow.begun.load(Ordering::Relaxed), 1, "its time was over before the handler was free");
        asking(&long, "c").await.unwrap().unwrap();
    });
}

#[test]
fn cancelled_calls_leave_the_queue() {
    in_virtual_time(async {
        let (service, server, client) = serve_and_connect().await;
        asking(&client, "hi").await.unwrap().unwrap();
        for _ in 0..3000 {
            let given_up = asking(&client, "wait");
            settle().await;
            given_up.abort();
            asking(&client, "hi").await.unwrap().unwrap();
        }
        settle().await;
        let log = service.log.take();
        assert_eq!(log.iter().filter(|line| *line == "dropped say wait").count(), 3000);
        assert_eq!(server.metrics().connections, 1);
    });
}

/// A service with some workers, each of them busy with one call for a time.
#[derive(Clone)]
struct Workers {
    free: Arc<Semaphore>,
    work: Duration,
    /// The number of calls executed after their deadline.
    late: Arc<AtomicUsize>,
}

impl Test for Workers {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let deadline = request.deadline();
        let _worker = self.free.acquire().await.unwrap();
        if deadline.is_some_and(|deadline| deadline < Instant::now().into_std()) {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        sleep(self.work).await;
        Ok(request.into_inner().into())
    }

    async fn count(&self, _: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn gather(&self, _: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn chat(&self, _: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

fn priority_of(call: &Call) -> CallPriority {
    match call.head().metadata().get("importance") {
        Some("high") => CallPriority::High,
        Some("low") => CallPriority::Low,
        _ => CallPriority::Normal,
    }
}

fn important(text: &str, importance: &str) -> Request<Words> {
    let mut request = Request::new(words(text));
    request.metadata_mut().insert("importance", importance).unwrap();
    request
}

#[test]
fn ten_times_the_capacity_leaves_the_goodput_and_important_calls() {
    const WORKERS: usize = 4;
    const WORK: Duration = Duration::from_millis(8);
    /// Ten times the capacity: 5,000 calls per second.
    const CALLS_PER_MILLISECOND: usize = 5;
    in_virtual_time(async {
        let service = Workers { free: Arc::new(Semaphore::new(WORKERS)), work: WORK, late: Arc::default() };
        let limit = AdaptiveLimit::default().priority(priority_of);
        let services = Services::new().add_service(TestServer::new(service.clone())).layer(limit.clone());
        let client = TestClient::new(Channel::in_process(services));
        let [good, important_good, important_all] = [(); 3].map(|()| Arc::<AtomicUsize>::default());
        let (begin, measured) = (Instant::now(), 2 * SECOND);
        let mut callers = JoinSet::new();
        for tick in 0..4_000 {
            for number in 0..CALLS_PER_MILLISECOND {
                let is_important = number == 0 && tick % 20 == 0;
                let mut request = important("hi", if is_important { "high" } else { "normal" });
                request.set_timeout(100 * MILLI);
                let (client, good, important_good) = (client.clone(), good.clone(), important_good.clone());
                let counts = begin.elapsed() >= measured;
                important_all.fetch_add(usize::from(is_important && counts), Ordering::Relaxed);
                callers.spawn(async move {
                    let is_good = client.say(request).await.is_ok();
                    good.fetch_add(usize::from(is_good && counts), Ordering::Relaxed);
                    important_good.fetch_add(usize::from(is_good && counts && is_important), Ordering::Relaxed);
                });
            }
            sleep(MILLI).await;
        }
        callers.join_all().await;
        let [good, important_good, important_all] =
            [good, important_good, important_all].map(|count| count.load(Ordering::Relaxed));
        assert!(good >= 900, "{good} of 1,000 calls of the capacity in two seconds; {limit:?}");
        assert!(important_good * 100 >= important_all * 99, "{important_good} of {important_all} important calls");
        assert_eq!(service.late.load(Ordering::Relaxed), 0, "no call is executed after its deadline");
    });
}

/// A service behind a limit of one call.
fn one_at_a_time(queue_max: usize) -> (TestService, TestClient, AdaptiveLimit) {
    let limit = LimitSettings { first: 1, least: 1, most: 1, ..LimitSettings::default() };
    let settings = OverloadSettings { limit, queue_max, wait_max: 10 * SECOND };
    let (service, limit) = (TestService::default(), AdaptiveLimit::new(settings).unwrap().priority(priority_of));
    let services = Services::new().add_service(TestServer::new(service.clone())).layer(limit.clone());
    (service, TestClient::new(Channel::in_process(services)), limit)
}

#[test]
fn only_the_latency_of_its_own_method_refuses_a_call() {
    in_virtual_time(async {
        let (service, client, limit) = one_at_a_time(9);
        let say = |text: &'static str, timeout: Duration| {
            let mut request = Request::new(words(text));
            request.set_timeout(timeout);
            let client = client.clone();
            tokio::spawn(async move { client.say(request).await.map(drop) })
        };
        let slow: Vec<_> = (0..3).map(|_| say("sleep 1", 9 * SECOND)).collect();
        sleep(1500 * MILLI).await;
        assert_eq!(limit.in_progress(), 1);
        let too_late = say("sleep 1", 900 * MILLI);
        let mut fast = Request::new(stream_of("a"));
        fast.set_timeout(1900 * MILLI);
        let (begun, fast) = (Instant::now(), client.gather(fast));
        let (fast, too_late) = tokio::join!(fast, too_late);
        assert_eq!(too_late.unwrap().unwrap_err().code(), Code::Unavailable, "a call of this method takes a second");
        assert_eq!(fast.unwrap().into_inner().text, "a");
        assert_elapsed(begun, 500 * MILLI);
        for call in slow {
            call.await.unwrap().unwrap();
        }
        assert_eq!(service.log.take().iter().filter(|event| *event == "say sleep 1").count(), 3);
    });
}

#[test]
fn waiting_calls_begin_in_the_order_of_their_importance_and_deadlines() {
    in_virtual_time(async {
        let (service, client, limit) = one_at_a_time(3);
        let say = |text: &'static str, importance: &str, timeout: Duration| {
            let mut request = important(text, importance);
            request.set_timeout(timeout);
            let client = client.clone();
            tokio::spawn(async move { client.say(request).await.map(drop) })
        };
        let first = say("wait", "normal", 9 * SECOND);
        service.gate.arrival().await;
        let waiting = [
            say("replaced", "low", SECOND),
            say("late", "normal", 3 * SECOND),
            say("expired", "normal", MILLI),
            say("soon", "normal", 2 * SECOND),
        ];
        settle().await;
        sleep(10 * MILLI).await;
        assert_eq!(limit.in_progress(), 1);
        service.gate.open(1);
        first.await.unwrap().unwrap();
        let mut outcomes = Vec::new();
        for call in waiting {
            outcomes.push(call.await.unwrap().err().map(|status| status.code()));
        }
        assert_eq!(outcomes, [Some(Code::Unavailable), None, Some(Code::Unavailable), None]);
        assert_eq!(service.log.take(), ["say wait", "say soon", "say late"]);
        assert_eq!(limit.in_progress(), 0);
    });
}

#[test]
fn cancelled_calls_leave_their_places() {
    in_virtual_time(async {
        let (service, client, limit) = one_at_a_time(3);
        let [running, waiting] = [asking(&client, "wait"), asking(&client, "never")];
        service.gate.arrival().await;
        settle().await;
        waiting.abort();
        running.abort();
        settle().await;
        assert_eq!(limit.in_progress(), 0);
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
    });
}

#[test]
fn callers_above_their_rate_are_refused() {
    in_virtual_time(async {
        let limit = RateLimit::new(RateSettings { calls_per_second: 2, burst: 2, ..RateSettings::default() }).unwrap();
        let limit = limit.by(|call| call.head().metadata().get("importance").map(str::to_owned));
        let services = Services::new().add_service(TestServer::new(TestService::default())).layer(limit);
        let client = TestClient::new(Channel::in_process(services));
        let say = async |importance: &str| client.say(important("hi", importance)).await.map(drop);
        for _ in 0..2 {
            say("low").await.unwrap();
        }
        let status = say("low").await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "more than 2 calls per second of one caller: the next may be made in 500ms");
        say("high").await.unwrap();
        sleep(SECOND / 2).await;
        say("low").await.unwrap();
    });
}

/// Returns the number of waits of a method in queues, and their sum in milliseconds.
fn waits(totals: &CallTotals) -> (u64, u128) {
    (totals.queued.count(), totals.queued.sum.as_millis())
}

#[test]
fn times_in_queues_are_counted_on_both_sides() {
    let one = LimitSettings { first: 1, least: 1, most: 1, ..LimitSettings::default() };
    let adaptive = AdaptiveLimit::new(OverloadSettings { limit: one, ..OverloadSettings::default() }).unwrap();
    let server = || Server::builder().config(quiet());
    let at_most_one = ChannelCallSettings { calls_max: 1, ..ChannelCallSettings::default() };
    // Without a server, the limit is on the channel: calls, or a layer.
    let queues = [
        ("in place", Some(server().config(Config { handlers_max: 1, ..quiet() }))),
        ("as tasks", Some(server().calls(as_tasks(1)))),
        (
            "limited",
            Some(
                server()
                    .config(Config { handlers_max: 1, ..quiet() })
                    .calls(CallSettings { calls_max: Some(9), ..CallSettings::default() }),
            ),
        ),
        ("in a layer", Some(server().layer(ConcurrencyLimit::new(1)))),
        ("in an adaptive layer", Some(server().layer(adaptive))),
        ("on the channel", None),
        ("in a layer on the channel", None),
    ];
    for (name, queue) in queues {
        in_virtual_time(async {
            let is_at_server = queue.is_some();
            let queue = queue.unwrap_or_else(server).add_service(TestServer::new(Slow::new(10 * MILLI)));
            // Channels to an address share their counters, so no other test may use it.
            let address = format!("mem:queue-{}", name.replace(' ', "-"));
            let server = queue.bind(address.as_str()).await.unwrap();
            let channel = match name {
                "on the channel" => quiet_channel().calls(at_most_one),
                "in a layer on the channel" => quiet_channel().layer(ConcurrencyLimit::new(1)),
                _ => quiet_channel(),
            };
            let channel = channel.connect(address.as_str()).await.unwrap();
            let client = TestClient::new(channel.clone());
            let calls: Vec<_> = (0..3).map(|_| asking(&client, "hi")).collect();
            for call in calls {
                call.await.unwrap().unwrap();
            }
            settle().await;
            let (called, served) = (&channel.metrics()[0].totals, server.metrics().method("calls.Test/Say"));
            // Each task waits for a thread, even if for no time.
            let expected = if name == "as tasks" { (3, 30) } else { (2, 30) };
            let (at_server, at_channel) = if is_at_server { (expected, (0, 0)) } else { ((0, 0), expected) };
            assert_eq!((waits(&served), waits(called)), (at_server, at_channel), "{name}");
            // The time in a queue is a part of the duration.
            assert_eq!(served.all_durations().sum.as_millis(), if is_at_server { 60 } else { 30 }, "{name}");
        });
    }
}
