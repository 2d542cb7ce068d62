//! Publish and subscribe with a slow consumer that remains visible as slow.
//!
//! With the default dispatch, a waiting handler does not delay the next packet: up to 1,024 updates wait in handlers
//! ([`Config::handlers_max`]), out of order, before the publisher notices a slow consumer. With [`Dispatch::Ordered`]
//! and a small backlog, a busy consumer stops reading. The publisher's outbox for it then fills up, and the publisher
//! chooses a policy. Here, slow consumers miss updates, they can tell which ones, and the connection counts them.

use std::{
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use frisbee::{
    Client, Config, Connection, Dispatch, Event, Operation, OutboxLimit, Outcome, Packet, Router, Server, WhenFull,
};
use tokio::{sync::Semaphore, time::sleep};

const SUBSCRIBE: Operation = Operation::new(20).unwrap();
const UPDATE: Operation = Operation::new(21).unwrap();
const UPDATES: u64 = 500;

/// Sends updates to all subscribers.
#[derive(Default)]
struct Publisher {
    subscribers: Mutex<Vec<Connection>>,
}

impl Publisher {
    fn publish(&self, number: u64) {
        let mut content = number.to_be_bytes().to_vec();
        content.resize(1024, 0);
        let update = Packet::new(0, UPDATE, content);
        for subscriber in &*self.subscribers.lock().expect("never poisoned") {
            // Waiting for the slowest subscriber would delay all others. The packets share their content.
            let _ = subscriber.try_send(update.clone());
        }
    }
}

impl Router for Publisher {
    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        if packet.operation == SUBSCRIBE {
            // Limits the updates queued for a subscriber on this side. On its side, the backlog is the limit.
            connection.set_outbox(OutboxLimit { len_max: 32 * 1024, when_full: WhenFull::Drop });
            self.subscribers.lock().expect("never poisoned").push(connection.clone());
            return Outcome::Reply(packet);
        }
        Outcome::Nothing
    }

    fn event(&self, connection: &Connection, event: Event<'_>) {
        let Event::Closed(_) = event else { return };
        self.subscribers.lock().expect("never poisoned").retain(|subscriber| subscriber != connection);
    }
}

/// Needs a fixed time for each update.
struct Consumer {
    pause: Duration,
    is_subscribed: Arc<Semaphore>,
    seen: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
}

impl Router for Consumer {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        if packet.operation == SUBSCRIBE {
            self.is_subscribed.add_permits(1);
        } else if let Some(Ok(number)) = packet.content.get(..8).map(TryInto::try_into) {
            sleep(self.pause).await;
            self.seen.fetch_add(1, Ordering::Relaxed);
            self.last.store(u64::from_be_bytes(number), Ordering::Relaxed);
        }
        Outcome::Nothing
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let publisher = Arc::new(Publisher::default());
    // Limits the outbox of each connection.
    let config = Config { outbox_len_max: 32 * 1024, ..Config::default() };
    let server = Server::builder(publisher.clone()).config(config).bind("mem:pubsub").await?;

    let mut consumers = Vec::new();
    for (name, pause) in [("fast", Duration::ZERO), ("slow", Duration::from_millis(20))] {
        let (is_subscribed, seen, last) = (Arc::new(Semaphore::new(0)), Arc::default(), Arc::default());
        let consumer =
            Consumer { pause, is_subscribed: is_subscribed.clone(), seen: Arc::clone(&seen), last: Arc::clone(&last) };
        let config = Config { backlog_max: 8, ..Config::default() };
        let client = Client::new(consumer).dispatch(Dispatch::Ordered).config(config);
        let connection = client.connect(server.local_addr()).await?;
        connection.send(Packet::new(0, SUBSCRIBE, "")).await?;
        let _permit = is_subscribed.acquire().await?;
        consumers.push((name, connection, seen, last));
    }

    for number in 1..=UPDATES {
        publisher.publish(number);
        sleep(Duration::from_millis(2)).await;
    }
    let missed: Vec<u64> = {
        let subscribers = publisher.subscribers.lock().expect("never poisoned");
        subscribers.iter().map(|subscriber| subscriber.metrics().counters.unsent).collect()
    };
    for ((name, connection, seen, last), missed) in consumers.iter().zip(missed) {
        let (seen, last) = (seen.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
        println!("{name}: saw {seen} of {UPDATES}, last number {last}; the publisher knows that it missed {missed}");
        connection.close();
    }
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
