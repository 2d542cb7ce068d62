//! The order of frames and the special cases of HTTP/2 requests, from a peer that decides about each frame.

use std::{
    collections::BTreeMap,
    mem,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use frpc::{Body, Call, Method, Server, Service, Status, Streaming};
use frpc_http::{Http, HttpSettings, Mount, MountContext};
use frpc_http2::{Connection, ErrorCode, Event, Field, Header, Settings, StreamId};
use futures_util::{
    future::{self, BoxFuture, FutureExt},
    stream,
};
use http::{Request, Response};
use support::{SECOND, assert_elapsed, calls::TestService, in_virtual_time, settle};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::h2_caller::{H2Caller, frames, grpc_request, messages, server, text};

struct Peer {
    core: Connection,
    socket: DuplexStream,
    seen: BTreeMap<StreamId, Answer>,
}

/// Everything received on a stream.
#[derive(Debug, Default)]
struct Answer {
    informational: Vec<u16>,
    status: Option<u16>,
    body: Vec<u8>,
    reset: Option<ErrorCode>,
    is_over: bool,
}

impl Peer {
    fn connect(server: &Server) -> Self {
        let (socket, theirs) = duplex(1 << 20);
        server.attach(theirs);
        // PONGs count against the limits of this peer.
        let settings = Settings { control_frames_max: u32::MAX, ..Settings::default() };
        Self { core: Connection::client(settings, Instant::now()), socket, seen: BTreeMap::new() }
    }

    fn open(&mut self, path: &str, more: &[Field<'_>], end: bool) -> StreamId {
        let mut fields = vec![
            Field::new(":method", "POST"),
            Field::new(":scheme", "http"),
            Field::new(":path", path),
            Field::new(":authority", "test"),
            Field::new("content-type", "application/grpc"),
        ];
        fields.extend_from_slice(more);
        self.core.open(Header::fields(&fields), end).unwrap()
    }

    fn send(&mut self, stream: StreamId, data: impl Into<Bytes>, end: bool) {
        self.core.send_data(stream, data.into(), end).unwrap();
    }

    /// Sends as much as the windows of the server allow.
    async fn flush(&mut self) {
        let mut output = Vec::new();
        while self.core.take_output(&mut output) {
            self.socket.write_all(&mem::take(&mut output)).await.unwrap();
        }
    }

    /// Exchanges bytes with the server until all these streams are over.
    async fn finish(&mut self, streams: &[StreamId]) {
        self.exchange(|seen| streams.iter().all(|stream| seen.get(stream).is_some_and(|answer| answer.is_over))).await;
    }

    async fn exchange(&mut self, is_enough: impl Fn(&BTreeMap<StreamId, Answer>) -> bool) {
        let mut unread = Vec::new();
        while !is_enough(&self.seen) {
            let mut output = Vec::new();
            self.core.take_output(&mut output);
            self.socket.write_all(&output).await.unwrap();
            assert!(self.socket.read_buf(&mut unread).await.unwrap() > 0, "the connection stays open");
            loop {
                let received = self.core.receive(&unread, Instant::now()).unwrap();
                let consumed = received.consumed;
                let Some(event) = received.event else {
                    unread.drain(..consumed);
                    break;
                };
                note(&mut self.seen, event);
                unread.drain(..consumed);
            }
        }
    }
}

fn note(seen: &mut BTreeMap<StreamId, Answer>, event: Event<'_>) {
    match event {
        Event::Informational { stream, head } => seen.entry(stream).or_default().informational.extend(head.status()),
        Event::Head { stream, head, end } => {
            let answer = seen.entry(stream).or_default();
            (answer.status, answer.is_over) = (head.status(), end);
        }
        Event::Data { stream, data, end } => {
            let answer = seen.entry(stream).or_default();
            answer.body.extend_from_slice(data);
            answer.is_over = end;
        }
        Event::Trailers { stream, .. } => seen.entry(stream).or_default().is_over = true,
        Event::Reset { stream, error } => {
            let answer = seen.entry(stream).or_default();
            (answer.reset, answer.is_over) = (Some(error.code), true);
        }
        _ => {}
    }
}

fn texts(answer: &Answer) -> Vec<String> {
    frames(&answer.body).into_iter().map(|(_, content)| text(&content)).collect()
}

/// Panics for every request.
struct Bomb;

impl Mount for Bomb {
    fn respond<'a>(&'a self, _: MountContext, _: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        async { panic!("this mount always panics") }.boxed()
    }
}

#[test]
fn requests_may_interleave_their_frames() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let mut peer = Peer::connect(&server);
        // All heads are alike, so nine of ten calls are made from the head of the first.
        let streams: Vec<_> = (0..10).map(|_| peer.open("/calls.Test/Say", &[], false)).collect();
        for (i, stream) in streams.iter().enumerate() {
            let message = messages(&[&format!("text {i}")]);
            // Half a message, a whole one, or a whole one with the end of the body.
            match i % 3 {
                0 => peer.send(*stream, message.slice(..7), false),
                1 => peer.send(*stream, message, false),
                _ => peer.send(*stream, message, true),
            }
        }
        for (i, stream) in streams.iter().enumerate().rev() {
            match i % 3 {
                0 => peer.send(*stream, messages(&[&format!("text {i}")]).slice(7..), true),
                1 => peer.send(*stream, Bytes::new(), true),
                _ => {}
            }
        }
        peer.finish(&streams).await;
        for (i, stream) in streams.iter().enumerate() {
            assert_eq!(texts(&peer.seen[stream]), [format!("text {i}")]);
        }
    });
}

#[test]
fn a_stream_of_requests_ends_with_trailers() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let mut peer = Peer::connect(&server);
        let stream = peer.open("/calls.Test/Gather", &[], false);
        peer.send(stream, messages(&["a", "b"]), false);
        peer.core.send_trailers(stream, Header::fields(&[Field::new("x-sum", "2")])).unwrap();
        peer.finish(&[stream]).await;
        assert_eq!(peer.seen[&stream].status, Some(200));
        assert_eq!(texts(&peer.seen[&stream]).len(), 1);
    });
}

#[test]
fn a_peer_that_expects_a_decision_may_send_its_body() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let mut peer = Peer::connect(&server);
        let stream = peer.open("/calls.Test/Say", &[Field::new("expect", "100-continue")], false);
        peer.exchange(|seen| seen.get(&stream).is_some_and(|answer| !answer.informational.is_empty())).await;
        assert_eq!((&peer.seen[&stream].informational[..], peer.seen[&stream].status), (&[100][..], None));
        peer.send(stream, messages(&["hi"]), true);
        peer.finish(&[stream]).await;
        assert_eq!(texts(&peer.seen[&stream]), ["hi"]);
    });
}

#[test]
fn a_panic_resets_its_stream_alone() {
    in_virtual_time(async {
        let http = Http::new().mount("/bomb", Bomb);
        let server = server(&TestService::default(), http).without_listener().unwrap();
        let mut peer = Peer::connect(&server);
        let call = peer.open("/calls.Test/Say", &[], false);
        let bomb = peer.open("/bomb", &[], true);
        peer.finish(&[bomb]).await;
        assert_eq!(peer.seen[&bomb].reset, Some(ErrorCode::INTERNAL_ERROR));
        peer.send(call, messages(&["hi"]), true);
        peer.finish(&[call]).await;
        assert_eq!(texts(&peer.seen[&call]), ["hi"]);
    });
}

#[test]
fn a_peer_may_measure_its_bandwidth_with_pings() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let mut peer = Peer::connect(&server);
        (0..5000).for_each(|_| peer.core.ping(*b"estimate"));
        let call = peer.open("/calls.Test/Say", &[], false);
        peer.send(call, messages(&["hi"]), true);
        peer.finish(&[call]).await;
        assert_eq!(texts(&peer.seen[&call]), ["hi"]);
    });
}

/// Keeps its requests unread.
struct Unread;

impl Service for Unread {
    const NAME: &'static str = "Unread";
    const METHODS: &'static [Method] = &[Method::client_streaming("Unread", "Keep", 10)];

    async fn call(&self, _: usize, call: Call) -> Result<frpc::Answer, Status> {
        let _requests = call;
        future::pending().await
    }
}

#[test]
fn an_unread_upload_does_not_hold_back_other_calls() {
    in_virtual_time(async {
        let services = server(&TestService::default(), Http::new()).add_service(Unread);
        let server = services.without_listener().unwrap();
        let mut peer = Peer::connect(&server);
        let unread = peer.open("/Unread/Keep", &[], false);
        for has_upload in [false, true] {
            if has_upload {
                // More than a stream may send without a reader.
                peer.send(unread, vec![0; (1 << 20) + 1], false);
                peer.flush().await;
            }
            // The first call ends after the settings of the server have arrived.
            let call = peer.open("/calls.Test/Say", &[], false);
            peer.send(call, messages(&["hi"]), true);
            peer.finish(&[call]).await;
            assert_eq!(texts(&peer.seen[&call]), ["hi"]);
        }
    });
}

/// The handler runs in a task of its own, so its reads do not wake the connection by themselves.
#[test]
fn unread_uploads_do_not_hold_back_a_handler_in_a_task() {
    in_virtual_time(async {
        let services = server(&TestService::default(), Http::new()).add_service(Unread);
        let server = services.without_listener().unwrap();
        let mut peer = Peer::connect(&server);
        let call = peer.open("/calls.Test/Say", &[], false);
        peer.send(call, messages(&["hi"]), true);
        peer.finish(&[call]).await;
        // All but 100 KiB of the window of the connection.
        for len in [1 << 20, 1 << 20, 1 << 20, (1 << 20) - (100 << 10)] {
            let unread = peer.open("/Unread/Keep", &[], false);
            peer.send(unread, vec![0; len], false);
            peer.flush().await;
        }
        settle().await;
        let start = tokio::time::Instant::now();
        let text = "x".repeat(20_000);
        let upload = peer.open("/calls.Test/Gather", &[], false);
        peer.send(upload, messages(&[&*text; 20]), true);
        peer.finish(&[upload]).await;
        assert_eq!(texts(&peer.seen[&upload]), [[&*text; 20].join(" ")]);
        // Without credit for what the handler reads, the peer would wait for the next PING of the server.
        assert_elapsed(start, Duration::ZERO);
    });
}

/// Panics before it returns a future (`Say`), at the end of the request stream (`Gather`), and in the response stream at
/// the end of the request stream (`Chat`).
struct Fragile;

impl Service for Fragile {
    const NAME: &'static str = "Fragile";
    const METHODS: &'static [Method] = &[
        Method::unary("Fragile", "Say", 10),
        Method::client_streaming("Fragile", "Gather", 11),
        Method::bidirectional("Fragile", "Chat", 12),
    ];

    fn call(&self, method: usize, call: Call) -> impl Future<Output = Result<frpc::Answer, Status>> + Send {
        assert!(method != 0, "on purpose, before the future exists");
        async move {
            let Body::Many(mut requests) = call.into_parts().1 else { return Err(Status::internal("no stream")) };
            if method == 1 {
                while requests.message().await?.is_some() {}
                panic!("on purpose, at the end of the requests");
            }
            let responses = stream::unfold(requests, async |mut requests| {
                let request = requests.message().await.transpose();
                Some((request.expect("on purpose, at the end of the requests"), requests))
            });
            Ok(frpc::Answer::new(Body::Many(Streaming::new(responses))))
        }
    }
}

#[test]
fn a_panic_of_a_service_ends_its_call_alone() {
    in_virtual_time(async {
        let services = server(&TestService::default(), Http::new()).add_service(Fragile);
        let server = services.without_listener().unwrap();
        let mut caller = H2Caller::connect(&server).await;
        let mut other = caller.open(grpc_request("Gather", &[])).await;
        other.send("a");
        for method in ["Say", "Gather", "Chat"] {
            // The last request arrives before the end of the stream, except for `Say`.
            let mut request = grpc_request(method, &[]);
            *request.uri_mut() = format!("http://test/Fragile/{method}").parse().unwrap();
            let mut call = caller.open(request).await;
            call.sending.send_data(messages(&["hi"]), method == "Say").unwrap();
            settle().await;
            if method != "Say" {
                call.finish();
            }
            let reply = call.reply().await;
            let status =
                reply.headers.get("grpc-status").or(reply.trailers.as_ref().and_then(|all| all.get("grpc-status")));
            assert_eq!(status.map(|code| code.as_bytes()), Some(&b"13"[..]), "{method}: {reply:?}");
        }
        other.finish();
        assert_eq!(other.reply().await.status, http::StatusCode::OK);
    });
}

/// Responds late, and then takes longer than the timeouts of the connection.
struct Leap(tokio::time::Instant);

impl Mount for Leap {
    fn respond<'a>(&'a self, _: MountContext, _: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        async {
            tokio::time::sleep_until(self.0).await;
            tokio::time::advance(20 * SECOND).await;
            Response::new(Bytes::from_static(b"late"))
        }
        .boxed()
    }
}

/// Without the fix, this test runs for ever: the timer is due at the end of the turn, but not at its start.
#[test]
fn a_timeout_that_passes_during_a_turn_is_handled() {
    in_virtual_time(async {
        let start = tokio::time::Instant::now();
        let http = Http::new().mount("/leap", Leap(start + 10 * SECOND)).settings(HttpSettings {
            head_time_max: 10 * SECOND,
            keepalive_interval: Some(15 * SECOND),
            ..HttpSettings::default()
        });
        let server = server(&TestService::default(), http).without_listener().unwrap();
        let mut peer = Peer::connect(&server);
        let mut greeting = Vec::new();
        peer.core.take_output(&mut greeting);
        peer.socket.write_all(&greeting).await.unwrap();
        settle().await;
        let leap = peer.open("/leap", &[], true);
        peer.finish(&[leap]).await;
        assert_eq!(peer.seen[&leap].body, b"late");
    });
}

/// Wakes itself once, and responds with more than the windows of the peer allow.
struct SecondThought;

impl Mount for SecondThought {
    fn respond<'a>(&'a self, _: MountContext, _: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        async {
            let mut is_woken = false;
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut is_woken, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            Response::new(vec![b'x'; 1_000_000].into())
        }
        .boxed()
    }
}

#[test]
fn a_late_response_is_reset_if_it_is_not_read() {
    in_virtual_time(async {
        let http = Http::new().mount("/second", SecondThought).settings(HttpSettings {
            write_stall_max: 7 * SECOND,
            keepalive_interval: None,
            ..HttpSettings::default()
        });
        let server = server(&TestService::default(), http).without_listener().unwrap();
        let (socket, theirs) = duplex(1 << 20);
        server.attach(theirs);
        let settings = Settings { stream_window: 1000, ..Settings::default() };
        let core = Connection::client(settings, Instant::now());
        let mut peer = Peer { core, socket, seen: BTreeMap::new() };
        // The greetings are over after a first request, so nothing wakes the connection any more.
        let first = peer.open("/none", &[], true);
        peer.finish(&[first]).await;
        let start = tokio::time::Instant::now();
        let stream = peer.open("/second", &[], true);
        // Data is never released, so the window stays closed.
        peer.finish(&[stream]).await;
        assert_eq!(peer.seen[&stream].reset, Some(ErrorCode::CANCEL));
        assert_elapsed(start, 7 * SECOND);
    });
}

#[test]
fn refusals_of_head_requests_have_no_body() {
    in_virtual_time(async {
        let http = Http::new().allowed_hosts(["other"]);
        let foreign = server(&TestService::default(), http).without_listener().unwrap();
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let long = "x".repeat(20_000);
        let fields = |path| {
            [
                Field::new(":method", "HEAD"),
                Field::new(":scheme", "http"),
                Field::new(":path", path),
                Field::new(":authority", "test"),
            ]
        };
        for (server, path, more, status) in [
            (&foreign, "/", vec![], 421),
            (&server, "/", vec![Field::new("x", &long)], 431),
            (&server, "/<>", vec![], 400),
        ] {
            let mut peer = Peer::connect(server);
            let fields = [&fields(path)[..], &more].concat();
            let stream = peer.core.open(Header::fields(&fields), true).unwrap();
            peer.finish(&[stream]).await;
            let answer = &peer.seen[&stream];
            assert_eq!((answer.status, answer.reset, answer.body.len()), (Some(status), None, 0), "{path}");
        }
    });
}
