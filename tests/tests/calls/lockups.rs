//! Both sides calling each other from their handlers.
//!
//! Only frisbee carries calls both ways.

use frpc::{Channel, Code, Config, Dispatch, Server, Status};
use tokio::{
    io::duplex,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::support::{
    Clerk, MILLI, SECOND, all, asking, only_connection, quiet, quietly,
    schema::{desk_client::DeskClient, desk_server::DeskServer, phone_client::PhoneClient, phone_server::PhoneServer},
    virtually, words,
};

/// A desk and a phone, each of which can call the other.
struct Both {
    desk: DeskClient,
    phone: PhoneClient,
    _server: Server,
}

impl Both {
    async fn connected(dispatches: [Dispatch; 2], configs: [Config; 2], buffer_len: usize) -> Self {
        let ([at_desk, at_phone], [desk_config, phone_config]) = (dispatches, configs);
        let server = Server::builder().config(desk_config).dispatch(at_desk);
        let server = server.add_service(DeskServer::new(Clerk::default())).without_listener().unwrap();
        let (ours, theirs) = duplex(buffer_len);
        server.attach(theirs);
        let channel = quietly().config(phone_config).dispatch(at_phone);
        let channel = channel.add_service(PhoneServer::new(Clerk::default())).attach(ours).await.unwrap();
        let phone = PhoneClient::new(Channel::over(&only_connection(&server).await).unwrap());
        Self { desk: DeskClient::new(channel), phone, _server: server }
    }

    fn call_desk(&self, text: &str) -> JoinHandle<Result<String, Status>> {
        asking(&self.desk, text)
    }

    fn call_phone(&self, text: &str) -> JoinHandle<Result<String, Status>> {
        let (phone, request) = (self.phone.clone(), words(text));
        tokio::spawn(async move { phone.say(request).await.map(|answer| answer.into_inner().text) })
    }
}

fn limited(limit: usize) -> Dispatch {
    Dispatch::Limited(limit.try_into().expect("a limit is not zero"))
}

const DISPATCHES: fn() -> [Dispatch; 5] =
    || [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, limited(1), limited(20)];

/// How many of these calls were answered. The others were refused for want of room, and nothing else.
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
fn thousands_of_calls_whose_handlers_call_back_are_answered() {
    for dispatch in DISPATCHES() {
        virtually(async {
            let both = Both::connected([dispatch; 2], [quiet(), quiet()], 64 * 1024).await;
            let since = Instant::now();
            let calls = (0..6000).map(|_| both.call_desk("back say hi")).collect();
            assert_eq!(answered(calls).await, 6000, "{dispatch:?}");
            assert!(since.elapsed() < SECOND, "{dispatch:?}");
        });
    }
}

#[test]
fn thousands_of_calls_both_ways_whose_handlers_call_back_end_soon() {
    for dispatch in DISPATCHES() {
        virtually(async {
            let both = Both::connected([dispatch; 2], [quiet(), quiet()], 64 * 1024).await;
            let since = Instant::now();
            let calls = (0..3000).flat_map(|_| [both.call_desk("back say hi"), both.call_phone("back desk hi")]);
            assert!(answered(calls.collect()).await > 0, "{dispatch:?}");
            assert!(since.elapsed() < SECOND, "{dispatch:?} {:?}", since.elapsed());
            assert_eq!(answered(vec![both.call_desk("hi"), both.call_phone("hi")]).await, 2);
        });
    }
}

#[test]
fn handlers_that_call_back_with_streams_do_not_lock_up() {
    for dispatch in DISPATCHES() {
        virtually(async {
            let config = Config { handlers_max: 10, backlog_max: 5, ..quiet() };
            let both = Both::connected([dispatch; 2], [config, quiet()], 64 * 1024).await;
            let since = Instant::now();
            let calls = ["back count one, two", "back gather one two", "back chat one two"];
            let calls = (0..300).map(|number| both.call_desk(calls[number % 3])).collect();
            assert_eq!(answered(calls).await, 300, "{dispatch:?}");
            assert!(since.elapsed() < SECOND, "{dispatch:?}");
        });
    }
}

/// Numbers that look random, from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }

    /// Up to a limit, and small as often as large.
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
fn every_call_of_a_random_schedule_ends_before_its_time() {
    for seed in 0..60 {
        let mut random = Random(seed);
        virtually(async {
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
                        (true, _) => format!("back desk {letters}"),
                    };
                    calls.push(if side == 0 { both.call_desk(&text) } else { both.call_phone(&text) });
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
            assert!(all(both.desk.count(words("one")).await.unwrap()).await.is_ok(), "{schedule}");
        });
    }
}
