//! Brokers on frisbee, connected by a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use frisbee::Connection;
use frisbee_pubsub::{
    Backend, BackendFuture, Broker, Client, EventSource, Message, Pattern, Policy, Publication, PublishError,
    RequestError, Subject, SubscribeError, SubscribeOptions, Subscription, SubscriptionEnd, SubscriptionEvent,
    TryPublishError,
};
use frisbee_pubsub_nats::{Bridge, Nats, NatsOptions, StreamOptions};
use futures_core::Stream;
use support::{NatsProgram, NatsServer, in_real_time, in_real_time_within, until};
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
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

#[test]
fn messages_are_acknowledged_after_the_broker_has_accepted_them() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let nats = Nats::connect(&server.url()).await.unwrap();
        nats.make_stream(&StreamOptions::new("JOBS", [pattern("jobs.>")])).await.unwrap();
        let raw = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
        for number in 0..200 {
            raw.publish("jobs.new", number.to_string().into()).await.unwrap().await.unwrap();
        }
        // Longer than the test: only the bridge can ask for a redelivery.
        let jobs = nats.durable("JOBS", "berlin").acknowledge_max(Duration::from_secs(3600)).subscribe().await.unwrap();
        let (broker, mut offers) = HandBroker::new();
        let _bridge = nats.bridge(Client::on(broker), "berlin").incoming_durable(jobs).start().await.unwrap();
        let consumer = raw.get_consumer_from_stream("berlin", "JOBS").await;
        let mut consumer: async_nats::jetstream::consumer::PullConsumer = consumer.unwrap();
        let mut lost = true;
        let mut accepted = Vec::new();
        while accepted.len() < 200 {
            let offer = offers.recv().await.unwrap();
            assert!(offer.is_forwarded);
            let number: u64 = offer.text.parse().unwrap();
            let floor = consumer.info().await.unwrap().ack_floor.stream_sequence;
            assert!(floor <= number, "message {number} was acknowledged before the broker had it");
            assert!(offers.try_recv().is_err(), "one message after another");
            // The broker dies once, with a message on its way.
            if number == 3 && std::mem::take(&mut lost) {
                offer.answer.send(Err(PublishError::Lost { may_have_left: true })).unwrap();
            } else {
                accepted.push(number);
                offer.answer.send(Ok(Some(1))).unwrap();
            }
        }
        while consumer.info().await.unwrap().num_ack_pending > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(consumer.info().await.unwrap().ack_floor.stream_sequence, 200);
        accepted.sort_unstable();
        assert_eq!(accepted, (0..200).collect::<Vec<_>>());
    });
}

#[test]
fn equal_messages_of_others_are_not_taken_for_own_ones() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let nats = Nats::connect(&server.url()).await.unwrap();
        let (broker, mut offers) = HandBroker::new();
        let events = broker.events.clone();
        let bridge = nats.bridge(Client::on(broker), "berlin").both_ways(pattern("chat.>")).start().await.unwrap();
        let cluster = Nats::connect(&server.url()).await.unwrap().client();
        cluster.publish("chat.all", "hello").await.unwrap();
        offers.recv().await.unwrap().answer.send(Ok(Some(1))).unwrap();
        // The broker has ordered an equal request of a local client before the message of the bridge.
        let mut heard = cluster.subscribe("chat.>").await.unwrap();
        let mut request = Message::new(Subject::new("chat.all").unwrap(), "hello");
        request.reply = Some(Subject::new("_INBOX.local").unwrap());
        let mut own = Message::new(Subject::new("chat.all").unwrap(), "hello");
        own.is_forwarded = true;
        let last = Message::new(Subject::new("chat.all").unwrap(), "last");
        for message in [request, own, last] {
            events.send(message).unwrap();
        }
        let mut seen = BTreeMap::new();
        while seen.len() < 2 {
            let message = next(&mut heard).await;
            seen.insert(text(&message), (message.reply.is_some(), message.is_forwarded));
        }
        assert_eq!(seen, BTreeMap::from([("hello".to_owned(), (true, true)), ("last".to_owned(), (false, true))]));
        // The request and the last message return from the cluster as well.
        until(|| bridge.metrics().returned == 3).await;
    });
}

#[test]
fn loops_of_bridges_end() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let clusters = [program.start("one", "").await, program.start("two", "").await];
        let (here, there) = (Broker::new(), Broker::new());
        let mut bridges = Vec::new();
        for (cluster, name) in [(&clusters[0], "one"), (&clusters[1], "two")] {
            for (broker, place) in [(&here, "here"), (&there, "there")] {
                let nats = Nats::connect(&cluster.url()).await.unwrap();
                let bridge = nats.bridge(broker.client().await.unwrap(), format!("{name}-{place}"));
                bridges.push(bridge.both_ways(pattern("chat.>")).start().await.unwrap());
            }
        }
        let mut heard = there.client().await.unwrap().subscribe("chat.>").await.unwrap();
        for number in 0..20 {
            here.publish("chat.all", number.to_string()).await.unwrap();
        }
        let mut counts = BTreeMap::new();
        for _ in 0..40 {
            *counts.entry(text(&next(&mut heard).await)).or_insert(0) += 1;
        }
        assert!(counts.len() == 20 && counts.values().all(|count| *count == 2), "once over each cluster: {counts:?}");
        // Both bridges of the other broker see all forwarded messages there, and forward none of them.
        until(|| {
            bridges.iter().all(|bridge| {
                let metrics = bridge.metrics();
                (metrics.out, metrics.incoming, metrics.returned) == (20, 0, 20)
                    || (metrics.out, metrics.incoming, metrics.returned) == (0, 20, 40)
            })
        })
        .await;
    });
}

/// A broker played by the test.
struct HandBroker {
    offers: mpsc::UnboundedSender<Offer>,
    events: mpsc::UnboundedSender<Message>,
    subscription: Mutex<Option<mpsc::UnboundedReceiver<Message>>>,
}

/// A publication of the bridge, without an answer yet.
struct Offer {
    text: String,
    is_forwarded: bool,
    answer: oneshot::Sender<Result<Option<u32>, PublishError>>,
}

impl HandBroker {
    fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Offer>) {
        let (offers, offered) = mpsc::unbounded_channel();
        let (events, subscription) = mpsc::unbounded_channel();
        (Arc::new(Self { offers, events, subscription: Mutex::new(Some(subscription)) }), offered)
    }
}

impl Backend for HandBroker {
    fn try_publish(&self, _: Publication<'_>) -> Result<(), TryPublishError> {
        unreachable!("the bridge waits for the broker")
    }

    fn publish<'a>(&'a self, _: Publication<'a>) -> BackendFuture<'a, Result<(), PublishError>> {
        unreachable!("the bridge waits for the broker")
    }

    fn publish_acknowledged<'a>(
        &'a self,
        publication: Publication<'a>,
    ) -> BackendFuture<'a, Result<Option<u32>, PublishError>> {
        let (answer, answered) = oneshot::channel();
        let text = String::from_utf8_lossy(&publication.payload).into_owned();
        self.offers.send(Offer { text, is_forwarded: publication.is_forwarded, answer }).unwrap();
        Box::pin(async { answered.await.unwrap() })
    }

    fn request<'a>(&'a self, _: Publication<'a>, _: Duration) -> BackendFuture<'a, Result<Message, RequestError>> {
        Box::pin(async { Err(RequestError::NoResponders) })
    }

    fn subscribe(&self, _: SubscribeOptions) -> BackendFuture<'_, Result<Subscription, SubscribeError>> {
        let subscription = self.subscription.lock().unwrap().take().unwrap();
        Box::pin(async { Ok(Subscription::new(Box::new(HandSubscription(subscription)))) })
    }

    fn flush(&self) -> BackendFuture<'_, Result<(), PublishError>> {
        Box::pin(async { Ok(()) })
    }

    fn close(&self) -> BackendFuture<'_, ()> {
        Box::pin(async {})
    }
}

struct HandSubscription(mpsc::UnboundedReceiver<Message>);

impl EventSource for HandSubscription {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<SubscriptionEvent, SubscriptionEnd>> {
        self.0.poll_recv(cx).map(|message| message.map(SubscriptionEvent::Message).ok_or(SubscriptionEnd::Closed))
    }
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
