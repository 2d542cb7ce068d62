//! Sockets that take or give nothing more: what had arrived is still delivered, and the driver does not spin.

use std::{
    io::{self, Cursor},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use frisbee::{CloseReason, Config, Connection, Outcome, Packet, Router};
use support::{MILLI, Peer, SECOND, assert_elapsed, in_virtual_time, settle};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, duplex, join, split},
    task::yield_now,
    time::{Instant, sleep},
};

use crate::scripts::{Script, client, describe, dispatches, only_connection, packet, packet_frame, quiet, server};

struct Broken;

impl AsyncWrite for Broken {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Default)]
struct Count(Arc<AtomicUsize>);

impl Router for Count {
    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        self.0.fetch_add(1, Ordering::Relaxed);
        Outcome::Nothing
    }
}

#[test]
fn packets_before_a_failed_write_are_delivered() {
    in_virtual_time(async {
        let count = Count::default();
        let arrived = count.0.clone();
        let input: Vec<u8> = (0..10_000).flat_map(|id| packet_frame(id, "arrived")).collect();
        let connection = client(count).attach(join(Cursor::new(input), Broken)).await.unwrap();
        connection.try_send(packet(1, "never arrives")).unwrap();
        assert!(matches!(connection.closed().await, CloseReason::Peer));
        assert_eq!(arrived.load(Ordering::Relaxed), 10_000);
        assert!(connection.flush().await.is_err(), "nothing was written");
    });
}

#[test]
fn a_failed_write_ends_the_connection_immediately() {
    for is_closing in [false, true] {
        in_virtual_time(async {
            let (silent, _open) = duplex(100);
            let connection = client(()).attach(join(silent, Broken)).await.unwrap();
            connection.try_send(packet(1, "never arrives")).unwrap();
            if is_closing {
                connection.close();
            }
            for _ in 0..100 {
                yield_now().await;
            }
            assert!(matches!(connection.close_reason(), Some(CloseReason::Io(_))), "closing: {is_closing}");
        });
    }
}

/// Gives what it holds, and fails then.
fn failing_after(input: Vec<u8>) -> impl AsyncRead + Unpin {
    struct Reset;
    impl AsyncRead for Reset {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }
    }
    Cursor::new(input).chain(Reset)
}

fn assert_reset(reason: CloseReason) {
    assert!(matches!(&reason, CloseReason::Io(error) if error.kind() == io::ErrorKind::ConnectionReset), "{reason}");
}

/// Two that are answered at once, and three that wait.
fn five() -> Vec<u8> {
    let words = ["hi", "wait", "wait", "hi", "wait"];
    (1..).zip(words).flat_map(|(id, words)| packet_frame(id, words)).collect()
}

#[test]
fn requests_before_a_failed_read_are_served_and_answered() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).dispatch(dispatch).without_listener();
            let (ours, theirs) = duplex(1 << 16);
            server.attach(join(failing_after(five()), theirs));
            let mut peer = Peer::over(ours, describe);
            let connection = only_connection(&server).await;
            sleep(4 * SECOND).await;
            script.gate.open(3);
            let mut heard = peer.hear_times(5).await;
            heard.sort();
            let expected = ["packet 1: hi", "packet 2: wait", "packet 3: wait", "packet 4: hi", "packet 5: wait"];
            assert_eq!(heard, expected, "{dispatch:?}");
            assert_reset(connection.closed().await);
        });
    }
}

#[test]
fn requests_before_a_failed_read_run_without_a_reader() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).dispatch(dispatch).without_listener();
            server.attach(join(failing_after(five()), Broken));
            let connection = only_connection(&server).await;
            script.gate.open(3);
            assert_reset(connection.closed().await);
            let log = script.log.take();
            assert_eq!(log.iter().filter(|line| line.starts_with("packet")).count(), 5, "{dispatch:?}: {log:?}");
        });
    }
}

#[test]
fn requests_before_a_failed_write_are_served() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let script = Script::new();
            // One waits for the other, in a backlog that has no room for more.
            let config = Config { handlers_max: 1, backlog_max: 1, ..quiet() };
            let server = server(script.clone()).dispatch(dispatch).config(config).without_listener();
            let (ours, theirs) = duplex(1 << 16);
            let (from_peer, _) = split(theirs);
            server.attach(join(from_peer, Broken));
            let mut peer = Peer::over(ours, describe);
            peer.say(five()).await;
            let connection = only_connection(&server).await;
            for _ in 0..3 {
                settle().await;
                script.gate.open(1);
            }
            assert!(matches!(connection.closed().await, CloseReason::Io(_)));
            let log = script.log.take();
            assert_eq!(log.iter().filter(|line| line.starts_with("packet")).count(), 5, "{dispatch:?}: {log:?}");
        });
    }
}

#[test]
fn slow_handlers_are_aborted_after_a_failure() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let script = Script::new();
            let config = Config { write_stall_max: 3 * SECOND, ..quiet() };
            let server = server(script.clone()).dispatch(dispatch).config(config).without_listener();
            let (_ours, theirs) = duplex(1 << 16);
            server.attach(join(failing_after(five()), theirs));
            let connection = only_connection(&server).await;
            let since = Instant::now();
            assert_reset(connection.closed().await);
            assert_elapsed(since, 3 * SECOND - MILLI);
        });
    }
}

/// As TLS does that decrypted something and then meets what it cannot decrypt.
#[test]
fn readable_input_after_a_failure_is_read() {
    struct Late(Vec<Option<Vec<u8>>>);
    impl AsyncRead for Late {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            match self.0.pop() {
                Some(Some(bytes)) => buf.put_slice(&bytes),
                _ => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            }
            Poll::Ready(Ok(()))
        }
    }
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        let (ours, theirs) = duplex(1 << 16);
        let reads = vec![None, Some(packet_frame(2, "hi")), None, Some(packet_frame(1, "hi"))];
        server.attach(join(Late(reads), theirs));
        assert_eq!(Peer::over(ours, describe).hear_out().await, ["packet 1: hi", "packet 2: hi"]);
        assert_eq!(script.log.take(), ["opened", "packet 1", "packet 2", "closed: Io(Kind(ConnectionReset))"]);
    });
}
