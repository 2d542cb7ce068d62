//! Handlers that return something, and handlers that do not return.

use frisbee::{CloseReason, Config, Connection, Outcome, Packet, Router, Stream};
use support::{frames::stream_frame, in_virtual_time, settle};

use crate::scripts::{
    Script, client, dispatches, only_connection, packet_frame, peer_of, peer_of_client, quiet, server,
};

/// Returns the words that a peer hears after `words`, and why the connection ended, if it did. Another connection always lives on.
async fn after(words: &str, server: &frisbee::Server) -> (Vec<String>, Option<CloseReason>) {
    let mut peer = peer_of(server);
    let connection = only_connection(server).await;
    let mut other = peer_of(server);
    peer.say(packet_frame(1, words)).await;
    let heard = peer.heard().await;
    if heard.last().is_some_and(|last| last == "end") {
        drop(peer);
        settle().await;
    }
    other.say(packet_frame(2, "hi")).await;
    assert_eq!(other.hear().await, "packet 2: hi", "another connection lives on after {words:?}");
    (heard, connection.close_reason())
}

/// Checks in every mode what `words` lead to; with "wait" in front, the handler does it when it was not ready at once.
fn check(words: &str, heard: &[&str], is_reason: impl Fn(Option<CloseReason>) -> bool) {
    for dispatch in dispatches() {
        for words in [words.to_owned(), format!("wait {words}")] {
            in_virtual_time(async {
                let script = Script::new();
                let config = Config { content_len_max: 100, ..quiet() };
                let server = server(script.clone()).config(config).dispatch(dispatch).without_listener();
                script.gate.open(1);
                let (replies, reason) = after(&words, &server).await;
                let expected: Vec<String> = heard.iter().map(|reply| reply.replace("{}", &words)).collect();
                assert_eq!(replies, expected, "{words:?} {dispatch:?}");
                assert!(is_reason(reason.clone()), "{words:?} {dispatch:?} {reason:?}");
            });
        }
    }
}

#[test]
fn outcome_nothing_sends_nothing() {
    check("nothing", &[], |reason| reason.is_none());
}

#[test]
fn outcome_reply_sends_the_packet() {
    check("reply", &["packet 1: {}"], |reason| reason.is_none());
}

#[test]
fn replies_and_packets_sent_by_handlers_stay_in_order() {
    struct Twice;
    impl Router for Twice {
        async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
            connection.try_send(Packet { content: "sent".into(), ..packet.clone() }).unwrap();
            Outcome::Reply(packet)
        }
    }
    in_virtual_time(async {
        let server = server(Twice).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all((1..=100).map(|id| packet_frame(id, "hi"))).await;
        for id in 1..=100 {
            let expected = [format!("packet {id}: sent"), format!("packet {id}: hi")];
            assert_eq!(peer.hear_times(2).await, expected);
        }
    });
}

#[test]
fn outcome_close_closes_the_connection() {
    check("close", &["end"], |reason| matches!(reason, Some(CloseReason::Local)));
}

#[test]
fn outcome_reply_and_close_replies_first() {
    check("bye", &["packet 1: {}", "end"], |reason| matches!(reason, Some(CloseReason::Local)));
}

#[test]
fn an_oversized_reply_closes_the_connection() {
    check("large", &["end"], |reason| matches!(reason, Some(CloseReason::ReplyTooLarge { len: 101, limit: 100 })));
}

#[test]
fn a_handler_panic_closes_only_its_connection() {
    check("panic", &["end"], |reason| is_panic(reason, "as told"));
}

#[test]
fn a_panic_before_the_future_closes_only_its_connection() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let server = server(Script::new()).dispatch(dispatch).without_listener();
            let (heard, reason) = after("panic at once", &server).await;
            assert!(heard == ["end"] && is_panic(reason.clone(), "at once"), "{dispatch:?} {heard:?} {reason:?}");
        });
    }
}

#[test]
fn replies_before_a_panic_arrive() {
    for dispatch in [frisbee::Dispatch::InPlace, frisbee::Dispatch::Ordered] {
        in_virtual_time(async {
            let server = server(Script::new()).dispatch(dispatch).without_listener();
            let mut peer = peer_of(&server);
            peer.say_all([packet_frame(1, "hi"), packet_frame(2, "panic"), packet_frame(3, "hi")]).await;
            assert_eq!(peer.hear_out().await, ["packet 1: hi"]);
        });
    }
}

#[test]
fn a_stream_handler_panic_closes_only_its_connection() {
    for waits in [false, true] {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).without_listener();
            let mut peer = peer_of(&server);
            let connection = only_connection(&server).await;
            let mut other = peer_of(&server);
            if waits {
                peer.say(stream_frame(7, "wait")).await;
                settle().await;
            }
            peer.say(stream_frame(7, "panic")).await;
            script.gate.open(1);
            assert_eq!(peer.hear_out().await, ["stream 7 closed"]);
            drop(peer);
            let reason = connection.closed().await;
            assert!(is_panic(Some(reason.clone()), "as told"), "{reason:?}");
            other.say(packet_frame(2, "hi")).await;
            assert_eq!(other.hear().await, "packet 2: hi");
        });
    }
}

/// A router whose hook of this name panics on the first connection.
struct PanicIn(&'static str, std::sync::Once);

impl PanicIn {
    fn maybe(&self, hook: &str) {
        if self.0 == hook {
            let mut is_first = false;
            self.1.call_once(|| is_first = true);
            assert!(!is_first, "in {hook}");
        }
    }
}

impl Router for PanicIn {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        Outcome::Reply(packet)
    }

    fn stream(&self, _: Stream, _: Option<frisbee::RefusalReason>, _: &Connection) -> impl Future<Output = ()> + Send {
        self.maybe("stream");
        std::future::ready(())
    }

    fn packet_timeout(&self, _: &Packet, _: &Connection) -> Option<std::time::Duration> {
        self.maybe("packet_timeout");
        None
    }

    fn event(&self, _: &Connection, event: frisbee::Event<'_>) {
        match event {
            frisbee::Event::Opened => self.maybe("opened"),
            frisbee::Event::Closed(_) => self.maybe("closed"),
            _ => {}
        }
    }
}

#[test]
fn a_panic_in_packet_timeout_means_no_timeout() {
    in_virtual_time(async {
        let router = PanicIn("packet_timeout", std::sync::Once::new());
        let server = server(router).dispatch(frisbee::Dispatch::Spawned).without_listener();
        let mut peer = peer_of(&server);
        for id in [1, 2] {
            peer.say(packet_frame(id, "hi")).await;
            assert_eq!(peer.hear().await, format!("packet {id}: hi"));
        }
    });
}

#[test]
fn a_panic_in_the_opening_hook_closes_only_its_connection() {
    in_virtual_time(async {
        let server = server(PanicIn("opened", std::sync::Once::new())).without_listener();
        let mut peer = peer_of(&server);
        let connection = only_connection(&server).await;
        assert_eq!(peer.hear().await, "end");
        drop(peer);
        let reason = connection.closed().await;
        assert!(is_panic(Some(reason.clone()), "in opened"), "{reason:?}");
        let mut other = peer_of(&server);
        other.say(packet_frame(2, "hi")).await;
        assert_eq!(other.hear().await, "packet 2: hi");
    });
}

#[test]
fn a_panic_in_the_closing_hook_is_contained() {
    in_virtual_time(async {
        let server = server(PanicIn("closed", std::sync::Once::new())).without_listener();
        let mut other = peer_of(&server);
        settle().await;
        let connections = server.connections();
        let peer = peer_of(&server);
        drop(peer);
        settle().await;
        assert_eq!(server.connections(), connections);
        other.say(packet_frame(2, "hi")).await;
        assert_eq!(other.hear().await, "packet 2: hi");
    });
}

#[test]
fn an_early_stream_handler_panic_closes_its_connection() {
    in_virtual_time(async {
        let server = server(PanicIn("stream", std::sync::Once::new())).without_listener();
        let mut peer = peer_of(&server);
        let connection = only_connection(&server).await;
        peer.say(stream_frame(7, "data")).await;
        peer.hear_out().await;
        drop(peer);
        let reason = connection.closed().await;
        assert!(is_panic(Some(reason.clone()), "in stream"), "{reason:?}");
        let mut other = peer_of(&server);
        other.say(packet_frame(2, "hi")).await;
        assert_eq!(other.hear().await, "packet 2: hi");
    });
}

#[test]
fn outcomes_are_the_same_on_clients() {
    for (words, expected) in [
        ("reply", "None"),
        ("close", "Some(Local)"),
        ("bye", "Some(Local)"),
        ("panic", "Some(HandlerPanicked(\"as told\"))"),
        ("panic at once", "Some(HandlerPanicked(\"at once\"))"),
    ] {
        in_virtual_time(async {
            let (connection, mut peer) = peer_of_client(&client(Script::new())).await;
            peer.say(packet_frame(1, words)).await;
            settle().await;
            peer.fall_silent().await;
            settle().await;
            let reason = connection.close_reason();
            let expected = if expected == "None" { "Some(Peer)" } else { expected };
            assert_eq!(format!("{reason:?}"), expected, "{words:?}");
        });
    }
}

fn is_panic(reason: Option<CloseReason>, message: &str) -> bool {
    matches!(reason, Some(CloseReason::HandlerPanicked(text)) if &*text == message)
}
