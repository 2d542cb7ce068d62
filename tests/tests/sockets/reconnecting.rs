//! A reconnecting frisbee client, with successive servers at one address.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use frisbee::{
    Address, Client, Connection, Engine, Operation, Outcome, Packet, ReconnectState, Reconnecting, Router, Server,
};
use support::{SECOND, engines, in_real_time, sockets::Kind, until};
use tokio::{sync::mpsc, task::yield_now};

use crate::restarts::lasting_address;

/// Counts the packets received by all servers together.
#[derive(Clone, Default)]
struct Count(Arc<Mutex<Vec<u32>>>);

impl Count {
    fn heard(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Router for Count {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        if packet.operation == HELLO {
            return Outcome::Reply(packet);
        }
        self.0.lock().unwrap().push(u32::from_be_bytes(packet.content[..].try_into().unwrap()));
        Outcome::Nothing
    }
}

/// Starts a server as soon as the address is free.
async fn serve_at(address: &Address, engine: Engine, count: &Count) -> Server {
    loop {
        match Server::builder(count.clone()).engine(engine).bind(address).await {
            Ok(server) => return server,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns a link that sends a hello on each connection, and the answers to it.
fn greeting(address: &Address, engine: Engine) -> (Reconnecting, mpsc::UnboundedReceiver<Packet>) {
    let (answers, answered) = mpsc::unbounded_channel();
    let router = frisbee::HandlerTable::new().on(HELLO, move |packet: Packet| {
        answers.send(packet).unwrap();
        async {}
    });
    let greet = async |connection: Connection| connection.send(Packet::new(0, HELLO, "hello")).await.map(drop);
    (Client::new(router).engine(engine).reconnecting().on_connected(greet).start(address).unwrap(), answered)
}

#[test]
fn messages_are_delivered_exactly_once_across_shutdowns() {
    for (kind, engine) in KINDS.into_iter().flat_map(|kind| engines().map(move |engine| (kind, engine))) {
        in_real_time(async move {
            let (count, address) = (Count::default(), lasting_address(kind));
            let mut server = serve_at(&address, engine, &count).await;
            let (link, mut answers) = greeting(&address, engine);
            let is_over = Arc::new(AtomicBool::new(false));
            let sending = tokio::spawn({
                let (link, is_over) = (link.clone(), is_over.clone());
                async move {
                    let mut number = 0_u32;
                    while !is_over.load(Ordering::Relaxed) {
                        link.send(Packet::new(0, NUMBER, number.to_be_bytes().to_vec())).await.unwrap();
                        number += 1;
                        if number.is_multiple_of(100) {
                            yield_now().await;
                        }
                    }
                    number
                }
            });
            for _ in 0..3 {
                answers.recv().await.unwrap();
                let before = count.heard();
                until(|| count.heard() > before + 1000).await;
                // The next server takes the address while this one still serves its remaining connections.
                let shutdown = tokio::spawn(server.shutdown(10 * SECOND));
                server = serve_at(&address, engine, &count).await;
                assert_eq!(shutdown.await.unwrap(), 0);
            }
            answers.recv().await.unwrap();
            is_over.store(true, Ordering::Relaxed);
            let sent = sending.await.unwrap() as usize;
            until(|| count.heard() >= sent).await;
            let mut numbers = count.0.lock().unwrap().clone();
            numbers.sort_unstable();
            assert!(numbers.iter().copied().eq(0..u32::try_from(sent).unwrap()), "over {kind:?} on {engine}");
        });
    }
}

#[test]
fn reconnects_after_a_server_crash() {
    for (kind, engine) in KINDS.into_iter().flat_map(|kind| engines().map(move |engine| (kind, engine))) {
        in_real_time(async move {
            let (count, address) = (Count::default(), lasting_address(kind));
            let (link, mut answers) = greeting(&address, engine);
            let mut states = link.states();
            for number in 0..3_u32 {
                let server = serve_at(&address, engine, &count).await;
                answers.recv().await.unwrap();
                link.send(Packet::new(0, NUMBER, number.to_be_bytes().to_vec())).await.unwrap();
                until(|| count.heard() > number as usize).await;
                while !matches!(states.next().await.unwrap(), ReconnectState::Connected(_)) {}
                drop(server);
                while !matches!(states.next().await.unwrap(), ReconnectState::Connecting(_)) {}
            }
            assert_eq!(*count.0.lock().unwrap(), [0, 1, 2], "over {kind:?} on {engine}");
        });
    }
}

const HELLO: Operation = Operation::new(20).unwrap();
const NUMBER: Operation = Operation::new(21).unwrap();
const KINDS: [Kind; 2] = [Kind::Tcp, Kind::UnixPath];
