//! Contents of changing sizes: whole, in order, and unharmed by what is read after them.

use std::sync::Mutex;

use bytes::Bytes;
use frisbee::{Connection, Outcome, Packet, Router};
use support::{frames::frame, in_virtual_time, settle};

use crate::scripts::{client, connected, peer_with_buffer, server};

/// Keeps every content it is given, as the slice it is.
#[derive(Default)]
struct Keeper(Mutex<Vec<Bytes>>);

impl Router for Keeper {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        self.0.lock().unwrap().push(packet.content.into_bytes());
        Outcome::Nothing
    }
}

fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|place| (place * 7 + number * 13 + place / 251).to_le_bytes()[0]).collect()
}

/// Small, around the size of a read, around what is copied, and large, each after each.
fn mixed() -> Vec<Vec<u8>> {
    const LENS: [usize; 9] = [3, 40_000, 0, 16_384, 16_385, 4_095, 200_000, 5, 70_000];
    let pairs = LENS.iter().flat_map(|first| LENS.iter().flat_map(move |second| [*first, *second]));
    pairs.enumerate().map(|(number, len)| content(number, len)).collect()
}

#[test]
fn contents_of_changing_sizes_stay_unchanged() {
    for buffer_len in [1000, 1 << 16, 1 << 22] {
        in_virtual_time(async {
            let keeper = std::sync::Arc::new(Keeper::default());
            let server = server(keeper.clone()).without_listener();
            let mut peer = peer_with_buffer(&server, buffer_len);
            for sent in mixed() {
                peer.say(frame(1, 20, &sent)).await;
            }
            settle().await;
            let kept = keeper.0.lock().unwrap();
            assert_eq!(kept.len(), mixed().len());
            for (number, (kept, sent)) in kept.iter().zip(mixed()).enumerate() {
                assert!(*kept == sent, "content {number} of {} bytes, buffer {buffer_len}", sent.len());
            }
        });
    }
}

#[test]
fn dropped_contents_release_their_buffers() {
    /// Compares each content, and sends it back if it is to.
    struct Compare(Option<()>);

    impl Router for Compare {
        async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
            let number = usize::from(packet.id);
            assert!(packet.content == content(number, packet.content.len()), "content {number}");
            self.0.map(|()| packet).into()
        }
    }

    in_virtual_time(async {
        let server = server(Compare(Some(()))).without_listener();
        let connection = connected(client(Compare(None)), &server).await;
        for (id, sent) in (0..).zip(mixed()) {
            connection.send(Packet::new(id, frisbee::Operation::new(20).unwrap(), sent)).await.unwrap();
        }
        settle().await;
        assert!(connection.close_reason().is_none(), "{:?}", connection.close_reason());
    });
}

/// Compares each content; hands the connection over when asked to.
struct Checking(tokio::sync::mpsc::UnboundedSender<frisbee::Raw>);

const TAKE_OVER: u16 = 21;

impl Router for Checking {
    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        if packet.operation.number() == TAKE_OVER {
            self.0.send(connection.takeover().await.unwrap()).unwrap();
            return Outcome::Nothing;
        }
        let number = usize::from(packet.id);
        assert!(packet.content == content(number, packet.content.len()), "content {number}");
        Outcome::Nothing
    }
}

/// After a large packet the next is read boldly: whatever comes instead of another large one has to arrive as well.
#[test]
fn packets_written_after_a_large_content_arrive_whole() {
    const SMALL: [usize; 4] = [0, 5, 700, 3_000];
    let large = [200_000, 200_000, 199_000, 20_000, 16_380, 300_000];
    let mut writes: Vec<Vec<usize>> = large.iter().map(|len| vec![*len]).collect();
    for len in large {
        writes.push([200_000].into_iter().chain(SMALL.into_iter().cycle().take(300)).collect());
        writes.push(SMALL.into_iter().cycle().take(200).chain([len]).collect());
        writes.push([len].into_iter().chain(SMALL).collect());
    }
    in_virtual_time(async {
        let (raws, mut taken) = tokio::sync::mpsc::unbounded_channel();
        let server = server(Checking(raws)).without_listener();
        let mut peer = peer_with_buffer(&server, 1 << 22);
        let mut id = 0;
        for lens in &writes {
            let frames = lens.iter().map(|len| {
                id += 1;
                frame(id, 20, content(id.into(), *len))
            });
            peer.say(frames.collect::<Vec<_>>().concat()).await;
            settle().await;
        }
        let packets: usize = writes.iter().map(Vec::len).sum();
        assert_eq!(server.metrics().counters.packets_in, packets as u64);
        assert_eq!(server.connections().len(), 1, "nothing panicked");

        let rest = content(1, 100_000);
        peer.say([frame(0, TAKE_OVER, b""), rest.clone()].concat()).await;
        let mut raw = taken.recv().await.unwrap();
        let mut unread = vec![0; rest.len()];
        tokio::io::AsyncReadExt::read_exact(&mut raw, &mut unread).await.unwrap();
        assert!(unread == rest, "every byte behind the last packet comes back");
    });
}
