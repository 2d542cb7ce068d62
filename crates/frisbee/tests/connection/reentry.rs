//! Code of users that runs in the middle of something may use the connection: wakers, and what makes a state.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use frisbee::{Config, Connection, StreamEnd};
use support::{SECOND, frames::stream_frame, in_virtual_time, settle};
use tokio::pin;

use crate::scripts::{client, packet, peer_of_client, peer_of_client_with_buffer, quiet, zeros};

/// Uses the connection when it is woken, and when it is dropped.
struct Eager {
    connection: Connection,
    woken: AtomicUsize,
}

impl Eager {
    fn new(connection: &Connection) -> Arc<Self> {
        Arc::new(Self { connection: connection.clone(), woken: AtomicUsize::new(0) })
    }

    fn woken(&self) -> usize {
        self.woken.load(Ordering::Relaxed)
    }
}

impl Wake for Eager {
    fn wake(self: Arc<Self>) {
        self.connection.try_send(packet(1, "woken")).ok();
        self.woken.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Eager {
    fn drop(&mut self) {
        self.connection.metrics();
    }
}

#[test]
fn wakers_for_data_and_ends_may_use_the_connection() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(())).await;
        let (sender, mut reader) = connection.open_stream_with_id(7).unwrap().split();
        for (bytes, expected) in
            [(stream_frame(7, "hi"), Ok("hi".into())), (stream_frame(7, ""), Err(StreamEnd::ClosedByPeer))]
        {
            let eager = Eager::new(&connection);
            let waker = Waker::from(eager.clone());
            let cx = &mut Context::from_waker(&waker);
            assert!(reader.poll_read(cx).is_pending());
            let closed = sender.closed();
            pin!(closed);
            assert!(closed.as_mut().poll(cx).is_pending());
            peer.say(bytes).await;
            settle().await;
            assert!(eager.woken() > 0);
            assert_eq!(reader.poll_read(cx), Poll::Ready(expected));
        }
    });
}

#[test]
fn wakers_for_an_overflow_may_use_the_connection() {
    in_virtual_time(async {
        let config = Config { stream_queue_len_max: 1, stream_stall_max: SECOND, ..quiet() };
        let (connection, mut peer) = peer_of_client(&client(()).config(config)).await;
        let (sender, _reader) = connection.open_stream_with_id(7).unwrap().split();
        let eager = Eager::new(&connection);
        let closed = sender.closed();
        pin!(closed);
        assert!(closed.as_mut().poll(&mut Context::from_waker(&Waker::from(eager.clone()))).is_pending());
        peer.say([stream_frame(7, "one"), stream_frame(7, "two")].concat()).await;
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!((eager.woken(), closed.await), (1, StreamEnd::Overflow));
    });
}

#[test]
fn dropping_a_replaced_waker_may_drop_its_task() {
    in_virtual_time(async {
        let (connection, _peer) = peer_of_client(&client(())).await;
        let (_sender, mut reader) = connection.open_stream().unwrap().split();
        for _ in 0..2 {
            let waker = Waker::from(Eager::new(&connection));
            assert!(reader.poll_read(&mut Context::from_waker(&waker)).is_pending());
        }
    });
}

#[test]
fn wakers_of_a_failed_takeover_may_use_the_connection() {
    in_virtual_time(async {
        let (connection, peer) = peer_of_client_with_buffer(&client(()), 64).await;
        connection.try_send(packet(1, zeros(1000))).unwrap();
        let takeover = connection.takeover();
        pin!(takeover);
        let eager = Eager::new(&connection);
        assert!(takeover.as_mut().poll(&mut Context::from_waker(&Waker::from(eager.clone()))).is_pending());
        drop(peer);
        settle().await;
        assert!(eager.woken() > 0);
        takeover.await.unwrap_err();
    });
}

#[test]
fn state_initializers_may_use_the_connection() {
    in_virtual_time(async {
        let (connection, _peer) = peer_of_client(&client(())).await;
        let made = connection.state_or_insert_with(|| {
            connection.try_send(packet(1, "hi")).unwrap();
            connection.set_state(5_u8).unwrap();
            u32::from(*connection.state_or_insert_with(|| 6_u8))
        });
        assert_eq!(*made, 5);

        let outer = connection.state_or_insert_with(|| {
            let inner = connection.state_or_insert_with(|| "the first to be attached".to_owned());
            format!("later than {inner}")
        });
        assert_eq!(*outer, "the first to be attached", "there is one winner");
    });
}

#[test]
fn one_of_several_concurrent_state_initializers_wins() {
    in_virtual_time(async {
        let (connection, _peer) = peer_of_client(&client(())).await;
        let barrier = std::sync::Barrier::new(8);
        let attached: Vec<&usize> = std::thread::scope(|scope| {
            let make = |number| {
                barrier.wait();
                connection.state_or_insert_with(|| number)
            };
            let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || make(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(attached.iter().all(|state| std::ptr::eq(*state, attached[0])));
        assert!(std::ptr::eq(connection.state::<usize>().unwrap(), attached[0]));
    });
}
