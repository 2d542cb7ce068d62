//! Sends any packets from two clients to a broker. Nothing panics, queues stay within their limits, and no messages or
//! patterns remain at the end.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use frisbee::{Client, CloseReason, Config, Operation, Packet, Server};
use frisbee_fuzz::fuzz_target;
use frisbee_pubsub::{BASE, Broker, BrokerLimits, fuzzing::read_as_client};
use tokio::{io::duplex, task::yield_now, time::timeout};

#[derive(Arbitrary, Debug)]
struct Step<'a> {
    by: bool,
    id: u16,
    what: What<'a>,
}

#[derive(Arbitrary, Debug)]
enum What<'a> {
    Any { kind: u8, content: &'a [u8] },
    Subscribe { policy: u8, window: u16, slot: u8, pattern: u8, group: bool },
    Publish { flags: u8, subject: u8, payload: &'a [u8] },
    Credit { number: u8, bytes: u32 },
    Unsubscribe { number: u8 },
    Settle,
}

const TEXTS: [&str; 6] = ["a", "a.b", "a.*", ">", "b.>", "a..b"];

impl What<'_> {
    fn packet(&self) -> (u8, Vec<u8>) {
        let text = |index: u8| TEXTS[usize::from(index) % TEXTS.len()];
        let short = |text: &str| [&[u8::try_from(text.len()).expect("it is short")], text.as_bytes()].concat();
        match self {
            Self::Any { kind, content } => (kind % 16, content.to_vec()),
            Self::Subscribe { policy, window, slot, pattern, group } => {
                let head = [&[policy % 6][..], &u32::from(*window).to_be_bytes(), &[slot % 3]].concat();
                let group = if *group { "g" } else { "" };
                (2, [head, short(text(*pattern)), short(group)].concat())
            }
            Self::Publish { flags, subject, payload } => {
                let reply = if flags & 4 != 0 { short("r") } else { Vec::new() };
                (6, [&[*flags][..], &short(text(*subject)), &reply, payload].concat())
            }
            Self::Credit { number, bytes } => (10, [u32::from(*number).to_be_bytes(), bytes.to_be_bytes()].concat()),
            Self::Unsubscribe { number } => (4, u32::from(*number).to_be_bytes().to_vec()),
            Self::Settle => (255, Vec::new()),
        }
    }
}

fuzz_target!(|steps: Vec<Step<'_>>| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("it can be made").block_on(run(&steps));
});

async fn run(steps: &[Step<'_>]) {
    let limits = BrokerLimits {
        queue_len_max: 500,
        queued_len_max: 2000,
        publish_window: 1000,
        retained_max: 2,
        retained_len_max: 500,
        answers_max: 4,
        subscriptions_max: 4,
        stall_max: Duration::from_secs(5),
        ..BrokerLimits::default()
    };
    let broker = Broker::builder().limits(limits).build();
    let config = Config { ping_interval: None, silence_max: None, outbox_len_max: 500, ..Config::default() };
    let server = Server::builder(broker.router()).config(config.clone()).without_listener();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let (ours, theirs) = duplex(300);
        server.attach(theirs);
        clients.push(Client::new(()).config(config.clone()).attach(ours).await.expect("it is there"));
    }
    yield_now().await;
    let accepted = server.connections();
    for step in steps {
        let (kind, content) = step.what.packet();
        read_as_client(&content);
        if kind == 255 {
            yield_now().await;
            continue;
        }
        let operation = Operation::new(BASE + u16::from(kind)).expect("it is not reserved");
        // The broker may have closed the connection.
        let _ = clients[usize::from(step.by)].try_send(Packet::new(step.id, operation, content));
        // The windows of publishers and the size of one read limit the queues of the `Block` policy.
        assert!(broker.metrics().queued_len <= 2000 + 2 * (1000 + 64 * 16 * 1024));
    }
    for client in clients {
        client.close();
        timeout(Duration::from_secs(60), client.closed()).await.expect("it closes");
    }
    for connection in accepted {
        let reason = timeout(Duration::from_secs(60), connection.closed()).await.expect("it closes");
        assert!(!matches!(reason, CloseReason::HandlerPanicked(_)), "{reason}");
    }
    yield_now().await;
    let metrics = broker.metrics();
    assert_eq!((metrics.queued_len, metrics.patterns), (0, 0));
}
