//! Random calls over every wire, counted by their callers and handlers. The metrics of both sides agree exactly.

use std::{
    collections::{BTreeMap, BTreeSet},
    slice,
    sync::{Arc, Mutex},
    time::Duration,
};

use frpc::{Channel, Code, Request, Response, Status, Streaming, codec::encode, metrics::MethodMetrics};
use frpc_nats::{NatsCluster, NatsServer};
use futures_util::{StreamExt, future::join_all, stream};
use support::{
    MILLI, NatsProgram, SECOND,
    calls::{TestClient, TestServer, Words, schema::test_server::Test, words},
    in_real_time, in_real_time_within,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    plain_posts::{BATCH, REST},
    wires::{EveryWire, SCHEMES, connect_at, serve_with_rest},
};

#[test]
fn the_metrics_of_random_calls_agree_with_their_callers_and_handlers_on_every_wire() {
    for seed in seeds() {
        for (scheme, path, has_request_streams) in SCHEMES.into_iter().chain([(REST, "", true), (BATCH, "", false)]) {
            let kinds = match scheme {
                REST => 3,
                _ if has_request_streams => 4,
                "twirp+http" | "jsonrpc+http" | BATCH => 1,
                _ => 2,
            };
            let sizes = match scheme {
                "tcp" | "ws" => encoded_len,
                _ if scheme == REST || scheme.starts_with("jsonrpc") => json_len,
                _ => protobuf_len,
            };
            in_real_time(async {
                let handlers = CountingService::new(sizes);
                let server = serve_with_rest(TestServer::new(handlers.clone())).await;
                let relay = Relay::new(server.local_addr().to_string().split_once("://").unwrap().1).await;
                let channel = connect_at(&relay.address, scheme, path).await;
                let wire = RelayedWire { scheme, handlers, server, channel, relays: vec![relay] };
                wire.make_random_calls(kinds, seed).await;
            });
        }
    }
}

#[test]
fn the_metrics_of_random_calls_agree_while_connections_to_nats_server_are_cut() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time_within(120 * SECOND, async {
        // Most of the time, callers wait for lost answers.
        join_all(seeds().map(async |seed| {
            let handlers = CountingService::new(protobuf_len);
            let server = serve_with_rest(TestServer::new(handlers.clone())).await;
            let nats = program.start("one", "").await;
            let addr = nats.addr.to_string();
            let relays = vec![Relay::new(&addr).await, Relay::new(&addr).await];
            let cluster = NatsCluster::new(&relays[0].address);
            let through_nats = NatsServer::builder("test").serve(&cluster, server.endpoint()).await.unwrap();
            let channel = connect_at(&relays[1].address, NATS, "/test").await;
            RelayedWire { scheme: NATS, handlers, server, channel, relays }.make_random_calls(4, seed).await;
            drop((through_nats, nats));
        }))
        .await;
    });
}

fn seeds() -> [u64; 4] {
    [1, 2, 3, fastrand::u64(..)]
}

/// A server with a channel. All of their connections pass through relays.
struct RelayedWire {
    scheme: &'static str,
    handlers: CountingService,
    server: EveryWire,
    channel: Channel,
    /// Through NATS, one for each side.
    relays: Vec<Relay>,
}

impl RelayedWire {
    async fn make_random_calls(self, kinds: usize, seed: u64) {
        let Self { scheme, handlers, server, channel, relays } = self;
        let name = format!("{scheme}, seed {seed}");
        println!("{name}");
        let (client, counts) = (TestClient::new(channel.clone()), SideCounts::new(handlers.counts.len));
        let callers = Callers { client, counts, handlers, is_batched: scheme == BATCH };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut id = 0;
        for group in 0..GROUPS {
            let before = id;
            let effect = match random.u8(..8) {
                _ if scheme == NATS && group == GROUPS - 1 => Some(CutEffect::LostAnswers),
                0 if scheme != NATS => Some(CutEffect::LostCalls),
                0..3 if scheme == NATS => Some(CutEffect::Pause),
                _ => None,
            };
            let mut plan = || {
                id += 1;
                RandomCall::new(&mut random, id, kinds, effect)
            };
            let calls: Vec<RandomCall> = (0..GROUP_LEN).map(|_| plan()).collect();
            let ids = before + 1..=id;
            // One of the relays, or all.
            let cut = relays.get(random.usize(..=relays.len())).map_or(&relays[..], slice::from_ref);
            let cutting = async {
                let Some(effect) = effect else { return };
                for call in &calls {
                    callers.handlers.arrival(call.id).await;
                }
                cut.iter().for_each(Relay::cut);
                if effect == CutEffect::LostAnswers {
                    callers.handlers.release(ids.clone());
                }
                cut.iter().for_each(Relay::resume);
                if effect == CutEffect::Pause {
                    for relay in cut {
                        relay.connection().await;
                    }
                    while callers.say("0 1 echo 0 again").await != Code::Ok {}
                    callers.handlers.release(ids.clone());
                }
            };
            tokio::join!(join_all(calls.iter().map(|call| callers.make(call))), cutting);
            // Some wires do not tell the server of a dropped, late or cut call. Its handler may end now.
            callers.handlers.release(ids);
            while effect.is_some() && callers.say("0 1 echo 0 again").await != Code::Ok {}
        }
        callers.handlers.counts.assert_agree(|| server.metrics().methods, &format!("handlers over {name}")).await;
        callers.counts.assert_agree(|| channel.metrics(), &format!("callers over {name}")).await;
    }
}

/// The effect of cut connections on calls whose handlers wait.
#[derive(Clone, Copy, PartialEq)]
enum CutEffect {
    /// The calls have failed.
    LostCalls,
    /// The calls continue over the next connections.
    Pause,
    /// The handlers end before the next connections.
    LostAnswers,
}

/// A random call. Its last request has the command for the handler; the requests before it, `echo`.
struct RandomCall {
    id: u64,
    kind: usize,
    /// The number and the length of messages, in each direction if it has a stream.
    messages: usize,
    len: usize,
    command: &'static str,
    argument: u64,
    timeout: Option<Duration>,
    /// `true` if the caller drops it while its handler waits.
    is_dropped: bool,
    /// `true` if the stream of requests has no end.
    is_open: bool,
}

impl RandomCall {
    fn new(random: &mut fastrand::Rng, id: u64, kinds: usize, cut: Option<CutEffect>) -> Self {
        let (kind, messages) = (random.usize(..kinds), random.usize(1..6));
        let (command, argument, timeout, is_dropped) = match (cut, random.u8(..10)) {
            (Some(CutEffect::LostCalls), _) => ("wait", id, None, false),
            // The frame of an end or a cancellation may be lost. Silence alone ends a stream after 16 to 21 seconds.
            (Some(_), number) => ("wait", id, (kind > 0).then_some(6 * SECOND), number < 3),
            (None, 0) => ("wait", id, Some(30 * MILLI), false),
            (None, 1 | 2) => ("wait", id, None, true),
            (None, 3 | 4) => ("fail", random.u64(1..=16), None, false),
            (None, 5) => ("panic", 0, None, false),
            (None, _) => ("echo", 0, None, false),
        };
        let len = if random.u8(..8) == 0 { random.usize(1..70_000) } else { random.usize(1..300) };
        let ends_early = match cut {
            Some(CutEffect::LostCalls) => true,
            Some(CutEffect::Pause) => is_dropped,
            _ => is_dropped || timeout.is_some(),
        };
        Self { id, kind, messages, len, command, argument, timeout, is_dropped, is_open: ends_early && random.bool() }
    }

    fn text(&self, command: &str, argument: u64) -> String {
        format!("{} {} {command} {argument} {}", self.messages, self.len, "x".repeat(self.len))
    }

    fn last_text(&self) -> String {
        self.text(self.command, self.argument)
    }

    /// Returns the number of responses before the command.
    fn responses_before(&self) -> usize {
        match self.kind {
            1 => self.messages,
            3 => self.messages - 1,
            _ => 0,
        }
    }
}

/// The calls of one method, as one side counted them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CallCounts {
    started: u64,
    by_code: BTreeMap<u8, u64>,
    /// Messages and bytes.
    requests: (u64, usize),
    responses: (u64, usize),
}

impl CallCounts {
    fn of(method: &MethodMetrics) -> Self {
        let totals = &method.totals;
        // Successful calls have an entry, even if there are none.
        let by_code = totals.durations.iter().map(|(code, durations)| (*code, durations.count()));
        let len = |bytes: u64| usize::try_from(bytes).unwrap();
        Self {
            started: totals.started,
            by_code: by_code.filter(|(_, count)| *count > 0).collect(),
            requests: (totals.request_messages, len(totals.request_bytes)),
            responses: (totals.response_messages, len(totals.response_bytes)),
        }
    }
}

/// The calls of one side.
#[derive(Clone)]
struct SideCounts {
    methods: Arc<Mutex<BTreeMap<&'static str, CallCounts>>>,
    len: fn(&Words) -> usize,
}

impl SideCounts {
    fn new(len: fn(&Words) -> usize) -> Self {
        Self { methods: Arc::default(), len }
    }

    fn change(&self, method: &'static str, change: impl FnOnce(&mut CallCounts)) {
        change(self.methods.lock().unwrap().entry(method).or_default());
    }

    fn request(&self, method: &'static str, message: &Words) {
        self.change(method, |counts| add(&mut counts.requests, (self.len)(message)));
    }

    fn response(&self, method: &'static str, message: &Words) {
        self.change(method, |counts| add(&mut counts.responses, (self.len)(message)));
    }

    fn end(&self, method: &'static str, code: u8) {
        self.change(method, |counts| *counts.by_code.entry(code).or_default() += 1);
    }

    /// Returns the counts if all calls have ended.
    fn ended(&self, metrics: &[MethodMetrics]) -> BTreeMap<String, CallCounts> {
        let mut methods = self.methods.lock().unwrap().clone();
        for (name, counts) in &mut methods {
            // The server may learn of a deadline from its own clock or as a cancellation.
            let late = counts.by_code.remove(&LATE).unwrap_or_default();
            let metrics = metrics.iter().find(|metrics| metrics.method == format!("calls.Test/{name}"));
            let (exceeded, cancelled) = (Code::DeadlineExceeded.into(), Code::Cancelled.into());
            let known = counts.by_code.get(&exceeded).copied().unwrap_or_default();
            let counted = metrics.map_or(0, |metrics| metrics.totals.ended(exceeded));
            let by_clock = counted.saturating_sub(known).min(late);
            *counts.by_code.entry(exceeded).or_default() += by_clock;
            *counts.by_code.entry(cancelled).or_default() += late - by_clock;
            counts.by_code.retain(|_, count| *count > 0);
        }
        methods.into_iter().map(|(name, counts)| (format!("calls.Test/{name}"), counts)).collect()
    }

    /// Asserts that the metrics become these counts: calls may still be ending.
    async fn assert_agree(&self, metrics: impl Fn() -> Vec<MethodMetrics>, name: &str) {
        let since = Instant::now();
        loop {
            let metrics = metrics();
            let counted = self.ended(&metrics);
            let shown: BTreeMap<_, _> =
                metrics.iter().map(|method| (method.method.clone(), CallCounts::of(method))).collect();
            let in_flight: u64 = metrics.iter().map(|method| method.totals.in_flight()).sum();
            if in_flight == 0 && shown == counted {
                return;
            }
            if since.elapsed() > 10 * SECOND {
                assert_eq!(shown, counted, "metrics and {name}, {in_flight} in flight");
                panic!("{in_flight} calls in flight of {name}");
            }
            sleep(MILLI).await;
        }
    }
}

fn add((messages, bytes): &mut (u64, usize), len: usize) {
    *messages += 1;
    *bytes += len;
}

fn encoded_len(message: &Words) -> usize {
    encode(message).len()
}

fn protobuf_len(message: &Words) -> usize {
    let len = message.text.len();
    // The number of the field, and the length with seven bits per byte.
    1 + (len | 1).ilog2() as usize / 7 + 1 + len
}

fn json_len(message: &Words) -> usize {
    r#"{"text":""}"#.len() + message.text.len()
}

/// The callers, with their counts.
struct Callers {
    client: TestClient,
    counts: SideCounts,
    handlers: CountingService,
    /// `true` if a handler keeps the answers to other calls.
    is_batched: bool,
}

impl Callers {
    async fn make(&self, call: &RandomCall) {
        let (name, counts) = (METHODS[call.kind], &self.counts);
        counts.change(name, |counts| counts.started += 1);
        let seen = watch::Sender::new(0);
        let outcome = {
            let running = self.run(call, &seen);
            let dropped = async {
                seen.subscribe().wait_for(|seen| *seen >= call.responses_before()).await.unwrap();
                self.handlers.arrival(call.id).await;
            };
            tokio::select! {
                biased;
                outcome = running => Some(outcome),
                () = dropped, if call.is_dropped => None,
            }
        };
        let code = outcome.map_or(Code::Cancelled, |outcome| code_of(&outcome));
        counts.end(name, code.into());
        if self.is_batched {
            self.handlers.release([call.id]);
        }
    }

    async fn run(&self, call: &RandomCall, seen: &watch::Sender<usize>) -> Result<(), Status> {
        let (client, counts, name) = (&self.client, &self.counts, METHODS[call.kind]);
        let respond = |message: Words| {
            counts.response(name, &message);
            seen.send_modify(|seen| *seen += 1);
        };
        let one = || {
            let message = words(call.last_text());
            counts.request(name, &message);
            within(call, message)
        };
        let many = || {
            let mut texts = vec![call.text("echo", 0); call.messages - 1];
            texts.push(call.last_text());
            let counts = counts.clone();
            let messages = stream::iter(texts).map(move |text| {
                let message = words(text);
                counts.request(name, &message);
                Ok(message)
            });
            let messages = if call.is_open { messages.chain(stream::pending()).boxed() } else { messages.boxed() };
            within(call, Streaming::new(messages))
        };
        let mut responses = match call.kind {
            0 => return client.say(one()).await.map(|response| respond(response.into_inner())),
            2 => return client.gather(many()).await.map(|response| respond(response.into_inner())),
            1 => client.count(one()).await?.into_inner(),
            _ => client.chat(many()).await?.into_inner(),
        };
        while let Some(message) = responses.message().await? {
            respond(message);
        }
        Ok(())
    }

    /// Makes a unary call with this text.
    async fn say(&self, text: &str) -> Code {
        let message = words(text);
        self.counts.change(METHODS[0], |counts| counts.started += 1);
        self.counts.request(METHODS[0], &message);
        let outcome = self.client.say(message).await.map(Response::into_inner);
        if let Ok(message) = &outcome {
            self.counts.response(METHODS[0], message);
        }
        let code = code_of(&outcome);
        self.counts.end(METHODS[0], code.into());
        code
    }
}

fn within<T>(call: &RandomCall, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(timeout) = call.timeout {
        request.set_timeout(timeout);
    }
    request
}

fn code_of<T>(outcome: &Result<T, Status>) -> Code {
    outcome.as_ref().map_or_else(Status::code, |_| Code::Ok)
}

/// The handlers, with their counts. Each executes the command of its last request.
#[derive(Clone)]
struct CountingService {
    counts: SideCounts,
    arrived: watch::Sender<BTreeSet<u64>>,
    /// Calls that need not wait any more.
    released: watch::Sender<BTreeSet<u64>>,
}

impl CountingService {
    fn new(len: fn(&Words) -> usize) -> Self {
        Self { counts: SideCounts::new(len), arrived: watch::Sender::default(), released: watch::Sender::default() }
    }

    /// Waits for the command of this call.
    async fn arrival(&self, id: u64) {
        let mut arrived = self.arrived.subscribe();
        timeout(60 * SECOND, arrived.wait_for(|arrived| arrived.contains(&id))).await.expect("it arrives").unwrap();
    }

    fn release(&self, ids: impl IntoIterator<Item = u64>) {
        self.released.send_modify(|released| released.extend(ids));
    }

    fn begin<T>(&self, method: &'static str, request: &Request<T>) -> CountedHandler {
        self.counts.change(method, |counts| counts.started += 1);
        let end = request.deadline().map_or(Code::Cancelled.into(), |_| LATE);
        CountedHandler { counts: self.counts.clone(), method, end: Some(end) }
    }

    async fn play(&self, command: &HandlerCommand) -> Result<(), Status> {
        match command.name.as_str() {
            "panic" => panic!("as told"),
            "fail" => {
                let code = i32::try_from(command.argument).unwrap();
                return Err(Status::new(Code::from_number(code), "as told"));
            }
            "wait" => {
                self.arrived.send_modify(|arrived| _ = arrived.insert(command.argument));
                self.released.subscribe().wait_for(|released| released.contains(&command.argument)).await.unwrap();
            }
            _ => {}
        }
        Ok(())
    }
}

/// The command in a request.
struct HandlerCommand {
    messages: usize,
    answer: Words,
    name: String,
    argument: u64,
}

impl HandlerCommand {
    fn of(request: &Words) -> Self {
        let words: Vec<&str> = request.text.split(' ').collect();
        let answer = Words { text: "y".repeat(words[1].parse().unwrap()) };
        Self {
            messages: words[0].parse().unwrap(),
            answer,
            name: words[2].to_owned(),
            argument: words[3].parse().unwrap(),
        }
    }
}

/// A running handler. Dropped before its end, it counts as cancelled.
struct CountedHandler {
    counts: SideCounts,
    method: &'static str,
    /// The code to count when it is dropped.
    end: Option<u8>,
}

impl CountedHandler {
    fn request(&self, message: &Words) -> HandlerCommand {
        self.counts.request(self.method, message);
        HandlerCommand::of(message)
    }

    fn respond(&self, message: &Words) {
        self.counts.response(self.method, message);
    }

    fn ended<T>(&mut self, outcome: Result<T, Status>) -> Result<T, Status> {
        if self.end.take().is_some() {
            self.counts.end(self.method, code_of(&outcome).into());
        }
        outcome
    }
}

impl Drop for CountedHandler {
    fn drop(&mut self) {
        if let Some(code) = self.end.take() {
            let code = if std::thread::panicking() { Code::Internal.into() } else { code };
            self.counts.end(self.method, code);
        }
    }
}

impl Test for CountingService {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let mut handler = self.begin(METHODS[0], &request);
        let command = handler.request(request.get_ref());
        let outcome = self.play(&command).await;
        if outcome.is_ok() {
            handler.respond(&command.answer);
        }
        handler.ended(outcome.map(|()| command.answer.into()))
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        let handler = self.begin(METHODS[1], &request);
        let command = handler.request(request.get_ref());
        let (service, left) = (self.clone(), command.messages);
        let state = (service, handler, command, left);
        Ok(Response::new(Streaming::new(stream::try_unfold(state, async |(service, mut handler, command, left)| {
            if left == 0 {
                let played = service.play(&command).await;
                handler.ended(played)?;
                return Ok(None);
            }
            handler.respond(&command.answer);
            Ok(Some((command.answer.clone(), (service, handler, command, left - 1))))
        }))))
    }

    async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        let mut handler = self.begin(METHODS[2], &request);
        let (mut requests, mut answer) = (request.into_inner(), words("none"));
        let outcome = async {
            while let Some(message) = requests.message().await? {
                let command = handler.request(&message);
                self.play(&command).await?;
                answer = command.answer;
            }
            Ok(())
        };
        let outcome = outcome.await;
        if outcome.is_ok() {
            handler.respond(&answer);
        }
        handler.ended(outcome.map(|()| answer.into()))
    }

    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        let state = (self.clone(), self.begin(METHODS[3], &request), request.into_inner());
        Ok(Response::new(Streaming::new(stream::try_unfold(state, async |(service, mut handler, mut requests)| {
            let next = async {
                let Some(message) = requests.message().await? else { return Ok(None) };
                let command = handler.request(&message);
                service.play(&command).await?;
                Ok(Some(command.answer))
            };
            match next.await {
                Ok(Some(answer)) => {
                    handler.respond(&answer);
                    Ok(Some((answer, (service, handler, requests))))
                }
                outcome => handler.ended(outcome.map(|_| None)),
            }
        }))))
    }
}

/// A proxy that can cut all connections.
struct Relay {
    address: String,
    /// New connections wait while it is `true`.
    is_cut: watch::Sender<bool>,
    /// The number of connections since the last cut.
    connections: watch::Sender<usize>,
}

impl Relay {
    async fn new(target: &str) -> Self {
        let target = target.to_owned();
        // No other test calls this address, so none adds to the counters of its target.
        let host = if cfg!(target_os = "linux") { "127.0.0.77" } else { "127.0.0.1" };
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (is_cut, connections) = (watch::Sender::new(false), watch::Sender::new(0));
        let (cuts, counter) = (is_cut.subscribe(), connections.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (mut cut, counter, target) = (cuts.clone(), counter.clone(), target.clone());
                tokio::spawn(async move {
                    if cut.wait_for(|is_cut| !is_cut).await.is_err() {
                        return;
                    }
                    // At the end of a test, a client may connect again after its server.
                    let Ok(mut server) = TcpStream::connect(&target).await else { return };
                    counter.send_modify(|connections| *connections += 1);
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, is_cut, connections }
    }

    /// Cuts all connections. The next ones wait for [`resume`](Self::resume).
    fn cut(&self) {
        self.connections.send_replace(0);
        self.is_cut.send_replace(true);
    }

    fn resume(&self) {
        self.is_cut.send_replace(false);
    }

    /// Waits for a connection since the last cut.
    async fn connection(&self) {
        self.connections.subscribe().wait_for(|connections| *connections > 0).await.unwrap();
    }
}

/// The calls of each group run at the same time.
const GROUPS: usize = 13;
const GROUP_LEN: usize = 4;
const NATS: &str = "nats";
const METHODS: [&str; 4] = ["Say", "Count", "Gather", "Chat"];
/// In place of the code of a handler that was dropped and had a deadline.
const LATE: u8 = 200;
