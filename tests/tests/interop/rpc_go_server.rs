//! Our RPC client against Go servers.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use frisbee::{ConnectRetry, HeaderFormat};
use frpc::{CallError, Channel, Code, Config, Connection, Engine, Method, Request, Status, StreamSender, Streaming};
use support::{
    GoPeers, GoServer,
    interop::schema::{
        Blob, Delay, Mood, Number, Point, Rich, Series, Summary, Text,
        interop_client::InteropClient,
        interop_methods,
        rich::{Extra, Part},
        second_client::SecondClient,
        second_methods,
    },
    trusting,
};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    RUN_MAX, all, checks, name, settings,
    transcript::{HEADERS, Recorder, check_clients},
};

#[tokio::test(flavor = "multi_thread")]
async fn our_client_passes_against_go_services() {
    let Some(peers) = GoPeers::find() else { return };
    let checks = checks![
        every_field_round_trips,
        payloads_of_all_lengths_round_trip,
        a_message_over_the_limit_is_rejected_locally,
        an_oversized_answer_fails_as_cheaply_as_possible,
        errors_have_their_text_and_the_code_unknown,
        many_callers_share_a_connection,
        slow_calls_run_concurrently,
        the_last_answer_before_a_hangup_arrives,
        a_server_sends_a_stream,
        a_server_answers_a_stream,
        a_server_can_fail_an_unfinished_request_stream,
        a_failed_request_stream_fails_the_call,
        bidirectional_streams_work,
        all_requests_may_be_sent_before_reading_answers,
        a_server_ends_a_bidirectional_stream,
        streams_of_two_services_do_not_interfere,
        call_ids_skip_a_pending_call_on_wraparound,
        stream_ids_skip_an_open_stream_on_wraparound,
        sequential_streams_leak_nothing,
        cancelled_calls_do_not_affect_others,
        cancelled_streams_do_not_affect_others,
        a_call_without_an_answer_times_out,
        a_crashed_server_fails_pending_calls,
    ];
    let (mut busy, mut idle) = (Vec::new(), Vec::new());
    for (engine, header, tls) in settings() {
        let server = peers.serve("rpc-server", header, tls, &[]).await;
        let go = Arc::new(Go { peers, server, header, engine });
        let name = format!("{} {engine:?}", name(header, tls));
        busy.extend(checks.map(|(check, run)| (format!("{name}: {check}"), run(go.clone()))));
        let sleeping = checks![an_idle_connection_stays_open,];
        idle.extend(sleeping.map(|(check, run)| (format!("{name}: {check}"), run(go.clone()))));
    }
    all(busy, idle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_go_server_gets_one_hello_and_no_other_extension() {
    let Some(peers) = GoPeers::find() else { return };
    let checks = checks![
        every_field_round_trips,
        payloads_of_all_lengths_round_trip,
        a_message_over_the_limit_is_rejected_locally,
        errors_have_their_text_and_the_code_unknown,
        slow_calls_run_concurrently,
        the_last_answer_before_a_hangup_arrives,
        a_server_sends_a_stream,
        a_server_answers_a_stream,
        a_server_can_fail_an_unfinished_request_stream,
        a_failed_request_stream_fails_the_call,
        bidirectional_streams_work,
        all_requests_may_be_sent_before_reading_answers,
        a_server_ends_a_bidirectional_stream,
        streams_of_two_services_do_not_interfere,
        cancelled_calls_do_not_affect_others,
        cancelled_streams_do_not_affect_others,
        a_call_without_an_answer_times_out,
    ];
    for header in HEADERS {
        let mut server = peers.serve("rpc-server", header, false, &[]).await;
        let recorder = Recorder::start(header, server.addr).await;
        server.addr = recorder.addr;
        let go = Arc::new(Go { peers, server, header, engine: Engine::Tokio });
        let run = |(check, run): (&str, crate::Check<Go>)| (format!("{header:?} recorded: {check}"), run(go.clone()));
        all(checks.map(run), []).await;
        drop(go);
        check_clients(recorder.transcripts().await);
    }
}

async fn every_field_round_trips(go: Arc<Go>) {
    let peer = go.dial().await;
    let spot = Rich { extra: Some(Extra::Spot(Point { x: 3, y: 0 })), ..Rich::default() };
    for rich in [Rich::default(), full(), spot] {
        assert_eq!(peer.interop.echo(rich.clone()).await.unwrap().into_inner(), rich);
    }
}

async fn payloads_of_all_lengths_round_trip(go: Arc<Go>) {
    let peer = go.dial().await;
    for len in [0, 1, 127, 128, 511, 512, 513, 16_383, 16_384, 65_535, 65_536, 65_537, 1 << 20, LEN_MAX] {
        let blob = Blob { data: b"\x00\x0fab".repeat(len / 4 + 1)[..len].to_vec() };
        let payload = peer.interop.payload(blob.clone()).await.unwrap().into_inner();
        assert!(payload == blob, "{len} bytes came back as {} others", payload.data.len());
    }
    let (sender, mut answers) = peer.talk().await;
    let longest = "x".repeat(LEN_MAX - "re: ".len());
    sender.send(text(&longest)).await.unwrap();
    assert_eq!(next(&mut answers).await.len(), LEN_MAX);
}

async fn a_message_over_the_limit_is_rejected_locally(go: Arc<Go>) {
    let peer = go.dial().await;
    let long = "x".repeat(LEN_MAX + 1);
    assert_too_large(&peer.interop.payload(Blob { data: long.clone().into() }).await.unwrap_err());
    assert_too_large(&peer.second.tail(text(&long)).await.unwrap_err());
    let (sender, mut answers) = peer.talk().await;
    sender.send(text("short")).await.unwrap();
    assert_eq!(next(&mut answers).await, "re: short");
    sender.send(text(&long)).await.unwrap();
    assert_too_large(&answers.message().await.unwrap_err());
    peer.is_well().await;
    assert!(peer.connection.close_reason().is_none());
}

async fn an_oversized_answer_fails_as_cheaply_as_possible(go: Arc<Go>) {
    let peer = go.dial().await;
    // The server adds the prefix `hello `.
    let status = peer.second.greet(text(&"x".repeat(LEN_MAX))).await.unwrap_err();
    match go.header {
        // This server sends the whole answer.
        HeaderFormat::Plain8 => {
            assert!(matches!(status.call_error(), Some(CallError::AnswerTooLarge { .. })), "{status:?}");
            assert!(peer.connection.close_reason().is_none());
        }
        // This server has a limit and closes the connection instead of sending a larger answer.
        HeaderFormat::Magic10 => {
            assert_lost(&status);
            peer.connection.closed().await;
        }
    }
    peer.is_well().await;
}

async fn errors_have_their_text_and_the_code_unknown(go: Arc<Go>) {
    let peer = go.dial().await;
    for message in ["no such thing", "é", "", "EOF", &"long ".repeat(100)] {
        let status = peer.interop.fail(text(message)).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, message));
    }
}

async fn many_callers_share_a_connection(go: Arc<Go>) {
    let peer = go.dial().await;
    peer.callers(0..300, |peer, caller| async move {
        for call in 0..10 {
            peer.is_greeted(&format!("{caller} {call}")).await;
            let blob = Blob { data: vec![b'x'; caller * call] };
            assert_eq!(peer.interop.payload(blob.clone()).await.unwrap().into_inner(), blob);
        }
    })
    .await;
}

async fn slow_calls_run_concurrently(go: Arc<Go>) {
    let peer = go.dial().await;
    let start = Instant::now();
    peer.callers(0..40, |peer, call| async move {
        assert_eq!(peer.slow(400 - 10 * call, &call.to_string()).await.unwrap(), call.to_string())
    })
    .await;
    // One after another, they would take 8 s.
    assert!(start.elapsed() < Duration::from_secs(7), "took {:?}", start.elapsed());
}

async fn the_last_answer_before_a_hangup_arrives(go: Arc<Go>) {
    // A Go server loses one in some hundreds of these answers.
    let (mut answers, mut lost) = (0, 0);
    while answers < 5 {
        let peer = go.dial().await;
        let status = peer.interop.hangup(text("bye")).await.unwrap_err();
        match status.call_error() {
            None => assert_eq!((status.code(), status.message()), (Code::Unknown, "bye")),
            Some(_) => assert_lost(&status),
        }
        if status.call_error().is_some() {
            lost += 1
        } else {
            answers += 1
        }
        assert!(lost < 3, "{lost} answers were lost, {answers} heard");
        peer.connection.closed().await;
        peer.is_well().await;
        assert_ne!(peer.channel.connection(), Some(peer.connection.clone()), "it is another connection");
    }
}

async fn a_server_sends_a_stream(go: Arc<Go>) {
    let peer = go.dial().await;
    for count in [0, 1, 1000] {
        assert_eq!(peer.numbers(-3, count, "").await, ((-3..).take(count as usize).collect(), None));
    }
    let (numbers, status) = peer.numbers(5, 2, "two is enough").await;
    let status = status.expect("the server fails the stream");
    assert_eq!((numbers, status.0, &*status.1), (vec![5, 6], Code::Unknown, "two is enough"));
}

async fn a_server_answers_a_stream(go: Arc<Go>) {
    let peer = go.dial().await;
    for count in [0_u32, 1, 1000, 20_000] {
        let numbers = (1..=count).map(|value| Number { value: value.into() });
        let summary = peer.interop.total(Streaming::from_iter(numbers)).await.unwrap().into_inner();
        assert_eq!(summary, Summary { sum: i64::from(count) * i64::from(count + 1) / 2, count });
    }
}

async fn a_server_can_fail_an_unfinished_request_stream(go: Arc<Go>) {
    let peer = go.dial().await;
    let (sender, numbers) = Streaming::channel(1);
    // A Go server stops reading from the connection once a stream has 8,191 unread packets, even if they will never be
    // read.
    let sending = async {
        for value in -1000..3000 {
            if sender.send(Number { value }).await.is_err() {
                break;
            }
        }
    };
    let (failed, ()) = tokio::join!(peer.interop.total(numbers), sending);
    let status = failed.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unknown, "negative: -1000"));
    sender.send(Number::default()).await.unwrap_err();
    peer.is_well().await;
}

async fn a_failed_request_stream_fails_the_call(go: Arc<Go>) {
    let peer = go.dial().await;
    let (sender, numbers) = Streaming::channel(1);
    sender.send(Number { value: 1 }).await.unwrap();
    let failing = tokio::spawn(sender.fail(Status::data_loss("no more numbers")));
    assert_eq!(peer.interop.total(numbers).await.unwrap_err().code(), Code::DataLoss);
    failing.await.unwrap();
    let (sender, mut answers) = peer.talk().await;
    sender.send(text("a")).await.unwrap();
    assert_eq!(next(&mut answers).await, "re: a");
    sender.fail(Status::data_loss("no more words")).await;
    assert_eq!(answers.message().await.unwrap_err().code(), Code::DataLoss);
    peer.is_well().await;
}

async fn bidirectional_streams_work(go: Arc<Go>) {
    let peer = go.dial().await;
    let (sender, mut answers) = peer.talk().await;
    for number in 0..1000 {
        sender.send(text(&number.to_string())).await.unwrap();
        assert_eq!(next(&mut answers).await, format!("re: {number}"));
    }
    drop(sender);
    assert!(answers.message().await.unwrap().is_none());
    drop(answers);
    peer.is_quiet().await;
}

async fn all_requests_may_be_sent_before_reading_answers(go: Arc<Go>) {
    let peer = go.dial().await;
    let (sender, mut answers) = peer.talk().await;
    for number in 0..5000 {
        sender.send(text(&number.to_string())).await.unwrap();
    }
    drop(sender);
    for number in 0..5000 {
        assert_eq!(next(&mut answers).await, format!("re: {number}"));
    }
    assert!(answers.message().await.unwrap().is_none());
}

async fn a_server_ends_a_bidirectional_stream(go: Arc<Go>) {
    let peer = go.dial().await;
    let (sender, mut answers) = peer.talk().await;
    for said in ["a", "b", "stop", "unheard"] {
        sender.send(text(said)).await.unwrap();
    }
    assert_eq!((next(&mut answers).await, next(&mut answers).await), ("re: a".to_owned(), "re: b".to_owned()));
    assert!(answers.message().await.unwrap().is_none());
    for_ever(sender, |_| text("nobody listens")).await;
    drop(answers);
    peer.is_quiet().await;
}

async fn streams_of_two_services_do_not_interfere(go: Arc<Go>) {
    let peer = go.dial().await;
    let (sender, mut answers) = peer.talk().await;
    peer.callers(0..50, |peer, index| async move {
        let word = format!("word {index}");
        assert_eq!(peer.tail(&word).await, word);
        assert_eq!(peer.numbers(index, 50, "").await, ((index..index + 50).collect(), None));
        peer.is_greeted(&word).await;
    })
    .await;
    sender.send(text("still there")).await.unwrap();
    assert_eq!(next(&mut answers).await, "re: still there");
}

async fn call_ids_skip_a_pending_call_on_wraparound(go: Arc<Go>) {
    if !go.is_chosen() {
        return;
    }
    let peer = go.dial().await;
    let waiting = tokio::spawn({
        let peer = peer.clone();
        async move { peer.slow(6000, "patience").await.unwrap() }
    });
    peer.callers(0..100, |peer, caller| async move {
        for call in 0..700 {
            let word = format!("{caller} {call}");
            assert_eq!(peer.slow(0, &word).await.unwrap(), word);
        }
    })
    .await;
    assert_eq!(waiting.await.unwrap(), "patience");
}

/// The server reports the end of its answer twice, and the second report may arrive after the stream was closed.
async fn stream_ids_skip_an_open_stream_on_wraparound(go: Arc<Go>) {
    if !go.is_chosen() {
        return;
    }
    let peer = go.dial().await;
    let (sender, mut answers) = peer.talk().await;
    // Our half of the ids has 32,767.
    peer.callers(0..100, |peer, caller| async move {
        for call in 0..350 {
            let numbers = [caller, call].map(|value| Number { value });
            let summary = peer.interop.total(Streaming::from_iter(numbers)).await.unwrap().into_inner();
            assert_eq!(summary, Summary { sum: caller + call, count: 2 });
        }
    })
    .await;
    sender.send(text("still there")).await.unwrap();
    assert_eq!(next(&mut answers).await, "re: still there");
    drop((sender, answers));
    peer.is_quiet().await;
    assert_eq!(peer.connection.metrics().counters.streams_refused, 0);
}

async fn sequential_streams_leak_nothing(go: Arc<Go>) {
    let peer = go.dial().await;
    for start in 0..2500 {
        assert_eq!(peer.numbers(start, 2, "").await, (vec![start, start + 1], None));
    }
    peer.is_quiet().await;
}

async fn cancelled_calls_do_not_affect_others(go: Arc<Go>) {
    let peer = go.dial().await;
    for _ in 0..100 {
        assert!(once(peer.slow(100, "late")).await.is_pending());
    }
    // Its answer arrives after the others.
    assert_eq!(peer.slow(300, "in time").await.unwrap(), "in time");
    for call in 0..200 {
        assert_eq!(peer.slow(0, &call.to_string()).await.unwrap(), call.to_string());
    }
    assert!(peer.connection.close_reason().is_none());
}

async fn cancelled_streams_do_not_affect_others(go: Arc<Go>) {
    let peer = go.dial().await;
    for start in 0..50 {
        let series = Series { start, count: 5000, fail_with: String::new() };
        let mut numbers = peer.interop.numbers(series).await.unwrap().into_inner();
        assert_eq!(numbers.message().await.unwrap(), Some(Number { value: start }));
        drop(numbers);
        let (sender, mut answers) = peer.talk().await;
        let talking = tokio::spawn(for_ever(sender, |index| text(&index.to_string())));
        assert_eq!(next(&mut answers).await, "re: 0");
        drop(answers);
        talking.await.unwrap();
        let (_sender, requests) = Streaming::<Number>::channel(1);
        assert!(once(peer.interop.total(requests)).await.is_pending());
    }
    peer.is_quiet().await;
    assert!(peer.connection.close_reason().is_none());
}

async fn a_call_without_an_answer_times_out(go: Arc<Go>) {
    const NOWHERE: Method = Method::unary("interop.Nowhere", "Call", 99);
    let peer = go.dial().await;
    let channel = &peer.channel;
    assert_timed_out(channel.unary::<Text, Text>(&NOWHERE, hasty(text("a"))).await);
    assert_timed_out(channel.unary::<Text, Text>(&interop_methods::TALK, hasty(text("a stream's packet"))).await);
    assert_timed_out(channel.unary::<Blob, Text>(&second_methods::GREET, hasty(Blob::default())).await);
    for method in [&NOWHERE, &interop_methods::ECHO] {
        let answers = channel.server_streaming::<Text, Text>(method, hasty(text("a"))).await;
        assert_timed_out(answers.unwrap().into_inner().message().await);
        assert_timed_out(
            channel.client_streaming::<Text, Text>(method, hasty(Streaming::from_iter([text("a")]))).await,
        );
    }
    peer.is_quiet().await;
    assert!(peer.connection.close_reason().is_none());
}

async fn an_idle_connection_stays_open(go: Arc<Go>) {
    let peer = go.dial().await;
    let (sender, mut answers) = peer.talk().await;
    // Longer than the silence timeout of the Go peer, which runs in real time.
    sleep(Duration::from_millis(6500)).await;
    sender.send(text("awake")).await.unwrap();
    assert_eq!(next(&mut answers).await, "re: awake");
    peer.is_well().await;
    assert!(peer.connection.close_reason().is_none());
}

async fn a_crashed_server_fails_pending_calls(go: Arc<Go>) {
    let is_tls = go.server.certificate.is_some();
    let server = go.peers.serve("rpc-server", go.header, is_tls, &[]).await;
    let mortal = Go { peers: go.peers, server, header: go.header, engine: go.engine };
    let peer = mortal.dial().await;
    let mut calls: Vec<_> = (0..100).map(|_| Box::pin(peer.slow(60_000, "never"))).collect();
    for call in &mut calls {
        assert!(once(call).await.is_pending());
    }
    let (_counter, numbers) = Streaming::channel(1);
    let mut total = pin!(peer.interop.total(numbers));
    assert!(once(&mut total).await.is_pending());
    let (talker, mut answers) = peer.talk().await;
    // These answers arrive after all of that.
    peer.is_well().await;

    drop(mortal);
    for call in calls {
        assert_lost(&call.await.unwrap_err());
    }
    assert_eq!(total.await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(answers.message().await.unwrap_err().code(), Code::Unavailable);
    for_ever(talker, |_| text("nobody listens")).await;
    let refused = peer.second.greet(text("nobody there")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
}

/// A Go server.
struct Go {
    peers: GoPeers,
    server: GoServer,
    header: HeaderFormat,
    engine: Engine,
}

/// Clients of both services on one connection to the server.
#[derive(Clone)]
struct Peer {
    interop: InteropClient,
    second: SecondClient,
    channel: Channel,
    /// Initial connection of the channel.
    connection: Connection,
}

impl Go {
    /// Returns `true` for the one setting with checks that are expensive and the same everywhere.
    fn is_chosen(&self) -> bool {
        self.engine == Engine::Tokio && self.header == HeaderFormat::Magic10 && self.server.certificate.is_none()
    }

    async fn dial(&self) -> Peer {
        let config = Config { header: Some(self.header), ..Config::default() };
        let mut builder = Channel::builder()
            .config(config)
            .engine(self.engine)
            .connect_timeout(RUN_MAX)
            .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() });
        if let Some(certificate) = &self.server.certificate {
            builder = builder.tls(trusting(certificate.clone()));
        }
        let channel = builder.connect(self.server.addr).await.expect("the server listens");
        Peer {
            interop: InteropClient::new(channel.clone()),
            second: SecondClient::new(channel.clone()),
            connection: channel.connection().expect("it is not in this process"),
            channel,
        }
    }
}

impl Peer {
    async fn slow(&self, milliseconds: u32, text: &str) -> Result<String, Status> {
        let answer = self.interop.slow(Delay { milliseconds, text: text.to_owned() }).await?;
        Ok(answer.into_inner().text)
    }

    async fn talk(&self) -> (StreamSender<Text>, Streaming<Text>) {
        let (sender, texts) = Streaming::channel(1);
        (sender, self.interop.talk(texts).await.unwrap().into_inner())
    }

    /// Returns the numbers of a stream, and its error if it failed.
    async fn numbers(&self, start: i64, count: u32, fail_with: &str) -> (Vec<i64>, Option<(Code, String)>) {
        let series = Series { start, count, fail_with: fail_with.to_owned() };
        let mut numbers = self.interop.numbers(series).await.unwrap().into_inner();
        let mut values = Vec::new();
        loop {
            match numbers.message().await {
                Ok(Some(Number { value })) => values.push(value),
                Ok(None) => return (values, None),
                Err(status) => return (values, Some((status.code(), status.message().to_owned()))),
            }
        }
    }

    async fn tail(&self, word: &str) -> String {
        let mut characters = self.second.tail(text(word)).await.unwrap().into_inner();
        let mut tail = String::new();
        while let Some(Text { text }) = characters.message().await.unwrap() {
            tail.push_str(&text);
        }
        tail
    }

    async fn is_greeted(&self, name: &str) {
        let greeting = self.second.greet(text(name)).await.unwrap().into_inner();
        assert_eq!(greeting.text, format!("hello {name}"));
    }

    /// Runs callers concurrently.
    async fn callers<T, F>(&self, callers: impl Iterator<Item = T>, call: impl Fn(Self, T) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        callers.map(|caller| call(self.clone(), caller)).collect::<JoinSet<_>>().join_all().await;
    }

    /// Asserts that calls of both services are answered.
    async fn is_well(&self) {
        self.is_greeted("you").await;
        assert_eq!(self.tail("abc").await, "abc");
    }

    /// Waits until the connection has no open streams, and asserts that it still works.
    async fn is_quiet(&self) {
        while self.connection.metrics().streams > 0 {
            self.is_well().await;
        }
        self.is_well().await;
    }
}

fn full() -> Rich {
    let part = |name: &str, next: Option<Part>| Part {
        name: name.to_owned(),
        samples: vec![1.5, -0.25, f64::INFINITY],
        next: next.map(Box::new),
    };
    Rich {
        places: HashMap::from(
            [("a", 1, -1), ("b", 0, 0), ("", i32::MAX, i32::MIN)].map(|(name, x, y)| (name.to_owned(), Point { x, y })),
        ),
        title: "títle \0 中 😀".to_owned(),
        parts: vec![part("p1", Some(part("p1.1", Some(part("p1.1.1", None))))), Part::default()],
        origin: Some(Point { x: -64, y: 64 }),
        on: true,
        mood: Mood::Stormy.into(),
        i32: i32::MIN,
        i64: i64::MIN,
        u32: u32::MAX,
        u64: u64::MAX,
        s64: i64::MAX,
        f32: 0x8000_0000,
        sf64: -1,
        single: -1.5,
        wide: f64::MAX,
        blob: vec![0, 1, 2, 255],
        tags: vec![String::new(), "x".to_owned(), "y".repeat(200)],
        numbers: vec![0, -1, 1, i64::MAX, i64::MIN],
        names: HashMap::from([(-1, "minus"), (0, ""), (1, "one")].map(|(number, name)| (number, name.to_owned()))),
        moods: HashMap::from(
            [("m", Mood::Calm), ("n", Mood::Stormy)].map(|(name, mood)| (name.to_owned(), mood.into())),
        ),
        extra: Some(Extra::Ticket(7)),
    }
}

fn text(text: &str) -> Text {
    Text { text: text.to_owned() }
}

async fn next(answers: &mut Streaming<Text>) -> String {
    answers.message().await.unwrap().expect("another answer comes").text
}

/// Sends messages until the receiver is gone.
async fn for_ever<M>(sender: StreamSender<M>, message: impl Fn(i64) -> M) {
    let mut index = 0;
    while sender.send(message(index)).await.is_ok() {
        index += 1;
    }
}

/// Polls a future once and drops it.
async fn once<T>(future: impl Future<Output = T>) -> Poll<T> {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Returns a request with a short timeout, for an answer that never comes.
fn hasty<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(HASTE);
    request
}

fn assert_timed_out<T>(result: Result<T, Status>) {
    let Err(status) = result else { panic!("there is an answer") };
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(matches!(status.call_error(), Some(CallError::TimedOut { limit: HASTE })), "{status:?}");
}

fn assert_lost(status: &Status) {
    let error = status.call_error();
    assert!(matches!(error, Some(CallError::ConnectionLost { may_have_executed: true, .. })), "{status:?}");
    assert_eq!(status.code(), Code::Unavailable);
}

fn assert_too_large(status: &Status) {
    let (error, len) = (status.call_error(), CONTENT_LEN_MAX + 1);
    assert!(matches!(error, Some(CallError::MessageTooLarge { len: found, .. }) if *found == len), "{status:?}");
}

const CONTENT_LEN_MAX: usize = 5 * 1024 * 1024;
/// Maximum length of the only text or payload in a message. Flags, kind and length take the rest.
const LEN_MAX: usize = CONTENT_LEN_MAX - 8;
const HASTE: Duration = Duration::from_millis(200);
