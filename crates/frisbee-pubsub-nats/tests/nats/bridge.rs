//! Brokers on frisbee, connected by a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use frisbee::Connection;
use frisbee_pubsub::{Broker, Client, Message, Pattern, Policy, Subscription};
use frisbee_pubsub_nats::{Bridge, Nats, NatsOptions, StreamOptions};
use futures_core::Stream;
use support::{NatsProgram, NatsServer, in_real_time, in_real_time_within, until};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};

#[test]
fn messages_reach_every_broker_once_without_loops() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let names = ["berlin", "oslo", "rome"];
        let mut towns = Vec::new();
        for name in names {
            towns.push(Town::connect(name, &server).await);
        }
        let cluster = Nats::connect(&server.url()).await.unwrap().client();
        let mut heard = vec![cluster.subscribe("chat.>").window(1 << 24).await.unwrap()];
        for town in &towns {
            heard.push(town.broker.client().await.unwrap().subscribe("chat.>").window(1 << 24).await.unwrap());
        }
        let everybody = towns.iter().map(|town| town.name).chain(["cluster"]);
        for number in 0..MESSAGES_LEN {
            for name in everybody.clone() {
                let town = towns.iter().find(|town| town.name == name);
                // The first text is the same from all senders, the second one is unique.
                for text in ["hello".to_owned(), format!("{name} {number}")] {
                    match town {
                        Some(town) => drop(town.broker.publish("chat.all", text).await.unwrap()),
                        None => cluster.publish("chat.all", text).await.unwrap(),
                    }
                }
            }
        }
        for subscription in &mut heard {
            let (mut hellos, mut numbers) = (0, BTreeMap::new());
            while hellos + numbers.values().sum::<usize>() < 2 * (names.len() + 1) * MESSAGES_LEN {
                match text(&subscription.next_message().await.unwrap()).split_once(' ') {
                    None => hellos += 1,
                    Some((name, number)) => {
                        let next = numbers.entry(name.to_owned()).or_insert(0);
                        assert_eq!(next.to_string(), number, "in order and once, from {name}");
                        *next += 1;
                    }
                }
            }
            assert_eq!(hellos, (names.len() + 1) * MESSAGES_LEN);
        }
        for town in &towns {
            // The messages of all others have returned from this broker, and its own messages from the cluster.
            let each = 2 * MESSAGES_LEN as u64;
            until(|| {
                let metrics = town.bridge.metrics();
                (metrics.out, metrics.incoming, metrics.returned) == (each, 3 * each, 4 * each)
            })
            .await;
            let metrics = town.bridge.metrics();
            assert_eq!((metrics.missing, metrics.refused), (0, 0));
        }
    });
}

#[test]
fn requests_are_answered_across_the_bridge() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let (berlin, oslo) = (Town::connect("berlin", &server).await, Town::connect("oslo", &server).await);
        let cluster = Nats::connect(&server.url()).await.unwrap().client();
        let sides = [berlin.broker.client().await.unwrap(), oslo.broker.client().await.unwrap(), cluster];
        for (number, responder) in sides.iter().enumerate() {
            let subject = format!("chat.ask.{number}");
            let mut questions = responder.subscribe(&subject).await.unwrap();
            for (other, requester) in sides.iter().enumerate() {
                let question = format!("from {other}");
                let answering = async {
                    let question = next(&mut questions).await;
                    responder.respond(&question, question.payload.clone()).await.unwrap();
                };
                let (answer, ()) = tokio::join!(requester.request(&subject, question.clone()), answering);
                assert_eq!(answer.unwrap().payload, question);
            }
        }
    });
}

#[test]
fn acknowledged_messages_survive_a_nats_server_crash() {
    in_real_time_within(CLUSTER_MAX, async {
        let Some(program) = NatsProgram::find() else { return };
        let mut servers = program.start_cluster(2).await;
        let direct = connect(&servers).await;
        let options = StreamOptions { replicas: 2, ..StreamOptions::new("ORDERS", [pattern("orders.>")]) };
        direct.make_stream(&options).await.unwrap();
        let (berlin, oslo) = (Shop::open("berlin", &servers).await, Shop::open("oslo", &servers).await);
        let mut heard = [berlin.hear().await, oslo.hear().await];
        // One publisher uses a broker, the other the cluster. Each knows which of its messages were acknowledged.
        let mut publishers = [
            Publisher::start("orders.berlin", berlin.broker.client().await.unwrap()),
            Publisher::start("orders.cluster", direct.client()),
        ];
        for publisher in &mut publishers {
            publisher.start_more(50);
            publisher.is_done().await;
            publisher.start_more(50);
        }
        let mut dead = servers.remove(0);
        dead.kill().await;
        // The broker still accepts all of them. The stream accepts none, because two replicas store only what both
        // have.
        publishers[0].start_more(50);
        publishers[0].is_done().await;
        servers.push(dead.restart().await);
        let mut expected = BTreeSet::new();
        for mut publisher in publishers {
            publisher.start_more(50);
            publisher.is_done().await;
            expected.extend(publisher.finish().await);
        }
        assert_eq!(expected.len(), 150 + 200);
        for subscription in &mut heard {
            let mut missing = expected.clone();
            while !missing.is_empty() {
                let order = next(subscription).await;
                missing.remove(&(order.subject.to_string(), text(&order)));
            }
        }
    });
}

#[test]
fn denied_messages_are_terminated_and_others_acknowledged() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let nats = Nats::connect(&server.url()).await.unwrap();
        nats.make_stream(&StreamOptions::new("JOBS", [pattern("jobs.>")])).await.unwrap();
        let raw = async_nats::connect(server.url()).await.unwrap();
        let mut terminated = raw.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.JOBS.berlin").await.unwrap();
        let authorize = |_: &Connection, _, subject: &str| match subject {
            "jobs.secret" => Err("not here".to_owned()),
            _ => Ok(()),
        };
        let broker = Broker::builder().authorize(authorize).build();
        let mut heard = broker.client().await.unwrap().subscribe("jobs.>").await.unwrap();
        let jobs = nats.durable("JOBS", "berlin").subscribe().await.unwrap();
        let bridge = nats.bridge(broker.client().await.unwrap(), "berlin").incoming_durable(jobs);
        let bridge = bridge.start().await.unwrap();
        let deep = format!("jobs{}", ".a".repeat(20));
        for number in 0..20 {
            for subject in ["jobs.open", "jobs.secret", &deep] {
                raw.publish(subject.to_owned(), number.to_string().into()).await.unwrap();
            }
        }
        raw.flush().await.unwrap();
        for number in 0..20 {
            assert_eq!(text(&next(&mut heard).await), number.to_string());
        }
        until(|| bridge.metrics().set_aside == 40).await;
        for _ in 0..40 {
            assert!(poll_fn(|cx| Pin::new(&mut terminated).poll_next(cx)).await.is_some());
        }
        let metrics = bridge.metrics();
        assert_eq!((metrics.incoming, metrics.refused), (20, 20), "those that cannot be read were not offered");
    });
}

/// A broker with a bridge to a cluster.
struct Town {
    name: &'static str,
    broker: Broker,
    bridge: Bridge,
}

impl Town {
    async fn connect(name: &'static str, server: &NatsServer) -> Self {
        let broker = Broker::new();
        let nats = Nats::connect(&server.url()).await.unwrap();
        let bridge = nats.bridge(broker.client().await.unwrap(), name).both_ways(pattern("chat.>"));
        let bridge = bridge.policy(Policy::Block).start().await.unwrap();
        Self { name, broker, bridge }
    }
}

/// A broker with a bridge to a stream.
struct Shop {
    broker: Broker,
    _bridge: Bridge,
}

impl Shop {
    async fn open(name: &'static str, servers: &[NatsServer]) -> Self {
        let (broker, nats) = (Broker::new(), connect(servers).await);
        let orders = nats.durable("ORDERS", name).acknowledge_max(REDELIVERY).subscribe().await.unwrap();
        let bridge =
            nats.bridge(broker.client().await.unwrap(), name).out(pattern("orders.>")).incoming_durable(orders);
        let bridge = bridge.policy(Policy::Block).start().await.unwrap();
        Self { broker, _bridge: bridge }
    }

    async fn hear(&self) -> Subscription {
        self.broker.client().await.unwrap().subscribe("orders.>").window(1 << 24).await.unwrap()
    }
}

/// Publishes numbers and repeats each until it is acknowledged.
struct Publisher {
    started: usize,
    orders: Arc<Semaphore>,
    count: watch::Receiver<usize>,
    task: JoinHandle<Vec<(String, String)>>,
}

impl Publisher {
    fn start(subject: &'static str, client: Client) -> Self {
        let (counted, count) = watch::channel(0);
        let orders = Arc::new(Semaphore::new(0));
        let task = tokio::spawn({
            let orders = orders.clone();
            async move {
                let mut acknowledged = Vec::new();
                while let Ok(order) = orders.acquire().await {
                    order.forget();
                    let number = acknowledged.len().to_string();
                    while client.publish_acknowledged(subject, number.clone()).await.is_err() {}
                    acknowledged.push((subject.to_owned(), number));
                    counted.send_replace(acknowledged.len());
                }
                acknowledged
            }
        });
        Self { started: 0, orders, count, task }
    }

    fn start_more(&mut self, count: usize) {
        self.started += count;
        self.orders.add_permits(count);
    }

    async fn is_done(&mut self) {
        self.count.wait_for(|count| *count == self.started).await.unwrap();
    }

    async fn finish(self) -> Vec<(String, String)> {
        self.orders.close();
        self.task.await.unwrap()
    }
}

async fn connect(servers: &[NatsServer]) -> Nats {
    let urls: Vec<_> = servers.iter().map(NatsServer::url).collect();
    let options =
        NatsOptions { acknowledge_max: CLUSTER_MAX, streams: vec![pattern("orders.>")], ..NatsOptions::default() };
    Nats::connect_with(&urls, options).await.unwrap()
}

async fn next(subscription: &mut Subscription) -> Message {
    subscription.next_message().await.unwrap()
}

fn text(message: &Message) -> String {
    String::from_utf8_lossy(&message.payload).into_owned()
}

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).unwrap()
}

const MESSAGES_LEN: usize = 300;
/// Longer than any message is in flight.
const REDELIVERY: Duration = Duration::from_secs(1);
/// An election of NATS takes up to 9 s, and longer on a busy machine.
const CLUSTER_MAX: Duration = Duration::from_secs(240);
