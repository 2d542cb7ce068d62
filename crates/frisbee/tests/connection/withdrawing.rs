//! Packets that their sender does not want answered any more, between extended peers.

use std::{
    future::pending,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use frisbee::{Config, Connection, Dispatch, GoAway, Outcome, Packet, PeerProtocol, Router};
use support::{in_virtual_time, settle};

use crate::scripts::{client, connected, only_connection, packet, quiet, server};

/// Has a handler for each packet that never ends by itself, but for packets that ask for an echo; and a log of everything.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Vec<String>>>);

impl Held {
    fn log(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Logs that a handler was dropped.
struct Dropped(Held, u16);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.log(format!("dropped {}", self.1));
    }
}

impl Router for Held {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        if packet.content == "echo" {
            return Outcome::Reply(Packet { content: "echoed".into(), ..packet });
        }
        self.log(format!("began {}", packet.id));
        let _dropped = Dropped(self.clone(), packet.id);
        pending().await
    }

    fn event(&self, _: &Connection, event: frisbee::Event<'_>) {
        match event {
            frisbee::Event::Recognized(peer) => self.log(if peer.hello().is_some() { "extended" } else { "plain" }),
            frisbee::Event::GoingAway(why) => self.log(format!("going away: {}", why.text)),
            frisbee::Event::Withdrawn(packet) => self.log(format!("withdrawn {}", packet.id)),
            _ => {}
        }
    }
}

fn extended() -> Config {
    Config { extended: true, ..quiet() }
}

const DISPATCHES: [Dispatch; 4] =
    [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, Dispatch::Limited(NonZeroUsize::new(1).unwrap())];

#[test]
fn cancelling_a_packet_drops_its_handler_and_frees_its_slot() {
    for dispatch in DISPATCHES {
        in_virtual_time(async {
            let (held, caller) = (Held::default(), Held::default());
            let server = server(held.clone())
                .config(Config { handlers_max: 1, ..extended() })
                .dispatch(dispatch)
                .without_listener();
            let connection = connected(client(caller.clone()).config(extended()), &server).await;
            connection.recognized().await.unwrap();
            let names = [1, 2, 3].map(|id| packet(id, "hold").name());
            for name in names {
                connection.send(Packet::new(name.id, name.operation, "hold")).await.unwrap();
            }
            settle().await;
            assert_eq!(held.take(), ["extended", "began 1"], "{dispatch:?}");
            assert!(connection.withdraw(names[1]), "one that waits for its handler");
            settle().await;
            assert!(connection.withdraw(names[0]));
            settle().await;
            assert_eq!(held.take(), ["dropped 1", "began 3"], "{dispatch:?}");
            assert_eq!(caller.take(), ["extended", "withdrawn 2", "withdrawn 1"]);
            assert_eq!(only_connection(&server).await.metrics().handlers, 1);
            connection.withdraw(names[2]);
            settle().await;
            assert_eq!((held.take(), caller.take()), (vec!["dropped 3".to_owned()], vec!["withdrawn 3".to_owned()]));
            assert_eq!(only_connection(&server).await.metrics().handlers, 0);
        });
    }
}

#[test]
fn answered_packets_are_not_cancelled() {
    for dispatch in DISPATCHES {
        in_virtual_time(async {
            let caller = Held::default();
            let server = server(Held::default()).config(extended()).dispatch(dispatch).without_listener();
            let connection = connected(client(caller.clone()).config(extended()), &server).await;
            connection.recognized().await.unwrap();
            connection.send(packet(1, "echo")).await.unwrap();
            settle().await;
            connection.withdraw(packet(1, "").name());
            settle().await;
            assert_eq!(caller.take(), ["extended", "began 1"], "the echo is all that came, {dispatch:?}");
        });
    }
}

#[test]
fn both_sides_learn_that_the_peer_goes_away() {
    in_virtual_time(async {
        let (held, caller) = (Held::default(), Held::default());
        let server = server(held.clone()).config(extended()).without_listener();
        let connection = connected(client(caller.clone()).config(extended()), &server).await;
        connection.recognized().await.unwrap();
        let why = |text: &str| GoAway { code: GoAway::AGE, text: text.into() };
        assert!(connection.go_away(why("client")));
        assert!(only_connection(&server).await.go_away(why("server")));
        settle().await;
        assert_eq!(held.take(), ["extended", "going away: client"]);
        assert_eq!(caller.take(), ["extended", "going away: server"]);
        assert!(connection.close_reason().is_none(), "what is under way goes on");
    });
}

#[test]
fn plain_peers_get_no_cancellations() {
    in_virtual_time(async {
        let caller = Held::default();
        let server = server(Held::default()).config(quiet()).without_listener();
        let connection = connected(client(caller.clone()).config(extended()), &server).await;
        assert_eq!(connection.recognized().await.unwrap(), PeerProtocol::Plain);
        connection.send(packet(1, "hold")).await.unwrap();
        assert!(!connection.withdraw(packet(1, "").name()));
        assert!(!connection.go_away(GoAway { code: 0, text: "".into() }));
        settle().await;
        assert_eq!(caller.take(), ["plain"]);
        assert_eq!(only_connection(&server).await.metrics().counters.dropped, 1, "the hello is all that was dropped");
    });
}
