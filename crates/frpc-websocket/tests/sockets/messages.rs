//! Messages between two correct peers.

use std::time::Duration;

use frpc_websocket::{CloseFrame, GOING_AWAY, MessageKind, WebSocketError, WebSocketMessage};
use support::in_virtual_time;
use tokio::{io::AsyncReadExt, join, time::Instant};

use crate::peer::{frame, pair, serve};

fn text(content: &str) -> WebSocketMessage {
    WebSocketMessage { kind: MessageKind::Text, data: content.to_owned().into() }
}

#[test]
fn messages_of_all_lengths_work_in_both_directions() {
    in_virtual_time(async {
        let (mut server, mut client) = pair();
        for len in [0, 1, 125, 126, 65_535, 65_536, 300_000] {
            let content = vec![b'x'; len];
            let (sent, message) = join!(client.send(MessageKind::Binary, &content), server.next());
            sent.unwrap();
            assert_eq!(
                message.unwrap().unwrap(),
                WebSocketMessage { kind: MessageKind::Binary, data: content.clone().into() }
            );
            let (sent, message) = join!(server.send(MessageKind::Text, &content), client.next());
            sent.unwrap();
            assert_eq!(message.unwrap().unwrap().data.len(), len);
        }
    });
}

#[test]
fn fragments_form_one_message_with_pings_between_them() {
    in_virtual_time(async {
        let (mut server, mut peer) = serve();
        let parts =
            [frame(0x01, "grö".as_bytes()), frame(0x89, b"now"), frame(0x00, b""), frame(0x80, "ße".as_bytes())];
        peer.say(&parts.concat()).await;
        assert_eq!(server.next().await.unwrap().unwrap(), text("größe"));
        server.flush().await.unwrap();
        assert_eq!(peer.hear().await, (0x8a, b"now".to_vec()));
    });
}

#[test]
fn a_message_is_read_for_any_split() {
    in_virtual_time(async {
        let bytes = [frame(0x01, "h€".as_bytes()), frame(0x80, &[b'i'; 130])].concat();
        let whole = format!("h€{}", "i".repeat(130));
        for at in 0..bytes.len() {
            let (mut server, mut peer) = serve();
            peer.say(&bytes[..at]).await;
            let next = async {
                support::settle().await;
                peer.say(&bytes[at..]).await;
            };
            let (message, ()) = join!(server.next(), next);
            assert_eq!(message.unwrap().unwrap(), text(&whole), "split at {at}");
        }
    });
}

#[test]
fn replies_to_messages_of_one_read_share_a_write() {
    in_virtual_time(async {
        let (mut server, mut peer) = serve();
        peer.say(&[frame(0x81, b"a"), frame(0x81, b"b"), frame(0x81, b"c")].concat()).await;
        let echoing = async {
            while let Some(message) = server.next().await {
                server.queue(MessageKind::Text, &message.unwrap().data);
            }
        };
        let reading = async {
            let mut bytes = [0; 64];
            let len = peer.0.read(&mut bytes).await.unwrap();
            assert_eq!(&bytes[..len], b"\x81\x01a\x81\x01b\x81\x01c");
        };
        tokio::select! {
            () = echoing => unreachable!("the peer is there"),
            () = reading => {}
        }
    });
}

#[test]
fn a_close_is_answered_and_ends_the_connection() {
    in_virtual_time(async {
        let (mut server, mut client) = pair();
        client.queue(MessageKind::Text, b"last");
        client.close(CloseFrame::new(GOING_AWAY, "bye"));
        assert!(!client.is_open());
        client.queue(MessageKind::Text, b"too late");
        let reading = async {
            assert_eq!(server.next().await.unwrap().unwrap(), text("last"));
            assert!(server.next().await.is_none());
            assert_eq!(server.peer_close(), Some(&CloseFrame::new(GOING_AWAY, "bye")));
            assert!(server.next().await.is_none());
            drop(server);
        };
        let ((), end) = join!(reading, client.next());
        assert!(end.is_none());
        assert_eq!(client.peer_close().unwrap().code, GOING_AWAY);
    });
}

#[test]
fn a_close_without_a_code_is_answered_without_one() {
    in_virtual_time(async {
        let (mut server, mut peer) = serve();
        peer.say(&frame(0x88, b"")).await;
        assert!(server.next().await.is_none());
        assert_eq!(peer.hear().await, (0x88, Vec::new()));
    });
}

#[test]
fn closing_waits_at_most_5_seconds_for_the_peer() {
    in_virtual_time(async {
        let (mut server, _peer) = serve();
        let begin = Instant::now();
        server.close(CloseFrame::new(GOING_AWAY, ""));
        assert!(matches!(server.next().await, Some(Err(WebSocketError::Io(_)))));
        assert_eq!(begin.elapsed(), Duration::from_secs(5));
        assert!(server.next().await.is_none());
    });
}

#[test]
fn a_connection_ending_without_a_close_is_lost() {
    in_virtual_time(async {
        let (mut server, peer) = serve();
        drop(peer);
        let lost = server.next().await.unwrap().unwrap_err();
        assert_eq!(lost.to_string(), "the connection was lost: the peer ended the connection without a close frame");
        assert!(server.next().await.is_none());
    });
}

#[test]
fn a_silent_peer_is_pinged_and_disconnected() {
    in_virtual_time(async {
        let (server, mut peer) = serve();
        let mut server = server.keepalive(Duration::from_secs(10), Duration::from_secs(3));
        let begin = Instant::now();
        let answering = async {
            assert_eq!(peer.hear().await, (0x89, Vec::new()));
            assert_eq!(begin.elapsed(), Duration::from_secs(10));
            peer.say(&frame(0x8a, b"")).await;
            assert_eq!(peer.hear().await, (0x89, Vec::new()));
            begin.elapsed()
        };
        let (lost, asked) = join!(server.next(), answering);
        assert!(matches!(lost, Some(Err(WebSocketError::Io(_)))));
        // The pong arrived 3 s after the ping, and nothing in the 10 s after that.
        assert_eq!(asked, Duration::from_secs(23));
        assert_eq!(begin.elapsed(), Duration::from_secs(26));
    });
}
