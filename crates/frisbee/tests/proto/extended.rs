//! Two sides that may be extended: how they find out, and what each says of itself.

use std::time::Duration;

use bytes::Bytes;
use frisbee::{
    CloseReason, Config, GoAway, Operation, Packet, PacketName, PeerProtocol, SendError,
    proto::{Features, InputEvent, OpenError, Role, StreamSendError},
};

use crate::pair::{FORMATS, OPERATION, Pair, Side, frame, packet, packet_bytes, ping, quiet, zeros};

const SECOND: Duration = Duration::from_secs(1);

fn extended() -> Config {
    Config { extended: true, ..quiet() }
}

fn pong() -> Vec<u8> {
    frame(0, 1, b"")
}

/// A HELLO without fields.
fn hello() -> Vec<u8> {
    frame(0, 3, &[1, 1])
}

fn name(id: u16) -> PacketName {
    PacketName { id, operation: OPERATION }
}

/// Two sides that know each other.
fn known(client: Config, server: Config) -> Pair {
    let mut pair = Pair::with(client, server);
    pair.exchange();
    assert_eq!(
        (pair.client.events(), pair.server.events()),
        (vec![InputEvent::Recognized], vec![InputEvent::Recognized])
    );
    pair
}

#[test]
fn clients_send_hello_and_ping_before_queued_packets() {
    let mut client = Side::client(extended());
    client.send(packet(1, "early")).unwrap();
    let said = client.say();
    assert!(said[0].starts_with("reserved 0"), "{said:?}");
    assert_eq!(said[1..], ["PING", "packet 1: early"]);
    assert_eq!(client.say(), [""; 0]);
}

#[test]
fn extended_sides_recognize_each_other_in_one_round_trip() {
    for format in FORMATS {
        for piece in [1, 3, usize::MAX] {
            let client = Config { header: Some(format), content_len_max: 1000, ..extended() };
            let mut pair = Pair::with(client, Config { streams_max: 7, ..extended() });
            pair.piece = piece;
            pair.client.send(packet(1, "question")).unwrap();
            pair.exchange();
            assert_eq!(pair.server.events(), [InputEvent::Recognized, InputEvent::Packet(packet(1, "question"))]);
            assert_eq!(pair.client.events(), [InputEvent::Recognized]);
            let (of_client, of_server) = (pair.server.peer().clone(), pair.client.peer().clone());
            assert_eq!(of_client.hello().unwrap().content_len_max, 1000);
            assert_eq!(of_server.hello().unwrap().streams_max, Some(7));
            assert!(pair.client.uses(Features::CANCEL) && pair.server.uses(Features::GOAWAY));
        }
    }
}

#[test]
fn hello_is_answered_before_everything_else() {
    let mut server = Side::server(extended());
    server.send(packet(1, "news")).unwrap();
    server.hear(&[hello(), ping()].concat());
    let said = server.say();
    assert!(said[0].starts_with("reserved 0"), "{said:?}");
    assert_eq!(said[1..], ["PONG", "packet 1: news"]);
}

#[test]
fn application_parts_of_a_hello_arrive() {
    let mut pair = Pair::with(extended(), extended());
    pair.client.add_part("chat", Bytes::from_static(b"rooms"));
    pair.server.add_part("frpc", Bytes::from(vec![7; 100_000]));
    pair.exchange();
    let (of_client, of_server) = (pair.server.peer().clone(), pair.client.peer().clone());
    assert_eq!(of_client.hello().unwrap().part("chat").unwrap(), "rooms");
    assert_eq!(of_server.hello().unwrap().part("frpc").unwrap().len(), 100_000);
    assert_eq!(of_server.hello().unwrap().part("chat"), None);
}

#[test]
fn servers_stay_plain_unless_hello_comes_first() {
    for first in [ping(), pong(), packet_bytes(1, "hi"), frame(0, 3, b""), frame(0, 3, &[200]), frame(0, 9, b"x")] {
        let mut server = Side::server(extended());
        server.hear(&[first.clone(), hello(), frame(5, 4, b"extended")].concat());
        assert_eq!(*server.peer(), PeerProtocol::Plain);
        assert!(server.say().iter().all(|said| said == "PONG"), "{first:?}");
        assert!(!server.events().contains(&InputEvent::Recognized));
        assert_eq!(server.state(), "open");
    }
}

#[test]
fn pongs_carry_the_load_to_peers_with_the_feature() {
    let pinging = || Config { ping_interval: Some(SECOND), ..extended() };
    let mut pair = known(pinging(), extended());
    assert_eq!(pair.client.peer_load(), None, "its first PONG came before the peer was asked");
    for (load, expected) in [(0, 0), (7, 7), (65_534, 65_534), (1_000_000, 65_534)] {
        pair.server.set_load(load);
        pair.client.advance(SECOND);
        pair.exchange();
        assert_eq!(pair.client.peer_load(), Some(expected));
    }
    assert_eq!(pair.server.peer_load(), None, "it has sent no PING");

    let mut plain = Side::server(extended());
    plain.set_load(7);
    plain.hear(&ping());
    plain.write();
    assert_eq!(plain.wire, pong(), "a plain peer gets the PONG of frisbee-go");
    let mut client = Side::client(extended());
    client.write();
    client.hear(&[&hello()[..], &frame(8, 1, b"")].concat());
    assert_eq!(client.peer_load(), None, "without the feature, the id of a PONG means nothing");
}

#[test]
fn a_pong_without_a_hello_means_a_plain_peer() {
    let mut client = Side::client(extended());
    client.say();
    client.hear(&[ping(), packet_bytes(1, "hi"), frame(0, 5, b"x")].concat());
    assert_eq!(*client.peer(), PeerProtocol::Unknown);
    client.hear(&pong());
    assert_eq!(*client.peer(), PeerProtocol::Plain);
    client.hear(&hello());
    assert_eq!(*client.peer(), PeerProtocol::Plain, "it is too late for that");
    assert_eq!(client.events(), [InputEvent::Packet(packet(1, "hi")), InputEvent::Recognized]);
    assert_eq!(client.say(), ["PONG"]);
}

#[test]
fn without_the_extension_every_peer_is_plain() {
    for (client, server) in [(quiet(), extended()), (extended(), quiet()), (quiet(), quiet())] {
        let mut pair = Pair::with(client.clone(), server);
        pair.client.send(packet(1, "question")).unwrap();
        pair.exchange();
        assert_eq!(pair.server.events(), [InputEvent::Packet(packet(1, "question"))]);
        let of_client = if client.extended { vec![InputEvent::Recognized] } else { vec![] };
        assert_eq!(pair.client.events(), of_client);
        assert_eq!([pair.client.peer(), pair.server.peer()], [&PeerProtocol::Plain; 2]);
    }
}

#[test]
fn second_hellos_are_dropped_and_invalid_ones_are_fatal() {
    let mut server = Side::server(extended());
    server.hear(&[hello(), hello()].concat());
    assert_eq!((server.events(), server.counters().dropped), (vec![InputEvent::Recognized], 1));
    server.say();

    for role in [Role::Server, Role::Client] {
        let mut side = Side::new(role, extended());
        side.hear(&frame(0, 3, &[1, 1, 2, 0, 0, 0, 9, 1]));
        assert!(side.state().contains("a HELLO frame announces a field"), "{}", side.state());
    }
}

#[test]
fn a_sender_knows_the_limits_of_its_peer() {
    let server = Config { content_len_max: 100, streams_max: 1, ..extended() };
    let mut pair = known(extended(), server);
    assert_eq!(pair.client.content_len_max(), 100);
    assert_eq!(pair.client.send(packet(1, zeros(101))), Err(SendError::TooLargeForPeer { len: 101, limit: 100 }));
    assert_eq!(pair.client.send(packet(1, zeros(100))), Ok(()));
    let stream = pair.client.open_stream().unwrap();
    let refused = StreamSendError::TooLargeForPeer { len: 101, limit: 100 };
    assert_eq!(pair.client.send_on(stream, zeros(101).into()), Err(refused));
    assert_eq!(pair.client.open_stream(), Err(OpenError::TooManyForPeer { limit: 1 }));
    assert_eq!(pair.client.open_stream_with_id(9), Err(OpenError::TooManyForPeer { limit: 1 }));
    pair.client.close_stream(stream);
    assert!(pair.client.open_stream().is_ok(), "an ended stream does not count");
    assert!(pair.server.open_stream().is_ok(), "the other side has said another number");
}

#[test]
fn extended_packets_are_sent_to_extended_peers_only() {
    let extended_packet = Packet::new(3, Operation::EXTENDED, "for those who know");
    let mut pair = Pair::with(extended(), extended());
    assert_eq!(pair.client.send(extended_packet.clone()), Err(SendError::PlainPeer), "it is not known yet");
    pair.exchange();
    pair.client.send(extended_packet.clone()).unwrap();
    pair.exchange();
    assert_eq!(pair.server.events(), [InputEvent::Recognized, InputEvent::Packet(extended_packet.clone())]);

    let mut plain = Pair::with(extended(), quiet());
    plain.exchange();
    assert_eq!(plain.client.send(extended_packet), Err(SendError::PlainPeer));
}

#[test]
fn cancellations_follow_their_packet_and_are_confirmed() {
    let mut pair = known(extended(), extended());
    pair.client.send(packet(1, "question")).unwrap();
    let now = pair.client.now;
    assert!(pair.client.cancel(now, name(1)));
    pair.exchange();
    assert_eq!(pair.server.events(), [InputEvent::Packet(packet(1, "question")), InputEvent::Cancel(name(1))]);
    pair.server.cancelled(name(1));
    pair.exchange();
    assert_eq!(pair.client.events(), [InputEvent::Cancelled(name(1))]);
}

#[test]
fn senders_use_half_of_the_cancellation_allowance() {
    let mut pair = known(extended(), Config { cancel_burst: 10, ..extended() });
    let now = pair.client.now;
    let taken = (0..100).filter(|&id| pair.client.cancel(now, name(id))).count();
    assert_eq!(taken, 5);
    pair.exchange();
    assert_eq!((pair.server.events().len(), pair.server.state()), (5, "open".to_owned()));
    pair.advance(crate::pair::SECOND * 10);
    let now = pair.client.now;
    assert!(pair.client.cancel(now, name(7)), "time makes room");
    let mut plain = Pair::with(extended(), quiet());
    plain.exchange();
    let now = plain.client.now;
    assert!(!plain.client.cancel(now, name(1)), "a plain peer is told nothing");
    assert_eq!(plain.client.say(), [""; 0]);
}

#[test]
fn every_answer_restores_one_cancellation() {
    let mut pair = known(extended(), Config { cancel_burst: 10, ..extended() });
    let now = pair.client.now;
    assert_eq!((0..100).filter(|&id| pair.client.cancel(now, name(id))).count(), 5);
    pair.exchange();
    for answers in 1..=8 {
        for id in 0..answers {
            pair.server.send(packet(id, "answer")).unwrap();
        }
        pair.exchange();
        let withdrawn = (0..100).filter(|&id| pair.client.cancel(now, name(id))).count();
        assert_eq!(withdrawn, usize::from(answers).min(5), "no more at once than before");
        pair.exchange();
        assert_eq!(pair.server.state(), "open");
    }
    pair.server.send(packet(1, "")).unwrap();
    pair.exchange();
    assert!(!pair.client.cancel(now, name(1)), "a packet without content is worth nothing");
}

#[test]
fn excess_cancellations_close_the_connection() {
    let mut server = Side::server(Config { cancel_burst: 10, ..extended() });
    server.hear(&hello());
    for _ in 0..10 {
        server.hear(&frame(1, 3, &[4, 0, 20]));
    }
    assert_eq!(server.state(), "open");
    server.hear(&frame(1, 3, &[4, 0, 20]));
    assert_eq!(
        server.state(),
        "closed: the peer broke the protocol: more packets withdrawn than the allowance of 10 (cancel_burst)"
    );
}

#[test]
fn going_away_is_sent_once_and_the_connection_continues() {
    let why = GoAway { code: GoAway::SHUTDOWN, text: "a new version".into() };
    let mut pair = known(extended(), extended());
    assert!(pair.server.go_away(why.clone()) && pair.server.go_away(why.clone()));
    pair.exchange();
    assert_eq!(pair.client.events(), [InputEvent::GoingAway(why.clone())]);
    pair.client.send(packet(1, "late")).unwrap();
    pair.exchange();
    assert_eq!(pair.server.events(), [InputEvent::Packet(packet(1, "late"))]);

    let mut plain = Pair::with(quiet(), extended());
    plain.client.send(packet(1, "hi")).unwrap();
    plain.exchange();
    assert!(!plain.server.go_away(why));
    assert_eq!(plain.server.say(), [""; 0]);
}

#[test]
fn useless_control_frames_consume_the_allowance() {
    for content in [&[][..], &[200, 1], &[1, 1], &[3, 1], &[5, 0, 20]] {
        let mut server = Side::server(Config { control_burst: 10, ..extended() });
        server.hear(&hello());
        for _ in 0..11 {
            server.hear(&frame(0, 3, content));
        }
        assert!(server.state().contains("control_burst"), "{content:?}: {}", server.state());
    }
}

/// A server whose client says that it leaves by itself.
fn with_leaving_client() -> Pair {
    let mut pair = Pair::with(extended(), extended());
    pair.client.promise_to_leave();
    pair
}

fn shutting_down() -> GoAway {
    GoAway { code: GoAway::SHUTDOWN, text: "for tests".into() }
}

#[test]
fn a_retiring_side_serves_leaving_peers_until_it_drains() {
    let mut pair = with_leaving_client();
    pair.exchange();
    pair.server.events();
    pair.client.events();
    assert!(pair.server.peer().hello().unwrap().features.contains(Features::LEAVES));
    assert!(!pair.client.peer().hello().unwrap().features.contains(Features::LEAVES));
    pair.server.retire(shutting_down());
    pair.client.send(packet(1, "crossing")).unwrap();
    pair.exchange();
    assert_eq!(pair.client.events(), [InputEvent::GoingAway(shutting_down())]);
    assert_eq!(pair.server.events(), [InputEvent::Packet(packet(1, "crossing"))]);
    assert_eq!(pair.server.state(), "open");
    assert!(pair.server.closes_when_idle().is_none());
    pair.server.drain(CloseReason::TooOld);
    assert_eq!(pair.server.state(), "draining");
    assert!(matches!(pair.server.closes_when_idle(), Some(CloseReason::TooOld)));
}

#[test]
fn a_retiring_side_drains_immediately_with_other_peers() {
    let mut pair = known(extended(), extended());
    pair.server.retire(shutting_down());
    pair.exchange();
    assert_eq!(pair.client.events(), [InputEvent::GoingAway(shutting_down())]);
    assert_eq!(pair.server.state(), "draining");

    let mut plain = Pair::with(quiet(), extended());
    plain.client.send(packet(1, "hi")).unwrap();
    plain.exchange();
    plain.server.retire(shutting_down());
    assert_eq!(plain.server.state(), "draining");
    assert_eq!(plain.server.say(), [""; 0]);
}

#[test]
fn a_retiring_side_informs_peers_once_recognized() {
    let mut leaving = with_leaving_client();
    leaving.server.retire(shutting_down());
    assert!(leaving.server.closes_when_idle().is_some(), "nothing is known of it yet");
    leaving.client.send(packet(1, "early")).unwrap();
    leaving.exchange();
    assert_eq!(leaving.client.events(), [InputEvent::Recognized, InputEvent::GoingAway(shutting_down())]);
    assert_eq!(leaving.server.events(), [InputEvent::Recognized, InputEvent::Packet(packet(1, "early"))]);
    assert!(leaving.server.closes_when_idle().is_none());

    for (client, peer) in [(extended(), "extended"), (quiet(), "plain")] {
        let mut pair = Pair::with(client, extended());
        pair.server.retire(shutting_down());
        assert_eq!(pair.server.state(), "open", "{peer}");
        pair.client.send(packet(1, "early")).unwrap();
        pair.exchange();
        assert_eq!(pair.server.state(), "draining", "{peer}");
    }

    let mut mute = Side::server(extended());
    mute.retire(shutting_down());
    mute.drain(CloseReason::Shutdown);
    mute.hear(&hello());
    assert_eq!(mute.state(), "draining", "its time was up");
}
