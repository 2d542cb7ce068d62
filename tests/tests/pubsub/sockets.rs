//! Publish and subscribe over sockets and engines.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use frisbee::{Config, Engine, Server};
use frisbee_pubsub::{Broker, BrokerLimits, Client, Policy, SubscriptionEvent};
use support::{engines, in_real_time, until};
use tokio::{io::AsyncWriteExt, net::TcpStream};

const MESSAGES: usize = 20_000;

async fn client_of(server: &Server) -> Client {
    Client::connect(server.local_addr()).await.unwrap()
}

/// Publishes numbered messages of 1 KiB.
async fn publish(client: &Client) {
    for number in 0..MESSAGES {
        client.publish("load", format!("{number:01024}")).await.unwrap();
    }
    client.flush().await.unwrap();
}

#[test]
fn messages_arrive_in_order_on_every_engine() {
    for engine in engines() {
        in_real_time(async {
            let broker = Broker::new();
            let server = Server::builder(broker.router()).engine(engine).bind("tcp://127.0.0.1:0").await.unwrap();
            let publisher = client_of(&server).await;
            let mut readers = Vec::new();
            for _ in 0..3 {
                let mut subscription = client_of(&server).await.subscribe("*").policy(Policy::Block).await.unwrap();
                readers.push(tokio::spawn(async move {
                    for number in 0..MESSAGES {
                        let message = subscription.next().await.unwrap().message().expect("nothing is missing");
                        assert_eq!(String::from_utf8_lossy(&message.payload).parse(), Ok(number));
                    }
                }));
            }
            publish(&publisher).await;
            for reader in readers {
                reader.await.unwrap();
            }
            until(|| broker.metrics().queued_len == 0).await;
        });
    }
}

#[test]
fn a_stalled_reader_delays_no_others_with_bounded_memory() {
    in_real_time(async {
        let limits = BrokerLimits { queue_len_max: 100_000, ..BrokerLimits::default() };
        let broker = Broker::builder().limits(limits).build();
        // Longer than the whole test: the connection with an idle reader must stay open.
        let config = Config { outbox_len_max: 50_000, write_stall_max: Duration::from_secs(60), ..Config::default() };
        let server = Server::builder(broker.router()).engine(Engine::Tokio).config(config);
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();

        let address = server.local_addr().to_string();
        let mut silent = TcpStream::connect(address.strip_prefix("tcp://").unwrap()).await.unwrap();
        // A SUBSCRIBE with policy 1, no window, slot 0, the pattern `load` and no group.
        let content = [&[1, 0, 0, 0, 0, 0, 4][..], b"load", &[0]].concat();
        silent.write_all(&support::frames::frame(1, frisbee_pubsub::BASE + 2, content)).await.unwrap();
        until(|| broker.metrics().patterns == 1).await;

        let publisher = client_of(&server).await;
        let mut readers = Vec::new();
        for _ in 0..9 {
            let client = client_of(&server).await;
            let mut subscription = client.subscribe("load").policy(Policy::Block).await.unwrap();
            readers.push(tokio::spawn(async move {
                for number in 0..MESSAGES {
                    let event = subscription.next().await.unwrap();
                    let SubscriptionEvent::Message(message) = event else { panic!("{event:?}") };
                    assert_eq!(String::from_utf8_lossy(&message.payload).parse(), Ok(number));
                }
            }));
        }
        publish(&publisher).await;
        for reader in readers {
            reader.await.unwrap();
        }
        assert!(broker.metrics().missing > 0, "the one that does not read misses some");
        assert!(broker.metrics().queued_len <= 100_000, "{} bytes", broker.metrics().queued_len);
        for connection in server.connections() {
            let outbox_len = connection.metrics().outbox_len;
            assert!(outbox_len <= 200_000, "{outbox_len} bytes");
        }
    });
}

#[test]
fn metrics_can_be_asked_for_while_clients_subscribe() {
    let broker = Broker::new();
    let (is_over, (done, all_done)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let asking = thread::spawn({
        let (broker, is_over, done) = (broker.clone(), is_over.clone(), done.clone());
        move || {
            while !is_over.load(Ordering::Relaxed) {
                broker.metrics();
            }
            done.send(()).unwrap();
        }
    });
    let subscribing = thread::spawn(move || {
        in_real_time(async {
            let client = broker.client().await.unwrap();
            for number in 0..2_000 {
                client.subscribe(&format!("subject.{number}")).await.unwrap();
            }
        });
        is_over.store(true, Ordering::Relaxed);
        done.send(()).unwrap();
    });
    for _ in 0..2 {
        all_done.recv_timeout(Duration::from_secs(30)).expect("no thread waits for another for ever");
    }
    asking.join().unwrap();
    subscribing.join().unwrap();
}
