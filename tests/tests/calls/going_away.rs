//! Calls to a server that is going away: which ones continue, move to another connection, or are repeated.
//!
//! Only for frisbee, because in-process calls have no connection.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use frisbee::{Operation, Outcome, Router, RouterInfo, ServerLimits, Stream};
use frpc::{
    Address, CallError, Channel, ChannelCallSettings, Code, Config, Connection, GoAway, Packet, RefusalReason, Request,
    Response, Server, Status, Streaming,
};
use frpc_http::{Client, Http};
use support::{
    MILLI, SECOND, assert_elapsed,
    calls::{
        CallbackClient, CallbackServer, TestClient, TestServer, TestService, Words, all, ask, asking, each_kind,
        encoded, next, of_kind, only_connection, plain, quiet, quiet_channel, schema::test_server::Test, serve,
        serve_and_connect, unused_address, words,
    },
    in_virtual_time, settle,
};
use tokio::{
    io::duplex,
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::refusals::{failure, hello_part};

/// Returns a server at an address, and its service.
async fn serve_at(address: &Address, config: Config) -> (TestService, Server) {
    let service = TestService::default();
    let server = Server::builder().config(config).add_service(TestServer::new(service.clone()));
    (service, server.bind(address).await.unwrap())
}

async fn connect_to(address: &Address) -> TestClient {
    TestClient::new(quiet_channel().connect(address).await.unwrap())
}

/// Two successive servers at an address, and a client. The first one shuts down during a call.
struct Succession {
    first: TestService,
    shutdown: JoinHandle<usize>,
    second: TestService,
    server: Server,
    client: TestClient,
    under_way: JoinHandle<Result<String, Status>>,
}

impl Succession {
    async fn begin(config: Config) -> Self {
        let address = unused_address();
        let (first, server) = serve_at(&address, config).await;
        let client = connect_to(&address).await;
        let under_way = asking(&client, "wait");
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        settle().await;
        let (second, server) = serve_at(&address, quiet()).await;
        Self { first, shutdown, second, server, client, under_way }
    }

    /// Lets the pending call finish. The first server finishes at the same time.
    async fn end(self) {
        let since = Instant::now();
        self.first.gate.open(1);
        assert_eq!(self.under_way.await.unwrap().unwrap(), "wait");
        assert_eq!(self.shutdown.await.unwrap(), 0);
        assert_elapsed(since, Duration::ZERO);
    }
}

fn why(status: &Status) -> &CallError {
    status.call_error().unwrap_or_else(|| panic!("{status}"))
}

fn is_refused(status: &Status) -> bool {
    matches!(why(status), CallError::Refused { why: RefusalReason::Draining })
}

#[test]
fn calls_move_to_the_next_server_and_the_old_one_drains() {
    in_virtual_time(async {
        let succession = Succession::begin(quiet()).await;
        for result in each_kind(&succession.client, "hi").await {
            result.unwrap();
        }
        assert_eq!(succession.first.log.take(), ["say wait"]);
        assert_eq!(succession.second.log.take().len(), 4);
        assert_eq!(succession.server.metrics().accepted, 1);
        succession.end().await;
    });
}

#[test]
fn shutdown_with_idle_channels_is_immediate() {
    in_virtual_time(async {
        let address = unused_address();
        let (_, server) = serve_at(&address, quiet()).await;
        let clients = [connect_to(&address).await, connect_to(&address).await];
        ask(&clients[0], "hi").await.unwrap();
        let since = Instant::now();
        assert_eq!(server.shutdown(60 * SECOND).await, 0);
        assert_elapsed(since, Duration::ZERO);
    });
}

#[test]
fn streams_continue_and_the_connection_closes_afterwards() {
    in_virtual_time(async {
        let address = unused_address();
        let (service, server) = serve_at(&address, quiet()).await;
        let client = connect_to(&address).await;
        let mut count = client.count(words("one, wait, two, three")).await.unwrap().into_inner();
        assert_eq!(next(&mut count).await, "one");
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        // Longer than the server still serves new packets.
        sleep(30 * SECOND).await;
        service.gate.open(1);
        let rest = [next(&mut count).await, next(&mut count).await, next(&mut count).await];
        assert_eq!(rest, ["wait", "two", "three"]);
        assert!(count.message().await.unwrap().is_none());
        drop(count);
        let since = Instant::now();
        assert_eq!(shutdown.await.unwrap(), 0);
        assert_elapsed(since, Duration::ZERO);
    });
}

#[test]
fn streams_at_the_end_of_a_shutdown_fail_with_the_reason() {
    for wire in ["frisbee", "plain", "grpc"] {
        for kind in 1..4 {
            in_virtual_time(async {
                let service = TestService::default();
                let server = Server::builder().config(quiet()).wire(Http::new());
                let server = server.add_service(TestServer::new(service.clone())).without_listener().unwrap();
                let (ours, theirs) = duplex(64 * 1024);
                server.attach(theirs);
                let channel = match wire {
                    "frisbee" => quiet_channel().attach(ours).await.unwrap(),
                    "plain" => quiet_channel().config(plain()).attach(ours).await.unwrap(),
                    _ => Channel::builder().transport(Client::new().socket(ours)).connect("grpc://test").await.unwrap(),
                };
                let client = TestClient::new(channel.with_timeout(3600 * SECOND));
                let call = tokio::spawn(async move { of_kind(&client, kind, "wait").await });
                settle().await;
                let since = Instant::now();
                let shutdown = tokio::spawn(server.shutdown(10 * SECOND));
                let status = call.await.unwrap().unwrap_err();
                assert_elapsed(since, 9500 * MILLI);
                assert_eq!(status.code(), Code::Unavailable, "{wire} {kind}: {status}");
                assert!(status.message().starts_with("the server shut down before"), "{wire} {kind}: {status}");
                assert!(status.call_error().is_none(), "it may have been executed: {status:?}");
                assert_eq!(shutdown.await.unwrap(), 0, "{wire} {kind}: nothing was cut");
                assert!(since.elapsed() <= 10 * SECOND, "{wire} {kind}: {:?}", since.elapsed());
                settle().await;
                assert!(service.log.take().iter().any(|line| line.starts_with("dropped")), "{wire} {kind}");
            });
        }
    }
}

#[test]
fn waiting_calls_share_the_connection_to_the_next_server() {
    in_virtual_time(async {
        let address = unused_address();
        let (_, server) = serve_at(&address, quiet()).await;
        let client = connect_to(&address).await;
        assert_eq!(server.shutdown(60 * SECOND).await, 0);
        let calls: Vec<_> = (0..100).map(|number| asking(&client, &number.to_string())).collect();
        sleep(SECOND).await;
        let (_service, server) = serve_at(&address, quiet()).await;
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), number.to_string());
        }
        assert_eq!(server.metrics().accepted, 1);
    });
}

#[test]
fn queued_calls_move_to_the_next_server() {
    in_virtual_time(async {
        let address = unused_address();
        let (first, server) = serve_at(&address, quiet()).await;
        let client = TestClient::new(
            quiet_channel()
                .calls(ChannelCallSettings { calls_max: 1, ..ChannelCallSettings::default() })
                .connect(&address)
                .await
                .unwrap(),
        );
        let under_way = asking(&client, "wait");
        settle().await;
        let waiting = [asking(&client, "a"), asking(&client, "b")];
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        settle().await;
        let (second, _server) = serve_at(&address, quiet()).await;
        for call in waiting {
            call.await.unwrap().unwrap();
        }
        first.gate.open(1);
        under_way.await.unwrap().unwrap();
        assert_eq!(shutdown.await.unwrap(), 0);
        assert_eq!((first.log.take().len(), second.log.take().len()), (1, 2));
    });
}

// Channels unable to reconnect

#[test]
fn a_channel_over_a_custom_stream_cannot_reconnect() {
    in_virtual_time(async {
        let (service, server, client) = serve_and_connect().await;
        let under_way = asking(&client, "wait");
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        settle().await;
        for result in each_kind(&client, "late").await {
            let status = result.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
            assert!(matches!(why(&status), CallError::GoingAway { why } if why.code == GoAway::SHUTDOWN), "{status}");
            assert!(why(&status).is_safe_to_repeat());
        }
        service.gate.open(1);
        under_way.await.unwrap().unwrap();
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

#[test]
fn a_channel_over_a_draining_connection_reports_it() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let offered = TestService::default();
        let offering = quiet_channel().add_service(CallbackServer::new(offered.clone()));
        let channel = offering.attach(ours).await.unwrap();
        let connection = only_connection(&server).await;
        let before = CallbackClient::new(Channel::over(&connection).unwrap());
        let under_way = tokio::spawn({
            let before = before.clone();
            async move { before.say(words("wait")).await }
        });
        settle().await;
        let text = "the client is updated";
        assert!(channel.connection().unwrap().go_away(GoAway { code: 0, text: text.into() }));
        settle().await;
        for client in [before, CallbackClient::new(Channel::over(&connection).unwrap())] {
            let unary = client.say(words("late")).await.unwrap_err();
            let stream = client.count(words("late")).await.unwrap_err();
            for status in [unary, stream] {
                assert!(matches!(why(&status), CallError::GoingAway { .. }), "{status}");
                assert!(status.message().ends_with(text), "{status}");
            }
        }
        offered.gate.open(1);
        assert_eq!(under_way.await.unwrap().unwrap().into_inner(), words("wait"));
        assert_eq!(offered.log.take(), ["say wait"]);
    });
}

#[test]
fn callbacks_of_a_draining_server_finish() {
    for kind in ["say", "count"] {
        in_virtual_time(async {
            let server = serve(&TestService::default());
            let (ours, theirs) = duplex(64 * 1024);
            server.attach(theirs);
            let offered = TestService::default();
            let offering = quiet_channel().add_service(CallbackServer::new(offered.clone()));
            let _channel = offering.attach(ours).await.unwrap();
            let back = CallbackClient::new(Channel::over(&only_connection(&server).await).unwrap());
            let under_way = tokio::spawn(async move {
                match kind {
                    "say" => back.say(words("wait")).await.map(|answer| answer.into_inner().text),
                    _ => all(back.count(words("wait")).await?).await.map(|answers| answers.concat()),
                }
            });
            settle().await;
            let since = Instant::now();
            let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
            sleep(2 * SECOND).await;
            offered.gate.open(1);
            assert_eq!(under_way.await.unwrap().unwrap(), "wait");
            assert_eq!(shutdown.await.unwrap(), 0);
            assert_elapsed(since, 2 * SECOND);
        });
    }
}

// Retries

#[test]
fn a_call_refused_by_a_server_that_cannot_ask_gets_a_status_and_is_made_once() {
    for kind in 0..4 {
        in_virtual_time(async {
            let succession = Succession::begin(plain()).await;
            let status = of_kind(&succession.client, kind, "late").await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            assert!(status.call_error().is_none(), "plain fRPC has no field for it: {status:?}");
            assert!(succession.second.log.take().is_empty());
            succession.end().await;
        });
    }
}

#[test]
fn a_call_refused_by_a_server_that_shuts_down_is_made_again() {
    for kind in 0..2 {
        in_virtual_time(async {
            let address = unused_address();
            let (refusing, server) = Refusing::serve(&address, 1, false);
            let server = server.await;
            let client = connect_to(&address).await;
            assert_eq!(of_kind(&client, kind, "late").await.unwrap(), "one");
            assert_eq!(of_kind(&client, kind, "later").await.unwrap(), "one");
            assert_eq!(refusing.calls.load(Ordering::Relaxed), 3);
            assert_eq!(server.metrics().accepted, 2, "the first refusal was enough");
        });
    }
}

#[test]
fn calls_with_an_opened_request_stream_are_not_retried() {
    for kind in 2..4 {
        in_virtual_time(async {
            let address = unused_address();
            let (refusing, server) = Refusing::serve(&address, 2, false);
            let server = server.await;
            let client = connect_to(&address).await;
            let status = of_kind(&client, kind, "late").await.unwrap_err();
            assert!(is_refused(&status), "{status}");
            assert_eq!(refusing.calls.load(Ordering::Relaxed), 1);
            assert_eq!(ask(&client, "refused, and then repeated").await.unwrap(), "one");
            assert_eq!(of_kind(&client, kind, "later").await.unwrap(), "one");
            assert_eq!(server.metrics().accepted, 2);
        });
    }
}

/// An extended server that refuses its first calls, like one that is shutting down. On request, sends one answer on
/// streams first.
struct Refusing {
    refusals: usize,
    answers_first: bool,
    calls: AtomicUsize,
}

impl Refusing {
    fn serve(
        address: &Address,
        refusals: usize,
        answers_first: bool,
    ) -> (Arc<Self>, impl Future<Output = frisbee::Server>) {
        let refusing = Arc::new(Self { refusals, answers_first, calls: AtomicUsize::new(0) });
        let server = frisbee::Server::builder(refusing.clone()).config(quiet());
        let address = address.clone();
        (refusing, async move { server.bind(&address).await.unwrap() })
    }

    /// Counts a call. Returns `true` if it is refused.
    fn refuses(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) < self.refusals
    }
}

impl Router for Refusing {
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        Ok(RouterInfo::default().with_part("frpc", hello_part()))
    }

    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        Outcome::Reply(match self.refuses() {
            true => Packet { operation: Operation::EXTENDED, content: failure(14, &[3]).into(), ..packet },
            false => Packet { content: encoded("one").into(), ..packet },
        })
    }

    async fn stream(&self, stream: Stream, _: Option<frisbee::RefusalReason>, _: &Connection) {
        let (sender, mut reader) = stream.split();
        // Read the data to open the call, then its request.
        let _ = (reader.read().await, reader.read().await);
        let is_refused = self.refuses();
        if self.answers_first || !is_refused {
            let message = encoded("one");
            let len = u32::try_from(message.len()).unwrap().to_be_bytes();
            sender.send([&[0x11][..], &len, &message].concat()).await.unwrap();
        }
        let end = if is_refused { failure(14, &[3]) } else { vec![0x13, 0, 0, 0, 0] };
        sender.send(end).await.unwrap();
    }
}

#[test]
fn calls_refused_everywhere_fail_after_some_attempts() {
    for is_stream in [false, true] {
        in_virtual_time(async {
            let address = unused_address();
            let (refusing, server) = Refusing::serve(&address, usize::MAX, false);
            let server = server.await;
            let client = connect_to(&address).await;
            let since = Instant::now();
            let status = match is_stream {
                true => all(client.count(words("hi")).await.unwrap()).await.map(|_| ()).unwrap_err(),
                false => ask(&client, "hi").await.map(|_| ()).unwrap_err(),
            };
            assert!(is_refused(&status), "{status}");
            assert_eq!(refusing.calls.load(Ordering::Relaxed), 5);
            assert_eq!(server.metrics().accepted, 5, "each on a connection of its own");
            let paused = since.elapsed();
            assert!((35 * MILLI..=75 * MILLI).contains(&paused), "{paused:?}");
        });
    }
}

#[test]
fn retries_do_not_exceed_the_timeout() {
    in_virtual_time(async {
        let address = unused_address();
        let _server = Refusing::serve(&address, usize::MAX, false).1.await;
        let client = TestClient::new(quiet_channel().timeout(20 * MILLI).connect(&address).await.unwrap());
        let since = Instant::now();
        let status = ask(&client, "hi").await.unwrap_err();
        assert!(matches!(why(&status), CallError::NotSent { .. }), "{status}");
        assert_elapsed(since, 20 * MILLI);
    });
}

#[test]
fn draining_downstream_servers_cause_no_retry_upstream() {
    for config in [quiet(), plain()] {
        for kind in 0..4 {
            in_virtual_time(async {
                let leaving = unused_address();
                let (_refusing, leaving_server) = Refusing::serve(&leaving, usize::MAX, false);
                let _leaving_server = leaving_server.await;
                let address = unused_address();
                let (seen, handled) = (unbounded_channel(), Arc::new(AtomicUsize::new(0)));
                let downstream = connect_to(&leaving).await;
                let middle = PassesOn { downstream, handled: handled.clone(), seen: seen.0 };
                let server = Server::builder().config(config.clone()).add_service(TestServer::new(middle));
                let server = server.bind(&address).await.unwrap();
                let client = connect_to(&address).await;
                let status = of_kind(&client, kind, "hi").await.unwrap_err();
                assert_eq!(status.code(), Code::Unavailable);
                assert!(status.message().ends_with("the peer is shutting down: the call was not executed"), "{status}");
                assert!(status.call_error().is_none(), "{status:?}");
                assert_eq!(handled.load(Ordering::Relaxed), 1, "it was made once");
                let mut seen = seen.1;
                assert!(is_refused(&seen.recv().await.unwrap()), "the handler knows what it met");
                of_kind(&client, kind, "hi").await.unwrap_err();
                assert_eq!(server.metrics().accepted, 1, "the connection is as good as before");
            });
        }
    }
}

/// A service that passes on the result of its own call.
struct PassesOn {
    downstream: TestClient,
    handled: Arc<AtomicUsize>,
    seen: UnboundedSender<Status>,
}

impl PassesOn {
    async fn pass_on<T>(&self) -> Result<T, Status> {
        self.handled.fetch_add(1, Ordering::Relaxed);
        let status = self.downstream.say(words("hi")).await.unwrap_err();
        let _ = self.seen.send(status.clone());
        Err(status)
    }
}

impl Test for PassesOn {
    async fn say(&self, _: Request<Words>) -> Result<Response<Words>, Status> {
        self.pass_on().await
    }

    async fn count(&self, _: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        // Pass it on as the first item of the stream.
        let status = self.pass_on::<()>().await.unwrap_err();
        Ok(Streaming::new(futures_util::stream::iter([Err(status)])).into())
    }

    async fn gather(&self, _: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        self.pass_on().await
    }

    async fn chat(&self, _: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        self.pass_on().await
    }
}

#[test]
fn a_possibly_executed_call_is_not_retried() {
    for kind in 0..4 {
        in_virtual_time(async {
            let address = unused_address();
            let (first, server) = serve_at(&address, quiet()).await;
            let client = connect_to(&address).await;
            let call = tokio::spawn(async move { of_kind(&client, kind, "wait").await });
            settle().await;
            assert!(!first.log.take().is_empty());
            drop(server);
            let (second, _server) = serve_at(&address, quiet()).await;
            let status = call.await.unwrap().unwrap_err();
            assert!(matches!(why(&status), CallError::ConnectionLost { may_have_executed: true, .. }), "{status}");
            assert!(second.log.take().is_empty());
        });
    }
}

#[test]
fn a_stream_with_responses_is_not_retried() {
    in_virtual_time(async {
        let address = unused_address();
        let (refusing, server) = Refusing::serve(&address, usize::MAX, true);
        let _server = server.await;
        let client = connect_to(&address).await;
        let mut answers = client.count(words("hi")).await.unwrap().into_inner();
        assert_eq!(next(&mut answers).await, "one");
        assert!(is_refused(&answers.message().await.unwrap_err()));
        assert_eq!(refusing.calls.load(Ordering::Relaxed), 1);
    });
}

// Maximum age of connections

#[test]
fn calls_are_unaffected_by_the_connection_age_limit() {
    in_virtual_time(async {
        let (address, service) = (unused_address(), TestService::default());
        let server = Server::builder().config(quiet()).add_service(TestServer::new(service.clone()));
        let server = server.limits(ServerLimits {
            connection_age_max: Some(100 * SECOND),
            connection_age_grace: 10 * SECOND,
            ..ServerLimits::default()
        });
        let server = server.bind(&address).await.unwrap();
        let client = TestClient::new(quiet_channel().timeout(2000 * SECOND).connect(&address).await.unwrap());
        let long = asking(&client, "sleep 500");
        for _ in 0..10_000 {
            ask(&client, "hi").await.unwrap();
            sleep(100 * MILLI).await;
        }
        assert_eq!(long.await.unwrap().unwrap(), "sleep 500");
        let accepted = server.metrics().accepted;
        assert!((9..=12).contains(&accepted), "{accepted} connections in a thousand seconds");
        assert_eq!(server.metrics().connections, 1);
    });
}
