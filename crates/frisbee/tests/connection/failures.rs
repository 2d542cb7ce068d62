//! Sockets that take nothing more: what had arrived is still delivered, and the driver does not spin.

use std::{
    io::{self, Cursor},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use frisbee::{CloseReason, Connection, Outcome, Packet, Router};
use tokio::{
    io::{AsyncWrite, duplex, join},
    task::yield_now,
};

use crate::support::{client, packet, packet_bytes, virtually};

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
fn what_arrived_before_a_failed_write_is_delivered() {
    virtually(async {
        let count = Count::default();
        let arrived = count.0.clone();
        let input: Vec<u8> = (0..10_000).flat_map(|id| packet_bytes(id, "arrived")).collect();
        let connection = client(count).attach(join(Cursor::new(input), Broken)).await.unwrap();
        connection.try_send(packet(1, "never arrives")).unwrap();
        assert!(matches!(connection.closed().await, CloseReason::Peer));
        assert_eq!(arrived.load(Ordering::Relaxed), 10_000);
        assert!(connection.flush().await.is_err(), "nothing was written");
    });
}

#[test]
fn a_write_that_fails_ends_the_connection_at_once() {
    for is_closing in [false, true] {
        virtually(async {
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
