//! Methods of a service that hand out stored messages, with callers and servers that disappear.

use std::{collections::BTreeSet, time::Duration};

use frisbee_pubsub::Pattern;
use frisbee_pubsub_nats::{
    DurableBuilder, MessageReceipt, Nats, NatsOptions, ServedMessage, ServedMessages, StreamError, StreamOptions,
};
use frpc::{Channel, Request, Response, Server, Status, StreamSender, Streaming};
use futures_util::StreamExt;
use support::{
    NatsProgram, NatsServer,
    calls::{TestClient, TestServer, Words, schema::test_server::Test, words},
    in_real_time, in_real_time_within,
};

#[test]
fn messages_return_to_the_cluster_unless_their_caller_acknowledges_them() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let orders = Orders::open(&server, NEVER, 8).await;
        orders.publish(0..20).await;
        let channel = Channel::in_process(TestServer::new(orders.clone()));
        let client = TestClient::new(channel);

        // This caller is done with two messages, returns one, rejects one, and disappears with the others.
        let mut first = Caller::start(&client).await;
        let mut taken = Vec::new();
        for _ in 0..6 {
            taken.push(first.next().await);
        }
        assert_eq!(taken, (0..6).map(|number| (number, 1)).collect::<Vec<_>>());
        // Eight are the limit, including those buffered by the server.
        assert!((6..=8).contains(&orders.pending().await));
        for receipt in ["done 0", "done 1", "retry 2", "reject 3", "done 777", "done 0"] {
            first.receipt(receipt).await;
        }
        until_acknowledged(&orders, 2).await;
        drop(first);

        let mut second = Caller::start(&client).await;
        let mut seen = BTreeSet::new();
        while seen.len() < 17 {
            let (number, deliveries) = second.next().await;
            assert!(![0, 1, 3].contains(&number), "{number} was acknowledged or rejected");
            assert!(deliveries > 1 || ![2, 4, 5].contains(&number), "{number} was delivered before");
            seen.insert(number);
            second.receipt(&format!("done {number}")).await;
        }
        // The end of the receipts ends the call, after the cluster has recorded them.
        second.finish().await.unwrap();
        assert_eq!(orders.pending().await, 0);
    });
}

#[test]
fn plain_response_streams_acknowledge_messages_as_they_are_taken() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let orders = Orders::open(&server, NEVER, 64).await;
        orders.publish(0..3).await;
        let mut taken = orders.durable().serve_taken().await.unwrap();
        for number in 0..3 {
            assert_eq!(number_of(&taken.next().await.unwrap().unwrap().message.payload), number);
        }
        // The third message counts as taken when the next one is wanted.
        until_acknowledged(&orders, 2).await;
        drop(taken);

        // The same through a method of a service.
        let channel = Channel::in_process(TestServer::new(orders.clone()));
        let client = TestClient::new(channel);
        let mut count = client.count(words("")).await.unwrap().into_inner();
        assert_eq!(parse(&count.message().await.unwrap().unwrap()), (2, 2));
        orders.publish(3..40).await;
        for number in 3..40 {
            assert_eq!(parse(&count.message().await.unwrap().unwrap()).0, number);
        }
        tokio::select! {
            extra = count.message() => panic!("{extra:?}"),
            () = until_acknowledged(&orders, 40) => {}
        }
    });
}

#[test]
fn no_message_is_lost_while_callers_and_servers_restart() {
    in_real_time_within(Duration::from_secs(240), async {
        let Some(program) = NatsProgram::find() else { return };
        let mut nats_server = program.start("one", "").await;
        let orders = Orders::open(&nats_server, Duration::from_secs(2), 16).await;
        let (len, mut seen) = (400_u16, BTreeSet::new());
        orders.publish(0..len.into()).await;
        let mut round = 0;
        while seen.len() < usize::from(len) {
            round += 1;
            let server = Server::builder().add_service(TestServer::new(orders.clone()));
            let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
            let client = TestClient::new(Channel::connect(server.local_addr()).await.unwrap());
            let mut callers = [Caller::start(&client).await, Caller::start(&client).await];
            // Each round ends in another way, with messages in flight.
            for step in 0..40 {
                if seen.len() == usize::from(len) {
                    break;
                }
                if (round, step) == (2, 20) {
                    nats_server.kill().await;
                    nats_server = nats_server.restart().await;
                }
                let caller = step % 2;
                let Some((number, _)) = callers[caller].try_next().await else { break };
                if step % 5 == 0 {
                    callers[caller].receipt(&format!("retry {number}")).await;
                } else {
                    seen.insert(number);
                    callers[caller].receipt(&format!("done {number}")).await;
                }
            }
            if round % 3 == 0 {
                for caller in callers {
                    caller.finish().await.unwrap();
                }
            } else if round % 3 == 1 {
                drop(callers);
            }
            drop(server);
        }
        assert_eq!(seen, (0..len.into()).collect());
    });
}

/// A service with a stream of orders. Its methods hand them out.
#[derive(Clone)]
struct Orders {
    nats: Nats,
    raw: async_nats::jetstream::Context,
    acknowledge_max: Duration,
    window: usize,
}

impl Orders {
    async fn open(server: &NatsServer, acknowledge_max: Duration, window: usize) -> Self {
        let streams = vec![Pattern::new("orders.>").unwrap()];
        let options = NatsOptions { streams: streams.clone(), ..NatsOptions::default() };
        let nats = Nats::connect_with(&[server.url()], options).await.unwrap();
        nats.make_stream(&StreamOptions::new("ORDERS", streams)).await.unwrap();
        let raw = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
        Self { nats, raw, acknowledge_max, window }
    }

    async fn publish(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.nats.client().publish_acknowledged("orders.new", number.to_string()).await.unwrap();
        }
    }

    async fn info(&self) -> async_nats::jetstream::consumer::Info {
        let consumer = self.raw.get_consumer_from_stream("workers", "ORDERS").await;
        let mut consumer: async_nats::jetstream::consumer::PullConsumer = consumer.unwrap();
        consumer.info().await.unwrap().clone()
    }

    async fn pending(&self) -> usize {
        self.info().await.num_ack_pending
    }

    /// Returns the number of the messages before the first unacknowledged one.
    async fn acknowledged(&self) -> u64 {
        self.info().await.ack_floor.stream_sequence
    }

    fn durable(&self) -> DurableBuilder {
        self.nats.durable("ORDERS", "workers").acknowledge_max(self.acknowledge_max).window(self.window)
    }
}

impl Test for Orders {
    async fn say(&self, _: Request<Words>) -> Result<Response<Words>, Status> {
        Err(Status::unimplemented("orders are streams"))
    }

    async fn gather(&self, _: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        Err(Status::unimplemented("orders are streams"))
    }

    async fn count(&self, _: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        answers(self.durable().serve_taken().await)
    }

    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        let receipts = request.into_inner().map(|receipt| {
            let text = receipt?.text;
            let (kind, number) = text.split_once(' ').ok_or_else(|| Status::invalid_argument("no receipt"))?;
            // Streams count from one.
            let id = number.parse::<u64>().map_err(|_| Status::invalid_argument("no number"))? + 1;
            Ok::<_, Status>(match kind {
                "done" => MessageReceipt::Done(id),
                "retry" => MessageReceipt::Retry(id),
                _ => MessageReceipt::Reject(id),
            })
        });
        answers(self.durable().serve(receipts).await)
    }
}

fn answers(messages: Result<ServedMessages, StreamError>) -> Result<Response<Streaming<Words>>, Status> {
    let unavailable = |error: StreamError| Status::unavailable(error.to_string());
    let messages = messages.map_err(unavailable)?.map(move |message| {
        let ServedMessage { id, message, deliveries, .. } = message.map_err(unavailable)?;
        assert_eq!(number_of(&message.payload) + 1, id);
        Ok(words(format!("{} {deliveries}", id - 1)))
    });
    Ok(Streaming::new(messages).into())
}

/// A call for orders.
struct Caller {
    receipts: StreamSender<Words>,
    orders: Streaming<Words>,
}

impl Caller {
    async fn start(client: &TestClient) -> Self {
        let (receipts, requests) = Streaming::channel(16);
        Self { receipts, orders: client.chat(requests).await.unwrap().into_inner() }
    }

    /// Returns the number of the next order, and of its deliveries.
    async fn next(&mut self) -> (u64, u64) {
        self.try_next().await.unwrap()
    }

    async fn try_next(&mut self) -> Option<(u64, u64)> {
        self.orders.message().await.ok().flatten().map(|order| parse(&order))
    }

    async fn receipt(&self, text: &str) {
        self.receipts.send(words(text)).await.unwrap();
    }

    /// Ends the receipts, and reads the stream to its end.
    async fn finish(mut self) -> Result<(), Status> {
        drop(self.receipts);
        while self.orders.message().await?.is_some() {}
        Ok(())
    }
}

async fn until_acknowledged(orders: &Orders, count: u64) {
    while orders.acknowledged().await < count {
        tokio::task::yield_now().await;
    }
}

fn parse(order: &Words) -> (u64, u64) {
    let (number, deliveries) = order.text.split_once(' ').unwrap();
    (number.parse().unwrap(), deliveries.parse().unwrap())
}

fn number_of(payload: &[u8]) -> u64 {
    std::str::from_utf8(payload).unwrap().parse().unwrap()
}

/// Longer than any test: messages return only because the service returns them.
const NEVER: Duration = Duration::from_secs(3600);
