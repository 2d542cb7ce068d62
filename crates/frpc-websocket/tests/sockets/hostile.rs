//! Peers that violate the protocol or a limit.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use frpc_websocket::{
    CloseFrame, INVALID_TEXT, MessageKind, NORMAL, PROTOCOL_ERROR, Role, TOO_LONG, WebSocket, WebSocketError,
};
use support::{SECOND, in_virtual_time, settle};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, duplex},
    join,
    task::consume_budget,
    time::{Instant, advance, sleep, timeout},
};

use crate::peer::{frame, serve};

#[test]
fn protocol_violations_are_answered_with_a_close_code() {
    in_virtual_time(async {
        let mut frames: Vec<(Vec<u8>, u16)> = vec![
            (b"\x81\x02hi".to_vec(), PROTOCOL_ERROR),
            (frame(0x80, b"no beginning"), PROTOCOL_ERROR),
            ([frame(0x01, b"one"), frame(0x81, b"another")].concat(), PROTOCOL_ERROR),
            (frame(0x09, b"a ping in fragments"), PROTOCOL_ERROR),
            (frame(0x89, &[0; 126]), PROTOCOL_ERROR),
            (frame(0x83, b"an unknown kind"), PROTOCOL_ERROR),
            (frame(0xc1, b"compressed"), PROTOCOL_ERROR),
            (frame(0x88, b"\x03"), PROTOCOL_ERROR),
            (frame(0x88, b"\x03\xed"), PROTOCOL_ERROR),
            (frame(0x88, b"\x03\xe8\xff"), INVALID_TEXT),
            (frame(0x81, b"\xff"), INVALID_TEXT),
            ([frame(0x01, b"\xe2\x82"), frame(0x80, b"")].concat(), INVALID_TEXT),
            // The header alone is enough: a length in a longer form than needed, or above the maximum.
            (b"\x82\xfe\0\x7d".to_vec(), PROTOCOL_ERROR),
            (b"\x82\xff\0\0\0\0\0\0\xff\xff".to_vec(), PROTOCOL_ERROR),
            (b"\x82\xff\x80\0\0\0\0\x01\0\0".to_vec(), PROTOCOL_ERROR),
        ];
        for reserved in [0, 999, 1004, 1005, 1006, 1015, 1016, 2000, 2999, 5000, 65535_u16] {
            frames.push((frame(0x88, &reserved.to_be_bytes()), PROTOCOL_ERROR));
        }
        for (bytes, code) in frames {
            let (mut server, mut peer) = serve();
            peer.say(&bytes).await;
            let told = async {
                let told = peer.hear_close().await;
                drop(peer);
                told
            };
            let (refused, told) = join!(server.next(), told);
            let Some(Err(WebSocketError::Refused(close))) = refused else { panic!("{refused:?}") };
            assert_eq!((close.code, told), (code, code), "{}", bytes.escape_ascii());
            assert!(server.next().await.is_none());
        }
    });
}

#[test]
fn invalid_utf8_is_rejected_before_the_end_of_the_message() {
    in_virtual_time(async {
        for wrong in [&b"ok\xc0"[..], b"a\x80", b"\xf4\x90", b"\xed\xa0"] {
            let (mut server, mut peer) = serve();
            let mut begun = frame(0x01, &[wrong, b"...."].concat());
            begun.truncate(begun.len() - 4);
            peer.say(&begun).await;
            let (refused, code) = join!(server.next(), async {
                let code = peer.hear_close().await;
                drop(peer);
                code
            });
            assert!(refused.unwrap().is_err());
            assert_eq!(code, INVALID_TEXT, "{}", wrong.escape_ascii());
        }
    });
}

#[test]
fn an_oversized_message_is_rejected_by_its_header() {
    in_virtual_time(async {
        let announced =
            [b"\x82\xff\0\0\x01\0\0\0\0\0\0\0\0\0".to_vec(), [frame(0x02, &[0; 6]), frame(0x80, &[0; 5])].concat()];
        for bytes in announced {
            let (server, mut peer) = serve();
            let mut server = server.message_len_max(10);
            peer.say(&bytes).await;
            let (refused, code) = join!(server.next(), async {
                let code = peer.hear_close().await;
                drop(peer);
                code
            });
            assert!(refused.unwrap().is_err());
            assert_eq!(code, TOO_LONG);
        }
    });
}

#[test]
fn reading_pauses_when_pongs_are_not_read() {
    in_virtual_time(async {
        let (ours, mut theirs) = duplex(1024);
        let mut server = WebSocket::new(ours, Role::Server);
        let asking = async {
            let ping = frame(0x89, &[0; 125]);
            let mut count = 0_usize;
            while count < 100_000 && theirs.write_all(&ping).await.is_ok() {
                count += 1;
            }
            count
        };
        tokio::select! {
            message = server.next() => panic!("{message:?}"),
            count = asking => panic!("all of {count} pings were read"),
            () = settle() => {}
        }
        assert!(server.queued() < 100 * 1024, "{} bytes are kept", server.queued());
    });
}

#[test]
fn keepalive_disconnects_a_peer_that_reads_nothing() {
    in_virtual_time(async {
        let (ours, theirs) = duplex(1024);
        let mut client = WebSocket::new(ours, Role::Client).keepalive(10 * SECOND, 3 * SECOND);
        client.queue(MessageKind::Binary, &[0; 100_000]);
        let begin = Instant::now();
        let lost = timeout(60 * SECOND, client.next()).await.expect("the peer is given up");
        assert!(matches!(lost, Some(Err(WebSocketError::Io(_)))), "{lost:?}");
        // The first 1024 bytes were written at the beginning, and nothing in the 10 s and the 13 s after that.
        assert_eq!(begin.elapsed(), 23 * SECOND);
        drop(theirs);
    });
}

#[test]
fn keepalive_spares_a_peer_that_reads_slowly() {
    in_virtual_time(async {
        let (ours, mut theirs) = duplex(1024);
        let mut client = WebSocket::new(ours, Role::Client).keepalive(10 * SECOND, 3 * SECOND);
        client.queue(MessageKind::Binary, &[0; 100_000]);
        let reading = async {
            while theirs.read(&mut [0; 1024]).await.unwrap() > 0 {
                sleep(2 * SECOND).await;
                let _ = theirs.write(b"\x8a\0").await;
            }
        };
        tokio::select! {
            lost = client.next() => panic!("{lost:?}"),
            () = reading => panic!("the connection ended"),
            () = sleep(300 * SECOND) => {}
        }
        assert_eq!(client.queued(), 0);
    });
}

#[test]
fn the_closing_handshake_is_limited_with_a_peer_that_reads_nothing() {
    in_virtual_time(async {
        let (ours, theirs) = duplex(1024);
        let mut client = WebSocket::new(ours, Role::Client);
        client.queue(MessageKind::Binary, &[0; 100_000]);
        client.close(CloseFrame::new(NORMAL, ""));
        let begin = Instant::now();
        let lost = timeout(60 * SECOND, client.next()).await.expect("the peer is given up");
        assert!(matches!(lost, Some(Err(WebSocketError::Io(_)))), "{lost:?}");
        assert_eq!(begin.elapsed(), 5 * SECOND);
        drop(theirs);
    });
}

#[test]
fn input_after_a_rejection_is_skipped_for_a_limited_time() {
    in_virtual_time(async {
        let (ours, mut theirs) = duplex(64 * 1024);
        let mut server = WebSocket::new(ours, Role::Server);
        theirs.write_all(b"\x83\x80").await.unwrap();
        let flooding = async {
            let mut sent = 0_usize;
            while theirs.write_all(&[0; 1024]).await.is_ok() {
                sent += 1024;
            }
            let mut told = Vec::new();
            theirs.read_to_end(&mut told).await.unwrap();
            assert_eq!(told[0], 0x88);
            sent
        };
        let serving = async {
            assert!(server.next().await.unwrap().is_err());
            drop(server);
        };
        let (sent, ()) = join!(flooding, serving);
        assert!((1024 * 1024..2 * 1024 * 1024).contains(&sent), "{sent}");
    });
}

#[test]
fn nothing_is_sent_after_a_rejection() {
    in_virtual_time(async {
        let (mut server, mut peer) = serve();
        peer.say(&[frame(0x83, b""), frame(0x89, b"hello?")].concat()).await;
        let (refused, code) = join!(server.next(), async {
            let code = peer.hear_close().await;
            drop(peer);
            code
        });
        assert!(refused.unwrap().is_err());
        server.queue(MessageKind::Text, b"more");
        assert_eq!((server.queued(), code), (0, PROTOCOL_ERROR));
    });
}

/// A peer that always has another ping. Reading from it uses the budget of the task, as with a socket.
struct EndlessPings;

impl AsyncRead for EndlessPings {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(pin!(consume_budget()).poll(cx));
        into.put_slice(b"\x89\0");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for EndlessPings {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_peer_with_endless_frames_cannot_prevent_a_close() {
    in_virtual_time(async {
        let mut socket = WebSocket::new(EndlessPings, Role::Client);
        socket.close(CloseFrame::new(NORMAL, ""));
        let mut closed = pin!(socket.next());
        assert!(poll_fn(|cx| Poll::Ready(closed.as_mut().poll(cx).is_pending())).await);
        advance(6 * SECOND).await;
        let outcome = poll_fn(|cx| Poll::Ready(closed.as_mut().poll(cx))).await;
        assert!(matches!(outcome, Poll::Ready(Some(Err(WebSocketError::Io(_))))), "{outcome:?}");
    });
}
