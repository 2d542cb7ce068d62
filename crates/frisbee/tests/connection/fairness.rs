//! A task that never has to wait still lets the others of its thread run.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use frisbee::{Client, Config, Connection};
use support::{frames::stream_frame, in_virtual_time, settle};
use tokio::task::yield_now;

use crate::scripts::{client, packet, peer_of_client, peer_of_client_with_buffer, quiet};

/// A client that never has to wait for room, and whose streams hold whatever comes.
fn roomy() -> Client<()> {
    let limits = Config { outbox_len_max: usize::MAX, stream_queue_len_max: usize::MAX, ..quiet() };
    client(()).config(Config { accept_backlog: 1, ..limits })
}

/// Runs `step` over and over, which never has to wait, until another task has got ten turns.
fn check(step: impl AsyncFn(&Connection)) {
    in_virtual_time(async {
        let (connection, _peer) = peer_of_client(&roomy()).await;
        let turns = Arc::new(AtomicUsize::new(0));
        tokio::spawn({
            let turns = turns.clone();
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            }
        });
        for _ in 0..10_000 {
            if turns.load(Ordering::Relaxed) >= 10 {
                return;
            }
            step(&connection).await;
        }
        panic!("{} turns of another task while one did 10,000 steps", turns.load(Ordering::Relaxed));
    });
}

#[test]
fn other_tasks_run_while_one_sends_packets() {
    check(async |connection| {
        connection.send(packet(1, "hi")).await.unwrap();
    });
    check(async |connection| {
        connection.send(packet(1, ["hi", "ho"].map(Bytes::from).to_vec())).await.unwrap();
    });
}

#[test]
fn other_tasks_run_while_one_sends_on_streams() {
    check(async |connection| connection.open_stream().unwrap().send("hi").await.unwrap());
    check(async |connection| {
        let (sender, _reader) = connection.open_stream().unwrap().split();
        let mut contents: VecDeque<Bytes> = vec!["hi".into(); 100].into();
        sender.send_many(&mut contents).await.unwrap();
        assert!(contents.is_empty());
    });
}

#[test]
fn other_tasks_run_while_one_reads_a_full_stream() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client_with_buffer(&roomy(), 1 << 20).await;
        peer.say_all((0..10_000).map(|_| stream_frame(7, "hi"))).await;
        settle().await;
        let mut stream = connection.accept_stream().await.unwrap();
        let turns = Arc::new(AtomicUsize::new(0));
        tokio::spawn({
            let turns = turns.clone();
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            }
        });
        for _ in 0..10_000 {
            stream.read().await.unwrap();
        }
        assert!(turns.load(Ordering::Relaxed) >= 10);
    });
}
