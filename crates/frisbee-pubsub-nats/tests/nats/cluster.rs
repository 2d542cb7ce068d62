//! Messages through a stream on three servers, which are killed and restarted in turn.

use std::{
    collections::HashSet,
    env,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, pull},
};
use frisbee_pubsub::Pattern;
use frisbee_pubsub_nats::{Nats, NatsOptions, StreamOptions};
use futures_core::Stream;
use support::{NatsProgram, NatsServer, in_real_time_within};
use tokio::{sync::watch, task::JoinSet};

/// The number of messages is 20,000, or `FRISBEE_MESSAGES`. The figures in docs/pubsub.md are from
/// `FRISBEE_MESSAGES=1000000 cargo test -p frisbee-pubsub-nats --test nats arrives -- --nocapture`.
#[test]
fn every_acknowledged_message_arrives_while_nodes_are_killed() {
    let len = env::var("FRISBEE_MESSAGES").map_or(20_000, |len| len.parse().expect("it is a number"));
    in_real_time_within(Duration::from_secs(300 + len as u64 / 200), async {
        let Some(program) = NatsProgram::find() else { return };
        let servers = program.start_cluster(3).await;
        let nats = connect(&servers).await;
        let subjects = [Pattern::new("orders.>").unwrap()];
        nats.make_stream(&StreamOptions { replicas: 3, ..StreamOptions::new("ORDERS", subjects) }).await.unwrap();
        let raw = raw(&servers).await;
        let started = Instant::now();
        let (counted, count) = watch::channel(0);
        let publishing = publish(&nats, len, counted);
        let killing = tokio::spawn(kill_in_turn(servers, raw.clone(), count, len));
        let delivered = read_durably(&nats, len).await;
        publishing.join_all().await;
        let elapsed = started.elapsed();
        let (servers, kills) = killing.await.unwrap();

        // A leader without the messages of its predecessor would show only now.
        let stored = read_stored(&raw).await;
        let missing = (0..len).filter(|id| !stored.ids.contains(id)).count();
        println!(
            "{len} acknowledged messages in {:.0} s, {kills} kills of a node: {missing} missing, {} stored twice, \
             {delivered} deliveries to the durable subscription",
            elapsed.as_secs_f64(),
            stored.messages - stored.ids.len(),
        );
        assert_eq!(missing, 0);
        assert!(kills >= 3, "each node was killed: {kills}");
        drop(servers);
    });
}

/// Publishes messages from many tasks. Each repeats its message until it is acknowledged.
fn publish(nats: &Nats, len: usize, counted: watch::Sender<usize>) -> JoinSet<()> {
    let (next, counted) = (Arc::new(AtomicUsize::new(0)), Arc::new(counted));
    let mut publishing = JoinSet::new();
    for _ in 0..PUBLISHERS {
        let (client, next, counted) = (nats.client(), next.clone(), counted.clone());
        publishing.spawn(async move {
            loop {
                let id = next.fetch_add(1, Ordering::Relaxed);
                if id >= len {
                    return;
                }
                while client.publish_acknowledged("orders.new", id.to_string()).await.is_err() {}
                counted.send_modify(|count| *count += 1);
            }
        });
    }
    publishing
}

/// Kills one server after another while messages are published. The next one is killed after the stream has all its copies
/// again.
async fn kill_in_turn(
    mut servers: Vec<NatsServer>,
    raw: jetstream::Context,
    mut count: watch::Receiver<usize>,
    len: usize,
) -> (Vec<NatsServer>, usize) {
    let mut kills = 0;
    loop {
        if wait_for_more(&mut count, len / 16, len).await {
            return (servers, kills);
        }
        servers[0].kill().await;
        kills += 1;
        // The other two go on.
        wait_for_more(&mut count, len / 32, len).await;
        let dead = servers.remove(0);
        servers.push(dead.restart().await);
        while !is_whole(&raw).await {
            wait_for_more(&mut count, len / 1000, len).await;
        }
    }
}

/// Waits until this number of further messages is acknowledged. Returns `true` if there are no more.
async fn wait_for_more(count: &mut watch::Receiver<usize>, more: usize, len: usize) -> bool {
    let target = (*count.borrow() + more).min(len);
    // An error means that all publishers have ended.
    count.wait_for(|count| *count >= target).await.is_err() || target == len
}

/// Returns `true` if all servers of the stream are up and have its messages.
async fn is_whole(raw: &jetstream::Context) -> bool {
    let Ok(mut stream) = raw.get_stream("ORDERS").await else { return false };
    let Ok(info) = stream.info().await else { return false };
    info.cluster.as_ref().is_some_and(|cluster| {
        let replicas = cluster.replicas.as_slice();
        cluster.leader.is_some() && replicas.len() == 2 && replicas.iter().all(|node| node.current && !node.offline)
    })
}

/// Reads with a durable subscription until each message was delivered. Returns the number of deliveries.
async fn read_durably(nats: &Nats, len: usize) -> usize {
    let mut durable = nats.durable("ORDERS", "billing").window(WINDOW).subscribe().await.unwrap();
    let (mut seen, mut deliveries) = (HashSet::new(), 0);
    let mut acknowledging = JoinSet::new();
    while seen.len() < len {
        let order = durable.next().await.unwrap();
        deliveries += 1;
        seen.insert(number(&order.message.payload));
        if acknowledging.len() == WINDOW {
            acknowledging.join_next().await;
        }
        // If a dying server loses the acknowledgement, the message is redelivered.
        acknowledging.spawn(order.acknowledge());
    }
    deliveries
}

struct StoredMessages {
    messages: usize,
    ids: HashSet<usize>,
}

/// Reads the stream from its beginning, without acknowledgements.
async fn read_stored(raw: &jetstream::Context) -> StoredMessages {
    loop {
        // After a kill, the cluster may still elect a leader.
        match try_read_stored(raw).await {
            Ok(stored) => return stored,
            Err(error) => println!("reading the stored messages again: {error}"),
        }
    }
}

async fn try_read_stored(raw: &jetstream::Context) -> Result<StoredMessages, async_nats::Error> {
    let stream = raw.get_stream("ORDERS").await?;
    let config = pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() };
    let consumer = stream.create_consumer(config).await?;
    let mut stored = StoredMessages { messages: 0, ids: HashSet::new() };
    let mut messages = consumer.stream().max_messages_per_batch(WINDOW).messages().await?;
    while let Some(message) = poll_fn(|cx| Pin::new(&mut messages).poll_next(cx)).await {
        let message = message?;
        stored.messages += 1;
        stored.ids.insert(number(&message.payload));
        if message.info()?.pending == 0 {
            return Ok(stored);
        }
    }
    Err("the messages have ended".into())
}

async fn connect(servers: &[NatsServer]) -> Nats {
    let urls: Vec<_> = servers.iter().map(NatsServer::url).collect();
    let streams = vec![Pattern::new("orders.>").unwrap()];
    let options = NatsOptions { acknowledge_max: Duration::from_secs(60), streams, ..NatsOptions::default() };
    Nats::connect_with(&urls, options).await.unwrap()
}

async fn raw(servers: &[NatsServer]) -> jetstream::Context {
    let urls: Vec<_> = servers.iter().map(|server| server.url().parse::<async_nats::ServerAddr>().unwrap()).collect();
    jetstream::new(async_nats::connect(urls).await.unwrap())
}

fn number(payload: &[u8]) -> usize {
    std::str::from_utf8(payload).unwrap().parse().unwrap()
}

const PUBLISHERS: usize = 256;
const WINDOW: usize = 512;
