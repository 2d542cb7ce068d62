//! Overloaded servers: the calls they do handle are answered in time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use frpc::{
    CallError, CallSettings, Channel, ChannelCallSettings, Code, Config, Dispatch, RefusalReason, Request, Response,
    Server, ServerBuilder, Status, Streaming, TimeLimits, interceptor, layers::ConcurrencyLimit,
};
use support::{
    MILLI, SECOND,
    calls::{
        TestClient, TestServer, Words, asking, connect, only_connection, quiet, quiet_channel,
        schema::test_server::Test, serve_and_connect, words,
    },
    in_virtual_time, settle,
};
use tokio::{
    io::duplex,
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
