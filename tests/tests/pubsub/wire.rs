//! Peers with hand-written packets: plain clients and hostile ones.

use bytes::Bytes;
use frisbee::proto::{Frame, FrameKind};
use frisbee_pubsub::{BASE, BrokerLimits, Client, Policy, SubscribeError, Subscription, SubscriptionEnd};
use support::{
    Peer, SECOND,
    calls::quiet,
    frames::{frame, header},
    in_virtual_time, settle,
};
use tokio::time::timeout;

use crate::party::{Party, heard, numbers};

const HELLO: u16 = 0;
const WELCOME: u16 = 1;
const SUBSCRIBE: u16 = 2;
const SUBSCRIBED: u16 = 3;
const UNSUBSCRIBE: u16 = 4;
const ENDED: u16 = 5;
const PUBLISH: u16 = 6;
const MESSAGE: u16 = 8;
const CREDIT: u16 = 10;
const REFUSED: u16 = 12;

/// Describes a packet of the broker in words.
fn describe(frame: &Frame) -> String {
    let FrameKind::Application(operation) = frame.kind else { return format!("{:?}", frame.kind) };
    let content: &Bytes = &frame.content;
    let number = |at: usize| content.get(at..at + 4).map_or(0, |bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
    let text = |at: usize| String::from_utf8_lossy(content.get(at..).unwrap_or_default()).into_owned();
    let id = frame.id;
    match operation.number() - BASE {
        0 => "hello".into(),
        1 => format!("welcome {id}: version {} window {}", content[0], number(1)),
        2 => format!("subscribe {id}"),
        3 => format!("subscribed {id}: {}", number(0)),
        4 => format!("unsubscribe {}", number(0)),
        5 => format!("ended {}: {} missing {} {}", number(0), content[4], number(9), text(13)),
        7 => format!("published {id}: {}", number(0)),
        8 => {
            let subject = 6 + usize::from(content[5]);
            format!("message {} {}: {}", number(0), text(6).split_at(subject - 6).0, text(subject))
        }
        9 => format!("missing {}: {}", number(0), number(8)),
        11 => format!("allow {}", number(0)),
        12 => format!("refused {id}: {} code {}", content[0], content[1]),
        other => format!("{other}?"),
    }
}

async fn peer_of(party: &Party) -> Peer {
    let (theirs, peer) = Peer::pair(64 * 1024, describe);
    party.server.attach(theirs);
    peer
}

fn packet(kind: u16, id: u16, content: impl AsRef<[u8]>) -> Vec<u8> {
    frame(id, BASE + kind, content)
}

fn short(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

fn subscribe(id: u16, policy: u8, window: u32, pattern: &str) -> Vec<u8> {
    packet(SUBSCRIBE, id, [&[policy][..], &window.to_be_bytes(), &[0], &short(pattern), &[0]].concat())
}

fn publish(id: u16, flags: u8, subject: &str, payload: &str) -> Vec<u8> {
    packet(PUBLISH, id, [&[flags][..], &short(subject), payload.as_bytes()].concat())
}

fn credit(number: u32, bytes: u32) -> Vec<u8> {
    packet(CREDIT, 0, [number.to_be_bytes(), bytes.to_be_bytes()].concat())
}

#[test]
fn the_protocol_matches_the_documentation() {
    in_virtual_time(async {
        let party = Party::new().await;
        let mut peer = peer_of(&party).await;
        assert_eq!(peer.asks(packet(HELLO, 3, [1])).await, ["welcome 3: version 1 window 1048576"]);
        assert_eq!(peer.asks(publish(4, 3, "a.b", "kept")).await, ["published 4: 0"]);
        assert_eq!(peer.asks(subscribe(7, 0, 0, "a.*")).await, ["subscribed 7: 1", "message 1 a.b: kept"]);
        assert_eq!(peer.asks(publish(0, 0, "a.c", "one")).await, ["message 1 a.c: one"]);
        assert_eq!(peer.asks(publish(8, 1, "a.c", "two")).await, ["published 8: 1", "message 1 a.c: two"]);
        assert_eq!(peer.asks(packet(UNSUBSCRIBE, 0, 1_u32.to_be_bytes())).await, ["ended 1: 0 missing 0 "]);
        assert_eq!(peer.asks(publish(9, 1, "a.c", "three")).await, ["published 9: 0"]);
    });
}

#[test]
fn delivery_stops_when_the_credit_is_used_up() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { queue_len_max: 160, ..BrokerLimits::default() }).await;
        let mut peer = peer_of(&party).await;
        // A message costs 4 + 1 + 2 + 1 + 64.
        peer.asks(subscribe(1, 0, 73, "a")).await;
        for number in 0..6 {
            party.broker.publish("a", number.to_string()).await.unwrap();
        }
        assert_eq!(peer.heard().await, ["message 1 a: 0", "message 1 a: 1"], "the credit is below zero now");
        assert_eq!(peer.asks(credit(1, 71)).await, [""; 0], "it is zero");
        assert_eq!(peer.asks(credit(1, 1)).await, ["message 1 a: 2"]);
        assert_eq!(peer.asks(credit(1, 1000)).await, ["message 1 a: 3", "missing 1: 2"]);
        party.broker.publish("a", "6").await.unwrap();
        assert_eq!(peer.heard().await, ["message 1 a: 6"]);
        assert_eq!(peer.asks(credit(99, 5)).await, [""; 0], "a subscription that is not there");
        for _ in 0..3 {
            assert_eq!(peer.asks(credit(1, u32::MAX)).await, [""; 0]);
        }
        party.broker.publish("a", "7").await.unwrap();
        assert_eq!(peer.heard().await, ["message 1 a: 7"]);
    });
}

#[test]
fn unreadable_packets_are_rejected_without_disconnecting() {
    in_virtual_time(async {
        let party = Party::new().await;
        let mut peer = peer_of(&party).await;
        for content in [
            &b""[..],
            b"\0",
            b"\0\x05ab",
            b"\x04\x01a",
            b"\x04\x01a\x09b",
            b"\0\0",
            b"\0\x01*",
            b"\0\x02a.",
            b"\0\x01\xff",
        ] {
            assert_eq!(peer.asks(packet(PUBLISH, 5, content)).await, ["refused 5: 6 code 0"], "{content:?}");
        }
        for content in [
            &b""[..],
            b"\x05\0\0\0\0\0\x01a\0",
            b"\0\0\0\0\0\0\x02a",
            b"\0\0\0\0\0\0\x02a*\0",
            b"\0\0\0\0\0\0\x01a\x03a.b",
        ] {
            assert_eq!(peer.asks(packet(SUBSCRIBE, 6, content)).await, ["refused 6: 2 code 0"], "{content:?}");
        }
        assert_eq!(peer.asks(packet(UNSUBSCRIBE, 7, [0; 4])).await, ["refused 7: 4 code 0"]);
        assert_eq!(peer.asks(packet(UNSUBSCRIBE, 7, [0; 3])).await, ["refused 7: 4 code 0"]);
        assert_eq!(peer.asks(packet(CREDIT, 8, [0; 7])).await, ["refused 8: 10 code 0"]);
        assert_eq!(peer.asks(packet(HELLO, 9, [])).await, ["refused 9: 0 code 0"]);
        assert_eq!(peer.asks(subscribe(1, 0, 0, "a")).await, ["subscribed 1: 1"]);
        assert_eq!(peer.asks(subscribe(2, 0, 0, "a")).await, ["refused 2: 2 code 0"], "the slot is taken");
        assert_eq!(peer.asks(publish(0, 0xf8, "a", "x")).await, ["message 1 a: x"], "unknown flags are ignored");
        for kind in [1, 3, 5, 7, 8, 9, 11, 12, 13] {
            assert_eq!(peer.asks(packet(kind, 1, [0; 40])).await, [""; 0], "{kind} is not for a broker");
        }
        let too_large = 6 << 20;
        peer.say(header(10, BASE + PUBLISH, too_large)).await;
        assert_eq!(peer.asks(vec![0; 6 << 20]).await, ["refused 10: 6 code 2"]);
    });
}

#[test]
fn invalid_packets_with_unread_answers_end_the_connection() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { answers_max: 8, ..BrokerLimits::default() }).await;
        let (theirs, mut peer) = Peer::pair(1024, describe);
        party.server.attach(theirs);
        peer.say(packet(HELLO, 1, [1])).await;
        // The other side closes the connection at some point. Further writes fail then.
        let nonsense = packet(CREDIT, 2, [0; 3]).repeat(100);
        let mut sent = 0;
        while sent < 2000 && tokio::io::AsyncWriteExt::write_all(&mut peer.io, &nonsense).await.is_ok() {
            sent += 1;
            settle().await;
            if party.server.connections().is_empty() {
                break;
            }
        }
        settle().await;
        assert!(sent < 2000 && party.server.connections().is_empty(), "after {sent} times 100");
    });
}

#[test]
fn plain_publishers_wait_for_a_blocking_subscriber() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { publish_window: 50_000, ..BrokerLimits::default() }).await;
        let subscriber = party.client().await;
        let mut subscription = subscriber.subscribe("a").policy(Policy::Block).window(10_000).await.unwrap();
        let (theirs, mut peer) = Peer::pair(1 << 20, describe);
        party.server.attach(theirs);
        let mut publications = Vec::new();
        for number in 0..300 {
            publications.extend(publish(number, u8::from(number % 3 == 0), "a", &format!("{number:01000}")));
        }
        peer.say(publications).await;
        let acknowledged = peer.heard().await.len();
        assert!((20..40).contains(&acknowledged), "{acknowledged} of 100 are dealt with");
        let waiting = party.broker.metrics().queued_len;
        assert!((40_000..80_000).contains(&waiting), "{waiting} bytes wait at the broker");
        for number in 0..300 {
            let message = subscription.next().await.unwrap().message().expect("nothing is missing");
            assert_eq!(String::from_utf8_lossy(&message.payload).parse(), Ok(number));
        }
        let acknowledged = acknowledged + peer.heard().await.len();
        assert_eq!(acknowledged, 100);
    });
}

#[test]
fn a_stalled_connection_holds_only_its_queue() {
    in_virtual_time(async {
        let party = Party::with(BrokerLimits { queue_len_max: 10_000, ..BrokerLimits::default() }).await;
        let config = frisbee::Config { outbox_len_max: 4_000, ..support::calls::quiet() };
        let server = frisbee::Server::builder(party.broker.router()).config(config).without_listener();
        let (theirs, mut peer) = Peer::pair(1_000, describe);
        server.attach(theirs);
        peer.say(subscribe(1, 0, 0, "a")).await;
        assert_eq!(peer.hear().await, "subscribed 1: 1");
        let reader = party.client().await;
        let mut subscription = reader.subscribe("a").await.unwrap();
        for number in 0..2000 {
            party.broker.publish("a", number.to_string()).await.unwrap();
        }
        assert_eq!(heard(&mut subscription).await, numbers(0, 2000), "the other is not held up");
        let held = party.broker.metrics().queued_len + server.connections()[0].metrics().outbox_len;
        assert!((10_000..16_000).contains(&held), "{held} bytes");
        let (mut next, mut missing) = (0, 0);
        for word in peer.heard().await {
            if let Some(count) = word.strip_prefix("missing 1: ") {
                missing += count.parse::<u32>().unwrap();
                continue;
            }
            assert_eq!(word, format!("message 1 a: {}", next + missing));
            next += 1;
        }
        assert_eq!(next + missing, 2000, "{next} came");
    });
}

#[test]
fn a_disconnected_subscriber_is_removed_completely() {
    in_virtual_time(async {
        let party = Party::new().await;
        let mut peer = peer_of(&party).await;
        peer.asks(subscribe(1, 1, 10, "a")).await;
        for _ in 0..100 {
            party.broker.publish("a", "x".repeat(1000)).await.unwrap();
        }
        assert!(party.broker.metrics().queued_len > 90_000);
        drop(peer);
        tokio::time::sleep(SECOND).await;
        let metrics = party.broker.metrics();
        assert_eq!((metrics.queued_len, metrics.patterns), (0, 0));
        assert_eq!(party.broker.publish("a", "").await.unwrap(), 0);
    });
}

/// Returns a client, and the broker at the other end of its connection.
async fn client_of_peer() -> (Client, Peer) {
    let (theirs, mut peer) = Peer::pair(64 * 1024, describe);
    let welcoming = async {
        assert_eq!(peer.hear().await, "hello");
        peer.say(packet(WELCOME, 0, [1, 0, 1, 0, 0])).await;
    };
    let settings = frisbee::Client::new(()).config(quiet());
    let (client, ()) = tokio::join!(Client::builder().frisbee(settings).attach(theirs), welcoming);
    (client.unwrap(), peer)
}

fn subscribed(id: u16, number: u32) -> Vec<u8> {
    packet(SUBSCRIBED, id, number.to_be_bytes())
}

/// Subscribes, and answers with these packets.
async fn subscribe_to_peer(client: &Client, peer: &mut Peer, answer: Vec<u8>) -> Result<Subscription, SubscribeError> {
    let answering = async {
        assert!(peer.hear().await.starts_with("subscribe "));
        peer.say(answer).await;
    };
    tokio::join!(client.subscribe("a").into_future(), answering).0
}

#[test]
fn a_number_given_to_two_subscriptions_ends_the_connection() {
    in_virtual_time(async {
        for is_abandoned in [false, true] {
            let (client, mut peer) = client_of_peer().await;
            let mut first = subscribe_to_peer(&client, &mut peer, subscribed(1, 5)).await.unwrap();
            if is_abandoned {
                assert!(timeout(SECOND, client.subscribe("a").into_future()).await.is_err());
                assert_eq!(peer.asks(subscribed(2, 5)).await, ["subscribe 2", "end"]);
            } else {
                let second = subscribe_to_peer(&client, &mut peer, subscribed(2, 5)).await;
                assert!(matches!(second, Err(SubscribeError::Lost)), "{second:?}");
            }
            assert!(first.next().await.is_none() && matches!(first.end(), Some(SubscriptionEnd::Lost)));
        }
    });
}

#[test]
fn a_second_answer_to_a_subscription_ends_the_connection() {
    in_virtual_time(async {
        let refused = packet(REFUSED, 1, [&[2, 2][..], b"no room"].concat());
        for answer in [refused, subscribed(1, 6)] {
            let (client, mut peer) = client_of_peer().await;
            let mut subscription = subscribe_to_peer(&client, &mut peer, subscribed(1, 5)).await.unwrap();
            assert_eq!(peer.asks(answer).await, ["end"]);
            assert!(subscription.next().await.is_none() && matches!(subscription.end(), Some(SubscriptionEnd::Lost)));
        }
    });
}

#[test]
fn the_number_of_an_ended_subscription_is_free() {
    in_virtual_time(async {
        let ended = packet(ENDED, 0, [&5_u32.to_be_bytes()[..], &[0; 9]].concat());
        for is_dropped in [false, true] {
            let (client, mut peer) = client_of_peer().await;
            let mut first = subscribe_to_peer(&client, &mut peer, subscribed(1, 5)).await.unwrap();
            if is_dropped {
                drop(first);
                assert_eq!(peer.asks(&ended).await, ["unsubscribe 5"]);
            } else {
                peer.say(&ended).await;
                assert_eq!(heard(&mut first).await, "end: this side unsubscribed");
            }
            let mut second = subscribe_to_peer(&client, &mut peer, subscribed(2, 5)).await.unwrap();
            peer.say(packet(MESSAGE, 0, [&5_u32.to_be_bytes()[..], &[0], &short("a"), b"1"].concat())).await;
            assert_eq!(heard(&mut second).await, "1");
        }
    });
}
