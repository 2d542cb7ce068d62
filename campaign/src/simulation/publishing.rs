//! Publishers and subscribers: each message is delivered, reported missing, or not promised.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use frisbee_pubsub::{Client, Policy, PublishError, Subscription, SubscriptionEvent};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    defect::Defect,
    ledger::Ledger,
    message::{message, parse_message},
};

/// The publishers and subscribers of one broker, on clients of other nodes.
pub(super) struct Party {
    ledger: Arc<Ledger>,
    defect: Option<Defect>,
    /// The fate of each message, by subject and publisher.
    published: Mutex<BTreeMap<(u64, u64), Fates>>,
    subscribers: Mutex<Vec<Arc<Mutex<Seen>>>>,
    subjects: u64,
    name: String,
    /// The longest pause of a publisher between two messages.
    pause_max: Duration,
    /// `true` once slow subscribers read without pauses, so that their queues become empty.
    is_over: AtomicBool,
    tasks: Mutex<JoinSet<()>>,
}

/// The numbers of messages of one publisher.
#[derive(Default)]
struct Fates {
    accepted: BTreeSet<u64>,
    uncertain: BTreeSet<u64>,
}

/// The events of one subscription.
#[derive(Default)]
struct Seen {
    subject: u64,
    policy: Option<Policy>,
    delivered: BTreeMap<u64, BTreeSet<u64>>,
    missing: u64,
    /// `true` while no connection and no subscription has ended.
    is_whole: bool,
}

impl Party {
    pub(super) fn new(
        ledger: Arc<Ledger>,
        defect: Option<Defect>,
        subjects: u64,
        name: String,
        pause_max: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            ledger,
            defect,
            published: Mutex::default(),
            subscribers: Mutex::default(),
            subjects,
            name,
            pause_max,
            is_over: AtomicBool::new(false),
            tasks: Mutex::default(),
        })
    }

    /// Subscribes to one of the subjects. A subscription that fails counts as nothing.
    pub(super) async fn subscribe(self: &Arc<Self>, client: &Client) {
        let policy = match fastrand::u8(..5) {
            0 | 1 => Policy::DropNewest,
            2 => Policy::DropOldest,
            3 => Policy::KeepLatest,
            _ => Policy::Block,
        };
        let (subject, window) = (fastrand::u64(..self.subjects), fastrand::u32(200..5_000));
        let pattern = format!("{}.{subject}", self.name);
        let subscribing = client.subscribe(&pattern).policy(policy).window(window);
        let Ok(Ok(subscription)) = timeout(Duration::from_secs(30), async { subscribing.await }).await else { return };
        let seen = Arc::new(Mutex::new(Seen { subject, policy: Some(policy), is_whole: true, ..Seen::default() }));
        lock(&self.subscribers).push(seen.clone());
        let pace = Duration::from_millis(if fastrand::bool() { fastrand::u64(..60) } else { 0 });
        lock(&self.tasks).spawn(self.clone().read(subscription, seen, pace));
    }

    async fn read(self: Arc<Self>, mut subscription: Subscription, seen: Arc<Mutex<Seen>>, pace: Duration) {
        let mut events = 0_u64;
        while let Some(event) = subscription.next().await {
            events += 1;
            let times = match self.defect {
                Some(Defect::LosesMessages) if events.is_multiple_of(11) => 0,
                Some(Defect::RepeatsMessages) if events.is_multiple_of(11) => 2,
                _ => 1,
            };
            for _ in 0..times {
                self.note(&mut lock(&seen), &event);
            }
            if !pace.is_zero() && !self.is_over.load(Ordering::Relaxed) {
                sleep(pace).await;
            }
        }
        lock(&seen).is_whole = false;
    }

    fn note(&self, seen: &mut Seen, event: &SubscriptionEvent) {
        match event {
            SubscriptionEvent::Message(delivered) => {
                self.ledger.count("deliveries", 1);
                let expected = format!("{}.{}", self.name, seen.subject);
                let text = String::from_utf8_lossy(&delivered.payload).into_owned();
                if delivered.subject.as_str() != expected {
                    self.ledger.violate(format!("a message of {} reaches {expected}", delivered.subject));
                }
                let Some((publisher, number)) = parse_message(&text) else {
                    self.ledger.violate(format!("a changed message on {expected}: {text}"));
                    return;
                };
                let numbers = seen.delivered.entry(publisher).or_default();
                // A message in a lost connection of its publisher may arrive after later ones of the next connection.
                let may_be_late = !numbers.contains(&number) && self.is_uncertain(seen.subject, publisher, number);
                if numbers.last().is_some_and(|&last| last >= number) && !may_be_late {
                    self.ledger.violate(format!("{expected}: {number} of {publisher} after {:?}", numbers.last()));
                }
                numbers.insert(number);
            }
            SubscriptionEvent::Missing(count) => seen.missing += count,
            _ => seen.is_whole = false,
        }
    }

    /// Returns `true` if the publisher does not know whether this message has left.
    fn is_uncertain(&self, subject: u64, publisher: u64, number: u64) -> bool {
        lock(&self.published).get(&(subject, publisher)).is_some_and(|fates| fates.uncertain.contains(&number))
    }

    /// Publishes with acknowledgements for this time. No two publishers have the same number.
    pub(super) async fn publish(self: Arc<Self>, client: Client, publisher: u64, length: Duration) {
        let end = self.ledger.elapsed() + length;
        for number in 0.. {
            if self.ledger.elapsed() >= end {
                break;
            }
            let (subject, len) = (fastrand::u64(..self.subjects), fastrand::usize(..400));
            let address = format!("{}.{subject}", self.name);
            let publishing = client.publish_acknowledged(&address, message(publisher, number, len));
            let jumped = self.ledger.jumped();
            let Ok(result) = timeout(PUBLISHING_MAX + jumped, publishing).await else {
                self.ledger.violate(format!("publisher {publisher} of {address} waits longer than {PUBLISHING_MAX:?}"));
                break;
            };
            {
                let mut published = lock(&self.published);
                let fates = published.entry((subject, publisher)).or_default();
                match result {
                    Ok(_) => _ = fates.accepted.insert(number),
                    Err(PublishError::Lost { may_have_left: true } | PublishError::NoAnswer { .. }) => {
                        _ = fates.uncertain.insert(number)
                    }
                    Err(PublishError::Lost { .. } | PublishError::NotConnected | PublishError::Refused(_)) => {}
                    Err(error) => self.ledger.violate(format!("an unexpected error of a publisher: {error}")),
                }
            }
            self.ledger.count("published", 1);
            sleep(self.pause_max.mul_f64(fastrand::f64())).await;
        }
    }

    /// Lets slow subscribers catch up after the last message.
    pub(super) fn catch_up(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Checks the account of each subscription, after the last message has had the time to arrive.
    pub(super) fn close(&self) {
        let published = lock(&self.published);
        for seen in &*lock(&self.subscribers) {
            let seen = lock(seen);
            let (mut accepted, mut uncertain, mut delivered) = (0, 0, 0);
            for (&(subject, publisher), fates) in &*published {
                if subject != seen.subject {
                    continue;
                }
                accepted += fates.accepted.len() as u64;
                uncertain += fates.uncertain.len() as u64;
                let numbers = seen.delivered.get(&publisher);
                for number in numbers.into_iter().flatten() {
                    delivered += 1;
                    if !fates.accepted.contains(number) && !fates.uncertain.contains(number) {
                        let name = &self.name;
                        self.ledger.violate(format!("{name}: {number} of {publisher} arrived, but never left"));
                    }
                }
            }
            let told = delivered + seen.missing;
            if seen.is_whole && !(accepted..=accepted + uncertain).contains(&told) {
                let (name, policy) = (&self.name, seen.policy);
                self.ledger.violate(format!(
                    "{name}.{}, {policy:?}: {delivered} delivered and {} missing of {accepted} accepted and {uncertain} uncertain",
                    seen.subject, seen.missing
                ));
            }
            if seen.is_whole && seen.policy == Some(Policy::Block) && seen.missing > 0 {
                self.ledger.violate(format!("{}: a subscription that blocks misses {}", self.name, seen.missing));
            }
            self.ledger.count(if seen.is_whole { "subscriptions accounted for" } else { "subscriptions broken" }, 1);
        }
    }

    /// Ends all subscriptions.
    pub(super) fn end(&self) {
        lock(&self.tasks).abort_all();
    }
}

fn lock<T>(state: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time limit of a publication: the wait for a connection, and that for an acknowledgement of a silent broker.
const PUBLISHING_MAX: Duration = Duration::from_secs(60);
