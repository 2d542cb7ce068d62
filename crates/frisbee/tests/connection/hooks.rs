//! The hooks of a router: once before the first packet, once after the last, with the reason.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use frisbee::{Config, Connection, Server};
use support::{
    Peer, SECOND, assert_elapsed,
    frames::{frame, header, ping, stream_frame},
    in_virtual_time, settle,
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    time::Instant,
};

use crate::scripts::{
    Script, client, only_connection, packet, packet_frame, peer_of, peer_of_client, peer_with_buffer, quiet, server,
    zeros,
};

/// A server that has had one packet of its one peer.
struct Scene {
    script: Script,
    server: Server,
    peer: Peer,
    connection: Connection,
}

/// Checks what the hooks see when `act` brings a connection to its end.
fn check(reason: &str, config: Config, act: impl AsyncFn(&mut Scene)) {
    in_virtual_time(async {
        let (script, _taken) = Script::with_raws();
        let server = server(script.clone()).config(config).without_listener();
        let mut peer = peer_with_buffer(&server, 1024);
        let connection = only_connection(&server).await;
        peer.say(packet_frame(1, "hi")).await;
        assert_eq!(peer.hear().await, "packet 1: hi");
        let mut scene = Scene { script, server, peer, connection };
        act(&mut scene).await;
        let ended = format!("{:?}", scene.connection.closed().await);
        assert_eq!(ended, reason);
        assert_eq!(format!("{:?}", scene.connection.close_reason().unwrap()), reason);
        settle().await;
        let log = scene.script.log.take();
        assert_eq!(log[..2], ["opened", "packet 1"]);
        assert_eq!(log.last().unwrap(), &format!("closed: {reason}"));
        assert_eq!(log.iter().filter(|line| line.starts_with("opened") || line.starts_with("closed")).count(), 2);
    });
}

#[test]
fn hooks_report_a_close_by_handle() {
    check("Local", quiet(), async |scene| scene.connection.close());
}

#[test]
fn hooks_report_a_close_by_a_handler() {
    check("Local", quiet(), async |scene| scene.peer.say(packet_frame(2, "bye")).await);
}

#[test]
fn hooks_report_a_close_by_the_peer() {
    check("Peer", quiet(), async |scene| scene.peer.fall_silent().await);
}

#[test]
fn hooks_report_a_server_shutdown() {
    check("Shutdown", quiet(), async |scene| {
        let server = std::mem::replace(&mut scene.server, server(()).without_listener());
        server.shutdown(SECOND).await;
    });
}

#[test]
fn hooks_report_a_dropped_server() {
    check("Shutdown", quiet(), async |scene| scene.server = server(()).without_listener());
}

#[test]
fn hooks_report_a_takeover() {
    check("TakenOver", quiet(), async |scene| drop(scene.connection.takeover().await.unwrap()));
}

#[test]
fn hooks_report_a_takeover_in_a_handler() {
    check("TakenOver", quiet(), async |scene| scene.peer.say(packet_frame(2, "take")).await);
}

#[test]
fn hooks_report_a_silent_peer() {
    check("Silent { limit: 5s }", Config::default(), async |scene| {
        let since = Instant::now();
        scene.connection.closed().await;
        assert_elapsed(since, 5 * SECOND);
    });
}

#[test]
fn hooks_report_a_peer_with_stalled_reads() {
    check("WriteStalled { limit: 5s }", quiet(), async |scene| {
        scene.connection.send(packet(2, zeros(2000))).await.unwrap();
    });
}

#[test]
fn hooks_report_a_peer_lost_with_unsent_data() {
    check("Peer", quiet(), async |scene| {
        scene.connection.send(packet(2, zeros(2000))).await.unwrap();
        settle().await;
        scene.peer = peer_of(&server(()).without_listener());
    });
}

#[test]
fn hooks_report_a_socket_failure() {
    struct Failing;
    impl AsyncRead for Failing {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }
    }
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        server.attach(tokio::io::join(Failing, tokio::io::sink()));
        settle().await;
        assert_eq!(script.log.take(), ["opened", "closed: Io(Kind(ConnectionReset))"]);
    });
}

#[test]
fn hooks_report_a_wrong_magic_number() {
    check("Protocol(BadMagic { found: 18533 })", quiet(), async |scene| scene.peer.say("Hello").await);
}

#[test]
fn hooks_report_oversized_content() {
    let config = Config { content_len_max: 100, discard_len_max: 200, ..quiet() };
    check("Protocol(ContentTooLarge { announced: 201, limit: 100 })", config, async |scene| {
        scene.peer.say(header(2, 20, 201)).await;
    });
}

#[test]
fn hooks_report_a_heartbeat_with_content() {
    check("Protocol(HeartbeatWithContent { announced: 1 })", quiet(), async |scene| {
        scene.peer.say(frame(0, 0, b"x")).await;
    });
}

#[test]
fn hooks_report_a_control_flood() {
    let config = Config { control_burst: 5, ..quiet() };
    check("Protocol(ControlFlood { burst: 5 })", config, async |scene| scene.peer.say(ping().repeat(6)).await);
}

#[test]
fn packets_before_a_protocol_violation_are_handled() {
    check("Protocol(BadMagic { found: 18533 })", quiet(), async |scene| {
        scene.script.log.take();
        scene.peer.say([packet_frame(1, "hi"), b"Hello".to_vec()].concat()).await;
        assert_eq!(scene.peer.hear().await, "packet 1: hi");
        scene.script.log.add("opened");
        let first_two = scene.script.log.take();
        assert_eq!(first_two, ["packet 1", "opened"]);
        for line in first_two.iter().rev() {
            scene.script.log.add(line);
        }
    });
}

#[test]
fn hooks_report_a_handler_panic() {
    check(r#"HandlerPanicked("as told")"#, quiet(), async |scene| scene.peer.say(packet_frame(2, "panic")).await);
}

#[test]
fn hooks_report_a_stream_handler_panic() {
    check(r#"HandlerPanicked("as told")"#, quiet(), async |scene| scene.peer.say(stream_frame(2, "panic")).await);
}

#[test]
fn hooks_report_an_oversized_reply() {
    let config = Config { content_len_max: 100, ..quiet() };
    check("ReplyTooLarge { len: 101, limit: 100 }", config, async |scene| {
        scene.peer.say(packet_frame(2, "large")).await;
    });
}

#[test]
fn hooks_work_the_same_on_clients() {
    in_virtual_time(async {
        let script = Script::new();
        let (connection, mut peer) = peer_of_client(&client(script.clone())).await;
        peer.say(packet_frame(1, "hi")).await;
        assert_eq!(peer.hear().await, "packet 1: hi");
        connection.close();
        assert_eq!(peer.hear().await, "end");
        drop(peer);
        connection.closed().await;
        assert_eq!(script.log.take(), ["opened", "packet 1", "closed: Local"]);
    });
}

#[test]
fn hooks_can_send_first_when_the_header_is_configured() {
    struct Greeter;
    impl frisbee::Router for Greeter {
        async fn route(&self, packet: frisbee::Packet, _: &Connection) -> frisbee::Outcome {
            frisbee::Outcome::Reply(packet)
        }

        fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
            let frisbee::Event::Opened = event else { return };
            connection.try_send(packet(9, "welcome")).unwrap();
        }
    }
    in_virtual_time(async {
        let known = Config { header: Some(frisbee::HeaderFormat::Magic10), ..quiet() };
        let server_that_knows = server(Greeter).config(known).without_listener();
        assert_eq!(peer_of(&server_that_knows).hear().await, "packet 9: welcome");

        let server_that_detects = server(Greeter).without_listener();
        let mut peer = peer_of(&server_that_detects);
        assert!(peer.hears_nothing().await, "its peer has not shown which header it speaks");
        peer.say(packet_frame(1, "hi")).await;
        assert_eq!(peer.hear_times(2).await, ["packet 9: welcome", "packet 1: hi"]);
    });
}
