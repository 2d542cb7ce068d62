//! Handlers on both sides calling each other.
//!
//! Only frisbee carries calls in both directions.

use frpc::{CallSettings, Channel, ChannelCallSettings, Code, Config, Dispatch, Server, Status};
use support::{
    MILLI, SECOND,
    calls::{
        CallbackClient, CallbackServer, TestClient, TestServer, TestService, all, asking, only_connection, quiet,
        quiet_channel, words,
    },
    in_virtual_time,
};
use tokio::{
    io::duplex,
    task::JoinHandle,
    time::{Instant, sleep},
};

/// A client and a server that can call each other.
struct Both {
    client: TestClient,
    /// Calls from the server to the client.
    callback: CallbackClient,
    _server: Server,
}

impl Both {
    async fn connected(dispatches: [Dispatch; 2], configs: [Config; 2], buffer_len: usize) -> Self {
        let ([at_server, at_client], [server_config, client_config]) = (dispatches, configs);
        let server = Server::builder()
            .config(server_config)
            .calls(CallSettings { dispatch: at_server, ..CallSettings::default() });
        let server = server.add_service(TestServer::new(TestService::default())).without_listener().unwrap();
        let (ours, theirs) = duplex(buffer_len);
        server.attach(theirs);
        let channel = quiet_channel()
            .config(client_config)
            .calls(ChannelCallSettings { dispatch: at_client, ..ChannelCallSettings::default() });
        let channel = channel.add_service(CallbackServer::new(TestService::default())).attach(ours).await.unwrap();
        let callback = CallbackClient::new(Channel::over(&only_connection(&server).await).unwrap());
        Self { client: TestClient::new(channel), callback, _server: server }
    }

    fn call_server(&self, text: &str) -> JoinHandle<Result<String, Status>> {
        asking(&self.client, text)
    }

    fn call_back(&self, text: &str) -> JoinHandle<Result<String, Status>> {
        let (callback, request) = (self.callback.clone(), words(text));
        tokio::spawn(async move { callback.say(request).await.map(|answer| answer.into_inner().text) })
    }
}

fn limited(limit: usize) -> Dispatch {
    Dispatch::Limited(limit.try_into().expect("a limit is not zero"))
}

const DISPATCHES: fn() -> [Dispatch; 5] =
    || [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, limited(1), limited(20)];

/// Returns the number of answered calls. Asserts that the others were refused for lack of room.
async fn answered(calls: Vec<JoinHandle<Result<String, Status>>>) -> usize {
    let mut answered = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => answered += 1,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
    }
    answered
}

#[test]
fn thousands_of_calls_with_callbacks_are_answered() {
    for dispatch in DISPATCHES() {
        in_virtual_time(async {
            let both = Both::connected([dispatch; 2], [quiet(), quiet()], 64 * 1024).await;
            let since = Instant::now();
            let calls = (0..6000).map(|_| both.call_server("back say hi")).collect();
            assert_eq!(answered(calls).await, 6000, "{dispatch:?}");
            assert!(since.elapsed() < SECOND, "{dispatch:?}");
        });
    }
}

#[test]
fn thousands_of_mutual_calls_with_callbacks_end_soon() {
    for dispatch in DISPATCHES() {
        in_virtual_time(async {
            let both = Both::connected([dispatch; 2], [quiet(), quiet()], 64 * 1024).await;
            let since = Instant::now();
            let calls = (0..3000).flat_map(|_| [both.call_server("back say hi"), both.call_back("back test hi")]);
            assert!(answered(calls.collect()).await > 0, "{dispatch:?}");
            assert!(since.elapsed() < SECOND, "{dispatch:?} {:?}", since.elapsed());
            assert_eq!(answered(vec![both.call_server("hi"), both.call_back("hi")]).await, 2);
        });
    }
}

#[test]
fn handlers_with_streaming_callbacks_do_not_deadlock() {
    for dispatch in DISPATCHES() {
        in_virtual_time(async {
            let config = Config { handlers_max: 10, backlog_max: 5, ..quiet() };
            let both = Both::connected([dispatch; 2], [config, quiet()], 64 * 1024).await;
            let since = Instant::now();
            let calls = ["back count one, two", "back gather one two", "back chat one two"];
            let calls = (0..300).map(|number| both.call_server(calls[number % 3])).collect();
            assert_eq!(answered(calls).await, 300, "{dispatch:?}");
            assert!(since.elapsed() < SECOND, "{dispatch:?}");
        });
    }
}

/// Deterministic pseudo-random numbers for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }

    /// Returns a number up to a limit, evenly distributed over orders of magnitude.
    fn up_to(&mut self, limit: usize) -> usize {
        let magnitude = 1 + self.below(limit.ilog2() as usize + 1);
        1 + self.below(limit.min(1 << magnitude))
    }

    fn dispatch(&mut self) -> Dispatch {
        [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, limited(self.up_to(50))][self.below(4)]
    }

    fn config(&mut self) -> Config {
        Config {
            outbox_len_max: self.up_to(100_000),
            backlog_max: self.up_to(1000),
            backlog_len_max: self.up_to(100_000),
            handlers_max: self.up_to(1000),
            handlers_len_max: self.up_to(1_000_000),
            ..quiet()
        }
    }
}

#[test]
fn calls_of_random_schedules_end_before_their_timeout() {
    for seed in 0..60 {
        let mut random = Random(seed);
        in_virtual_time(async {
            let dispatches = [random.dispatch(), random.dispatch()];
            let configs = [random.config(), random.config()];
            let buffer_len = random.up_to(100_000);
            let schedule = format!("seed {seed}: {dispatches:?} {configs:?} over {buffer_len} bytes");
            let both = Both::connected(dispatches, configs, buffer_len).await;
            let len_max = random.up_to(5000);
            let counts = [random.up_to(600), random.up_to(600)];
            let calls_back = random.below(5);
            let mut calls = Vec::new();
            for number in 0..counts[0].max(counts[1]) {
                for (side, count) in counts.into_iter().enumerate() {
                    if number >= count {
                        continue;
                    }
                    let letters = "x".repeat(random.up_to(len_max));
                    let text = match (random.below(4) < calls_back, side) {
                        (false, _) => letters,
                        (true, 0) => format!("back say {letters}"),
                        (true, _) => format!("back test {letters}"),
                    };
                    calls.push(if side == 0 { both.call_server(&text) } else { both.call_back(&text) });
                }
                if random.below(20) == 0 {
                    sleep(u32::try_from(random.below(5)).unwrap() * MILLI).await;
                }
            }
            for call in calls {
                match call.await.unwrap() {
                    Ok(_) => {}
                    Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status} {schedule}"),
                }
            }
            assert!(all(both.client.count(words("one")).await.unwrap()).await.is_ok(), "{schedule}");
        });
    }
}
