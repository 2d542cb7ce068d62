//! Every message is accounted for: delivered or reported missing, in order and at most once, under all failures of
//! connections and subscribers.

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    time::{Duration, Instant},
};

use frisbee_pubsub::{Broker, BrokerLimits, Client, Policy, Subscription, SubscriptionEnd, SubscriptionEvent};
use support::{MILLI, SECOND, in_real_time_within, in_virtual_time};
use tokio::{sync::Notify, task::LocalSet, time::sleep};

use crate::party::Party;

const CLIENTS: usize = 100;
const SUBSCRIBERS: usize = 1_000;
const PUBLISHERS: usize = 10;
const MESSAGES: usize = 100_000;
const SUBJECTS: usize = 200;

/// Deterministic pseudo-random numbers.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// Messages of one subject seen by a subscriber: the last number of each publisher.
#[derive(Default)]
struct Seen {
    last: HashMap<(usize, String), usize>,
    delivered: usize,
    missing: u64,
    has_reconnected: bool,
    has_been_ended: bool,
}

impl Seen {
    fn note(&mut self, event: SubscriptionEvent) {
        match event {
            SubscriptionEvent::Message(message) => {
                let text = String::from_utf8_lossy(&message.payload).into_owned();
                let (publisher, number) = text.split_once(' ').unwrap();
                let (publisher, number) = (publisher.parse().unwrap(), number.parse().unwrap());
                let last = self.last.insert((publisher, message.subject.to_string()), number);
                assert!(last.is_none_or(|last| last < number), "{number} after {last:?}, of publisher {publisher}");
                self.delivered += 1;
            }
            SubscriptionEvent::Missing(count) => self.missing += count,
            SubscriptionEvent::Reconnected => self.has_reconnected = true,
            _ => unreachable!("there are no others"),
        }
    }
}

/// Takes messages at a given pace, and at the end without pauses.
async fn subscriber(mut subscription: Subscription, pace: usize, seen: Rc<RefCell<Seen>>, progress: Rc<Notify>) {
    let mut taken = 0;
    while let Some(event) = subscription.next().await {
        seen.borrow_mut().note(event);
        progress.notify_one();
        taken += 1;
        if pace > 0 && taken % pace == 0 {
            sleep(MILLI).await;
        }
    }
    let end = subscription.end().unwrap();
    let SubscriptionEnd::TooSlow { .. } = end else { panic!("{end}") };
    seen.borrow_mut().has_been_ended = true;
    progress.notify_one();
}

async fn publisher(client: Client, index: usize, counts: Rc<RefCell<Vec<usize>>>) {
    let mut random = Random(index as u64 + 1);
    for number in 0..MESSAGES / PUBLISHERS {
        let subject = random.below(SUBJECTS);
        client.publish(&format!("subject.{subject}"), format!("{index} {number}")).await.unwrap();
        counts.borrow_mut()[subject] += 1;
        if number % 50 == 0 {
            sleep(MILLI).await;
        }
    }
}

#[test]
fn every_message_is_delivered_or_reported_missing() {
    in_virtual_time(LocalSet::new().run_until(async { account(Party::with(limits()).await).await }));
}

#[test]
fn every_message_is_accounted_for_over_sockets() {
    in_real_time_within(
        180 * SECOND,
        LocalSet::new().run_until(async {
            let broker = Broker::builder().limits(limits()).build();
            account(Party::at("tcp://127.0.0.1:0".parse().unwrap(), broker).await).await;
        }),
    );
}

fn limits() -> BrokerLimits {
    BrokerLimits { queue_len_max: 4_000, publish_window: 50_000, ..BrokerLimits::default() }
}

/// Account of one subscriber.
struct Account {
    /// Subject of the subscription. `None` for all subjects.
    subject: Option<usize>,
    policy: Policy,
    seen: Rc<RefCell<Seen>>,
}

impl Account {
    fn expected(&self, counts: &[usize]) -> usize {
        self.subject.map_or(counts.iter().sum(), |subject| counts[subject])
    }

    /// Returns the number of messages delivered or reported missing.
    fn told(&self) -> usize {
        let seen = self.seen.borrow();
        seen.delivered + usize::try_from(seen.missing).unwrap()
    }

    /// Returns `true` if all messages must be accounted for. Messages lost with a connection are not counted.
    fn is_whole(&self) -> bool {
        let seen = self.seen.borrow();
        !seen.has_reconnected && !seen.has_been_ended
    }
}

async fn account(party: Party) {
    let begun = Instant::now();
    let mut random = Random(88_172_645_463_325_252);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(party.client().await);
    }
    let (mut subscribers, progress) = (Vec::new(), Rc::new(Notify::new()));
    for index in 0..SUBSCRIBERS {
        let policy = match random.below(20) {
            0..8 => Policy::DropNewest,
            8..14 => Policy::DropOldest,
            14..17 => Policy::KeepLatest,
            17 => Policy::Disconnect,
            _ => Policy::Block,
        };
        // Most subscriptions are for one subject, some for all.
        let subject = if index % 200 == 0 { None } else { Some(random.below(SUBJECTS)) };
        let pattern = subject.map_or("subject.*".to_owned(), |subject| format!("subject.{subject}"));
        let window = 200 + random.below(4_000);
        let client = &clients[random.below(CLIENTS)];
        let subscribe = client.subscribe(&pattern).policy(policy).window(window.try_into().unwrap());
        let seen = Rc::<RefCell<Seen>>::default();
        let pace = if random.below(3) == 0 { 1 + random.below(20) } else { 0 };
        let subscription = subscribe.await.unwrap();
        tokio::task::spawn_local(subscriber(subscription, pace, seen.clone(), progress.clone()));
        subscribers.push(Account { subject, policy, seen });
    }
    let counts = Rc::new(RefCell::new(vec![0; SUBJECTS]));
    let mut publishers = Vec::new();
    for index in 0..PUBLISHERS {
        publishers.push(tokio::task::spawn_local(publisher(party.client().await, index, counts.clone())));
    }
    // Close a fifth of the subscribers' connections at random times. The publishers connected last, so they are not
    // affected.
    let lost = party.server.connections();
    for _ in 0..CLIENTS / 5 {
        sleep(Duration::from_millis(random.below(10) as u64)).await;
        lost[random.below(CLIENTS)].close();
    }
    for publisher in publishers {
        publisher.await.unwrap();
    }
    let counts = counts.take();
    assert_eq!(counts.iter().sum::<usize>(), MESSAGES);
    // Each client takes its buffered messages at its own pace.
    let is_done = |account: &Account| !account.is_whole() || account.told() >= account.expected(&counts);
    while party.broker.metrics().queued_len > 0 || !subscribers.iter().all(is_done) {
        progress.notified().await;
    }

    let (mut accounted, mut missing, mut reconnected) = (0, 0, 0);
    for account in &subscribers {
        let (told, expected, policy) = (account.told(), account.expected(&counts), account.policy);
        assert!(told <= expected, "{told} of {expected}: {policy:?}");
        let seen = account.seen.borrow();
        reconnected += usize::from(seen.has_reconnected);
        missing += seen.missing;
        if account.is_whole() {
            assert!(seen.missing == 0 || policy != Policy::Block, "one that blocks misses nothing");
            accounted += 1;
        }
    }
    println!("{accounted} accounted for all, {reconnected} reconnected, {missing} missing; {:?}", begun.elapsed());
    assert!(accounted > 500 && reconnected > 100 && missing > 10_000, "{accounted} {reconnected} {missing}");
    assert_eq!(party.broker.metrics().queued_len, 0);
}
