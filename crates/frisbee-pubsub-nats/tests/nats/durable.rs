//! Messages stored in streams, over real NATS servers that die.

use std::{collections::BTreeMap, time::Duration};

use frisbee_pubsub::{Pattern, PublishError};
use frisbee_pubsub_nats::{Durable, Nats, NatsOptions, StartPosition, StreamError, StreamOptions};
use support::{NatsProgram, NatsServer, in_real_time, in_real_time_within};
use tokio::sync::watch;

#[test]
fn durable_subscriptions_resume_and_honour_their_start() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let mut server = program.start("one", "").await;
        let nats = connect(&[&server]).await;
        nats.make_stream(&StreamOptions::new("ORDERS", [pattern("orders.>")])).await.unwrap();
        // An existing stream stays unchanged.
        nats.make_stream(&StreamOptions::new("ORDERS", [pattern("other.>")])).await.unwrap();
        for number in 1..=10 {
            let subject = if number % 2 == 0 { "orders.even" } else { "orders.odd" };
            assert_eq!(nats.client().publish_acknowledged(subject, number.to_string()).await.unwrap(), None);
        }
        let mut billing = nats.durable("ORDERS", "billing").acknowledge_max(REDELIVERY).subscribe().await.unwrap();
        let mut third = None;
        for number in 1..=5 {
            let order = billing.next().await.unwrap();
            assert_eq!(
                (order.sequence, order.deliveries, &order.message.payload[..]),
                (number, 1, number.to_string().as_bytes())
            );
            third = if number == 3 { Some(order.stored) } else { third };
            order.acknowledge().await.unwrap();
        }
        drop((billing, nats));

        // The cluster keeps the position for the next program.
        let nats = connect(&[&server]).await;
        let mut billing = nats.durable("ORDERS", "billing").start(StartPosition::New).subscribe().await.unwrap();
        // Message 6 and later ones were in flight to the former program. They are redelivered after their timeout.
        assert_eq!(billing.next().await.unwrap().sequence, 6);

        // Messages survive a restart of their server.
        drop((billing, nats));
        server.kill().await;
        let server = server.restart().await;
        let nats = connect(&[&server]).await;
        let sequence = |start| {
            let nats = &nats;
            async move {
                let name = format!("{start:?}").replace(|char: char| !char.is_ascii_alphanumeric(), "");
                let mut durable = nats.durable("ORDERS", name).start(start).subscribe().await.unwrap();
                durable.next().await.unwrap().sequence
            }
        };
        assert_eq!(sequence(StartPosition::All).await, 1);
        assert_eq!(sequence(StartPosition::Sequence(7)).await, 7);
        assert_eq!(sequence(StartPosition::Time(third.unwrap())).await, 3);
        let even = nats.durable("ORDERS", "even").pattern(pattern("*.even"));
        assert_eq!(even.subscribe().await.unwrap().next().await.unwrap().sequence, 2);
        let mut new = nats.durable("ORDERS", "new").start(StartPosition::New).subscribe().await.unwrap();
        nats.client().publish_acknowledged("orders.odd", "11").await.unwrap();
        assert_eq!(new.next().await.unwrap().sequence, 11);
    });
}

#[test]
fn unreadable_messages_are_terminated_and_skipped() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let nats = connect(&[&server]).await;
        nats.make_stream(&StreamOptions::new("DEEP", [pattern("deep.>")])).await.unwrap();
        let raw = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
        let deep = format!("deep{}", ".a".repeat(20));
        for subject in ["deep.first", &deep, "deep.last"] {
            raw.publish(subject.to_owned(), "".into()).await.unwrap().await.unwrap();
        }
        let mut durable = nats.durable("DEEP", "reader").subscribe().await.unwrap();
        for (expected, unreadable) in [("deep.first", 0), ("deep.last", 1)] {
            let delivery = durable.next().await.unwrap();
            assert_eq!((&*delivery.message.subject, durable.unreadable()), (expected, unreadable));
            delivery.acknowledge().await.unwrap();
        }
        let consumer = raw.get_consumer_from_stream("reader", "DEEP").await;
        let mut consumer: async_nats::jetstream::consumer::PullConsumer = consumer.unwrap();
        let info = consumer.info().await.unwrap();
        assert_eq!((info.num_ack_pending, info.ack_floor.stream_sequence), (0, 3), "it does not come again");
    });
}

#[test]
fn unacknowledged_messages_are_redelivered() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let nats = connect(&[&server]).await;
        nats.make_stream(&StreamOptions::new("JOBS", [pattern("jobs")])).await.unwrap();
        nats.client().publish_acknowledged("jobs", "first").await.unwrap();
        let worker = || nats.durable("JOBS", "workers").acknowledge_max(Duration::from_millis(100)).subscribe();
        let mut one = worker().await.unwrap();
        assert_eq!(one.next().await.unwrap().deliveries, 1);
        assert_eq!(one.next().await.unwrap().deliveries, 2, "its time was over");
        let again = one.next().await.unwrap();
        assert_eq!(again.deliveries, 3);
        again.refuse().await.unwrap();
        drop(one);
        let mut other = worker().await.unwrap();
        let job = other.next().await.unwrap();
        assert!(job.deliveries > 3);
        job.acknowledge().await.unwrap();
        nats.client().publish_acknowledged("jobs", "second").await.unwrap();
        let mut next = other.next().await.unwrap();
        // Its redelivery timeout may end before the acknowledgement arrives.
        while next.message.payload == "first" {
            next.acknowledge().await.unwrap();
            next = other.next().await.unwrap();
        }
        assert_eq!(next.message.payload, "second");
    });
}

#[test]
fn missing_streams_and_closed_clients_return_errors() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let nats = connect(&[&server]).await;
        let missing = nats.durable("ORDERS", "billing").subscribe().await.unwrap_err();
        assert!(matches!(missing, StreamError::NoStream(name) if name == "ORDERS"));
        let options = NatsOptions { acknowledge_max: Duration::from_millis(300), ..options() };
        let impatient = Nats::connect_with(&[server.url()], options).await.unwrap();
        let refused = impatient.client().publish_acknowledged("orders.new", "").await.unwrap_err();
        assert!(matches!(refused, PublishError::Backend(_)) && refused.to_string().contains("no stream"), "{refused}");
        nats.make_stream(&StreamOptions::new("ORDERS", [pattern("orders.>")])).await.unwrap();
        let mut durable = nats.durable("ORDERS", "billing").subscribe().await.unwrap();
        nats.client().close().await;
        assert!(matches!(durable.next().await, Err(StreamError::Closed)));
    });
}

#[test]
fn acknowledged_messages_survive_the_loss_of_a_node() {
    in_real_time_within(CLUSTER_MAX, async {
        let Some(program) = NatsProgram::find() else { return };
        let mut servers = program.start_cluster(3).await;
        let nats = connect(&servers.iter().collect::<Vec<_>>()).await;
        let options = StreamOptions { replicas: 3, ..StreamOptions::new("ORDERS", [pattern("orders.>")]) };
        nats.make_stream(&options).await.unwrap();
        let mut durable = nats.durable("ORDERS", "billing").acknowledge_max(REDELIVERY).subscribe().await.unwrap();
        let (count, mut counted) = watch::channel(0);
        let publishing = tokio::spawn({
            let client = nats.client();
            async move {
                // Runs until the receiver of the count is dropped.
                for number in 0.. {
                    client.publish_acknowledged("orders.new", number.to_string()).await.unwrap();
                    if count.send(number + 1).is_err() {
                        return number + 1;
                    }
                }
                unreachable!("nobody waits for so many")
            }
        });
        let mut stored = BTreeMap::new();
        for _ in 0..10 {
            read(&mut durable, &mut stored).await;
        }
        servers[0].kill().await;
        let before = *counted.borrow();
        counted.wait_for(|count| *count > before + 100).await.unwrap();
        drop(counted);
        let acknowledged: usize = publishing.await.unwrap();
        while stored.len() < acknowledged {
            read(&mut durable, &mut stored).await;
        }
        // An order repeated after the server's death is stored once.
        assert_eq!(stored.into_values().collect::<Vec<_>>(), (0..acknowledged).collect::<Vec<_>>());
    });
}

/// Reads an order and records it by its number in the stream.
async fn read(durable: &mut Durable, stored: &mut BTreeMap<u64, usize>) {
    let order = durable.next().await.unwrap();
    stored.insert(order.sequence, String::from_utf8_lossy(&order.message.payload).parse().unwrap());
    // If a dying server loses the acknowledgement, the message is redelivered.
    let _ = order.acknowledge().await;
}

async fn connect(servers: &[&NatsServer]) -> Nats {
    let urls: Vec<_> = servers.iter().map(|server| server.url()).collect();
    Nats::connect_with(&urls, options()).await.unwrap()
}

fn options() -> NatsOptions {
    NatsOptions {
        acknowledge_max: CLUSTER_MAX,
        streams: vec![pattern("orders.>"), pattern("jobs")],
        ..NatsOptions::default()
    }
}

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).unwrap()
}

/// Longer than any message is in flight.
const REDELIVERY: Duration = Duration::from_secs(1);
/// An election of NATS takes up to 9 s, and longer on a busy machine.
const CLUSTER_MAX: Duration = Duration::from_secs(240);
