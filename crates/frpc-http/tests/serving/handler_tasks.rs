//! Handlers in tasks of their own, next to the task of their HTTP/2 connection, and the limits on handlers.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use frpc::{Answer, Body, Call, CallSettings, Dispatch, Method, Server, ServerLimits, Service, Status, Streaming};
use frpc_http::{Http, Mount, MountContext};
use futures_util::{
    future::{BoxFuture, FutureExt},
    stream,
};
use h2::Reason;
use http::{Request, Response, StatusCode};
use support::{
    EventLog,
    calls::{TestService, asking, connect},
    in_real_time, in_virtual_time, settle,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::sleep,
};

use crate::h2_caller::{H2Caller, Reply, grpc_request, messages, server};

/// Blocks the threads of its handlers, each until the test lets it go on.
struct Blocking {
    entered: UnboundedSender<()>,
    gate: Mutex<mpsc::Receiver<()>>,
}

/// The test's side of [`Blocking`]. Dropping it lets all handlers go on.
struct Key {
    entered: UnboundedReceiver<()>,
    gate: mpsc::Sender<()>,
}

impl Blocking {
    fn new() -> (Self, Key) {
        let ((entered, has_entered), (gate, opened)) = (unbounded_channel(), mpsc::channel());
        (Self { entered, gate: Mutex::new(opened) }, Key { entered: has_entered, gate })
    }

    fn block(&self) {
        let _ = self.entered.send(());
        // Fails if the test has failed.
        let _ = self.gate.lock().unwrap().recv();
    }
}

impl Service for Blocking {
    const NAME: &'static str = "calls.Blocking";
    const METHODS: &'static [Method] = &[
        Method::unary("calls.Blocking", "One", 110),
        Method::server_streaming("calls.Blocking", "Many", 111),
        Method::bidirectional("calls.Blocking", "Both", 112),
    ];

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        match call.into_parts().1 {
            Body::Many(mut requests) => while requests.message().await?.is_some() {},
            body => drop(body),
        }
        self.block();
        Ok(Answer::new(match method {
            0 => Body::from(&b"\x0a\x02hi"[..]),
            _ => Body::Many(Streaming::from_iter([Bytes::from_static(b"\x0a\x02hi")])),
        }))
    }
}

impl Mount for Blocking {
    fn respond<'a>(&'a self, _: MountContext, _: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        async {
            self.block();
            Response::new(Bytes::from_static(b"done"))
        }
        .boxed()
    }
}

async fn ask(caller: &H2Caller, path: &str) -> Reply {
    let mut request = grpc_request("", &[]);
    *request.uri_mut() = format!("http://test{path}").parse().unwrap();
    H2Caller(caller.0.clone()).ask(request, messages(&["hi"])).await
}

/// Makes a call that blocks its thread, and other calls on the same connection in the meantime.
async fn check_that_other_calls_go_on(server: &Server, mut key: Key, path: &str) -> Reply {
    let mut caller = H2Caller::connect(server).await;
    let blocked = tokio::spawn({
        let (caller, path) = (H2Caller(caller.0.clone()), path.to_owned());
        async move { ask(&caller, &path).await }
    });
    key.entered.recv().await.unwrap();
    for (method, answer) in [("Say", &["a"][..]), ("Count", &["a"]), ("Gather", &["a"]), ("Chat", &["re: a"])] {
        assert_eq!(caller.call(method, &[], &["a"]).await.texts(), answer, "{path}: {method}");
    }
    assert!(!blocked.is_finished());
    key.gate.send(()).unwrap();
    blocked.await.unwrap()
}

#[test]
fn handlers_of_streams_that_block_their_thread_do_not_delay_other_calls() {
    for method in ["Many", "Both"] {
        in_real_time(async {
            let (blocking, key) = Blocking::new();
            let services = server(&TestService::default(), Http::new()).add_service(blocking);
            let server = services.without_listener().unwrap();
            let reply = check_that_other_calls_go_on(&server, key, &format!("/calls.Blocking/{method}")).await;
            assert_eq!(reply.texts(), ["hi"], "{method}");
        });
    }
}

#[test]
fn spawned_unary_handlers_that_block_their_thread_do_not_delay_other_calls() {
    in_real_time(async {
        let (blocking, key) = Blocking::new();
        let services = server(&TestService::default(), Http::new()).calls(dispatch(Dispatch::Spawned));
        let server = services.add_service(blocking).without_listener().unwrap();
        let reply = check_that_other_calls_go_on(&server, key, "/calls.Blocking/One").await;
        assert_eq!(reply.texts(), ["hi"]);
    });
}

#[test]
fn mounts_that_block_their_thread_do_not_delay_other_calls() {
    in_real_time(async {
        let (blocking, key) = Blocking::new();
        let http = Http::new().mount("/blocking", blocking);
        let server = server(&TestService::default(), http).without_listener().unwrap();
        let reply = check_that_other_calls_go_on(&server, key, "/blocking").await;
        assert_eq!((reply.status, &reply.body[..]), (StatusCode::OK, &b"done"[..]));
    });
}

fn dispatch(dispatch: Dispatch) -> CallSettings {
    CallSettings { dispatch, ..CallSettings::default() }
}

fn limited(count: usize) -> Dispatch {
    Dispatch::Limited(count.try_into().unwrap())
}

#[test]
fn spawned_handlers_end_with_their_calls() {
    in_virtual_time(async {
        let service = TestService::default();
        let services = server(&service, Http::new()).calls(dispatch(Dispatch::Spawned));
        let server = services.without_listener().unwrap();
        let mut caller = H2Caller::connect(&server).await;
        let texts = caller.call("Say", &[("grpc-timeout", "2S")], &["sleep 3"]).await.texts();
        assert!(texts[0].starts_with("4 "), "{texts:?}");
        assert_eq!(service.log.take(), ["say sleep 3", "dropped say sleep 3"], "at the deadline");
        let texts = caller.call("Say", &[], &["panic"]).await.texts();
        assert_eq!(texts, ["13 the handler panicked"]);
        service.log.take();
        let mut open = caller.open(grpc_request("Say", &[])).await;
        open.sending.send_data(messages(&["wait"]), true).unwrap();
        settle().await;
        open.sending.send_reset(Reason::CANCEL);
        settle().await;
        assert_eq!(service.log.take(), ["say wait", "dropped say wait"], "with a reset");
        assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), ["hi"]);
        service.log.take();
        for (method, name) in [("Say", "say wait"), ("Count", "count wait"), ("Gather", "gather"), ("Chat", "chat")] {
            let mut caller = H2Caller::connect(&server).await;
            let mut open = caller.open(grpc_request(method, &[])).await;
            open.sending.send_data(messages(&["wait"]), method == "Say" || method == "Count").unwrap();
            settle().await;
            drop((open, caller));
            settle().await;
            assert_eq!(service.log.take(), [name.to_owned(), format!("dropped {name}")], "with the connection");
        }
    });
}

/// The number of callers over HTTP/2, each with a connection, and the calls of each.
const CALLERS: usize = 2;
const CALLS: usize = 5;

/// Starts calls that wait, from several connections, and lets them and `others` go on. Returns the number of running
/// handlers before, and of answers after.
async fn running_handlers(service: &TestService, server: &Server, others: usize) -> (usize, usize) {
    let mut calls = Vec::new();
    for _ in 0..CALLERS {
        let mut caller = H2Caller::connect(server).await;
        for _ in 0..CALLS {
            let mut call = caller.open(grpc_request("Say", &[])).await;
            call.sending.send_data(messages(&["wait"]), true).unwrap();
            settle().await;
            calls.push(call);
        }
    }
    let running = service.log.take().len();
    service.gate.open(CALLERS * CALLS + others);
    let mut answered = 0;
    for call in calls {
        answered += usize::from(call.reply().await.texts() == ["wait"]);
    }
    service.log.take();
    (running, answered)
}

#[test]
fn handlers_are_limited_by_the_dispatch_mode() {
    let all = CALLERS * CALLS;
    let cases = [
        (Dispatch::InPlace, all),
        (Dispatch::Ordered, all),
        (Dispatch::Spawned, all),
        (limited(1), 1),
        (limited(3), 3),
    ];
    for (mode, expected) in cases {
        in_virtual_time(async {
            let service = TestService::default();
            let server = server(&service, Http::new()).calls(dispatch(mode)).without_listener().unwrap();
            let (running, answered) = running_handlers(&service, &server, 0).await;
            assert_eq!((running, answered), (expected, all), "{mode:?}");
        });
    }
}

#[test]
fn handlers_in_place_are_limited_for_the_whole_server() {
    in_virtual_time(async {
        let service = TestService::default();
        let limits = ServerLimits { handlers_max: 3, ..ServerLimits::default() };
        let server = server(&service, Http::new()).limits(limits).without_listener().unwrap();
        for _ in 0..2 {
            // Each connection may exceed the limit by one, as on frisbee.
            let ended = running_handlers(&service, &server, 0).await;
            assert_eq!(ended, (3 + CALLERS, CALLERS * CALLS));
        }
    });
}

#[test]
fn handlers_over_frisbee_and_http2_share_a_limit() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service, Http::new()).calls(dispatch(limited(2))).without_listener().unwrap();
        let over_frisbee = asking(&connect(&server).await, "wait");
        settle().await;
        let (running, answered) = running_handlers(&service, &server, 1).await;
        assert_eq!((running, answered), (2, CALLERS * CALLS), "one over frisbee, one over HTTP/2");
        assert_eq!(over_frisbee.await.unwrap().unwrap(), "wait");
    });
}

#[test]
fn a_call_may_run_out_of_time_before_its_handler_begins() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service, Http::new()).calls(dispatch(limited(1))).without_listener().unwrap();
        let mut caller = H2Caller::connect(&server).await;
        let mut first = caller.open(grpc_request("Say", &[])).await;
        first.sending.send_data(messages(&["wait"]), true).unwrap();
        settle().await;
        let texts = caller.call("Say", &[("grpc-timeout", "2S")], &["late"]).await.texts();
        assert_eq!(texts, ["4 the time of the call was over before its handler could begin"]);
        service.gate.open(2);
        assert_eq!(first.reply().await.texts(), ["wait"]);
        assert_eq!(service.log.take(), ["say wait"]);
    });
}

#[test]
fn the_wait_for_the_limit_counts_as_time_in_a_queue() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service, Http::new()).calls(dispatch(limited(1))).without_listener().unwrap();
        let mut caller = H2Caller::connect(&server).await;
        let mut calls = Vec::new();
        for text in ["wait", "hi"] {
            let mut call = caller.open(grpc_request("Say", &[])).await;
            call.sending.send_data(messages(&[text]), true).unwrap();
            settle().await;
            calls.push((call, text));
        }
        sleep(Duration::from_millis(20)).await;
        service.gate.open(1);
        for (call, text) in calls {
            assert_eq!(call.reply().await.texts(), [text]);
        }
        settle().await;
        let say = server.metrics().method("calls.Test/Say");
        let (waits, wait, durations) = (say.queued.count(), say.queued.sum, say.all_durations().sum);
        assert!(waits == 1 && wait >= Duration::from_millis(20), "{wait:?}");
        assert!(durations >= 2 * wait, "the wait is a part of the duration: {durations:?}");
    });
}

#[test]
fn calls_beyond_the_limit_of_a_connection_are_refused_as_on_frisbee() {
    in_virtual_time(async {
        let service = TestService::default();
        let calls = CallSettings { calls_max: Some(2), ..CallSettings::default() };
        let server = server(&service, Http::new()).calls(calls).without_listener().unwrap();
        let mut caller = H2Caller::connect(&server).await;
        let mut open = Vec::new();
        for _ in 0..2 {
            let mut call = caller.open(grpc_request("Say", &[])).await;
            call.sending.send_data(messages(&["wait"]), true).unwrap();
            open.push(call);
        }
        settle().await;
        let refusal = "8 the peer takes at most 2 calls at once (calls_max): the call was not executed";
        assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), [refusal]);
        assert_eq!(caller.call("Count", &[], &["a"]).await.texts(), ["a"], "streams do not count");
        let mut other = H2Caller::connect(&server).await;
        assert_eq!(other.call("Say", &[], &["hi"]).await.texts(), ["hi"], "another connection");
        service.gate.open(2);
        for call in open {
            assert_eq!(call.reply().await.texts(), ["wait"]);
        }
        assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), ["hi"]);
    });
}

/// Responds with an endless stream, and counts its messages.
struct Endless {
    made: &'static AtomicUsize,
    log: EventLog,
}

struct LogDrop(EventLog);

impl Drop for LogDrop {
    fn drop(&mut self) {
        self.0.add("dropped");
    }
}

impl Service for Endless {
    const NAME: &'static str = "calls.Endless";
    const METHODS: &'static [Method] = &[Method::server_streaming("calls.Endless", "Many", 120)];

    async fn call(&self, _: usize, _: Call) -> Result<Answer, Status> {
        let (made, guard) = (self.made, LogDrop(self.log.clone()));
        let messages = stream::repeat_with(move || {
            let _guard = &guard;
            made.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from_static(&[0; MESSAGE_LEN]))
        });
        Ok(Answer::new(Body::Many(Streaming::new(messages))))
    }
}

const MESSAGE_LEN: usize = 1000;

#[test]
fn responses_that_are_not_read_take_bounded_memory() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    in_virtual_time(async {
        let log = EventLog::default();
        let services =
            server(&TestService::default(), Http::new()).add_service(Endless { made: &MADE, log: log.clone() });
        let server = services.without_listener().unwrap();
        let mut caller = H2Caller::connect(&server).await;
        let mut calls = Vec::new();
        for _ in 0..STREAMS {
            let mut request = grpc_request("", &[]);
            *request.uri_mut() = "http://test/calls.Endless/Many".parse().unwrap();
            let mut call = caller.open(request).await;
            call.sending.send_data(messages(&[""]), true).unwrap();
            calls.push(call);
        }
        settle().await;
        let made = MADE.load(Ordering::Relaxed) * MESSAGE_LEN / STREAMS;
        // The queue of the task, its latest piece, and the queue and the window of the stream.
        assert!((1000..256 << 10).contains(&made), "{made} bytes per stream");
        // The caller resets its streams, and the server drops all handlers.
        drop(calls);
        settle().await;
        assert_eq!(log.take(), ["dropped"; STREAMS]);
        assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), ["hi"]);
    });
}

/// The number of streams opened by a peer that reads none.
const STREAMS: usize = 100;
