//! Contents of changing sizes: whole, in order, and unharmed by what is read after them.

use std::sync::Mutex;

use bytes::Bytes;
use frisbee::{Connection, Outcome, Packet, Router};

use crate::support::{Peer, client, connected, frame, server, settled, virtually};

/// Keeps every content it is given, as the slice it is.
#[derive(Default)]
struct Keeper(Mutex<Vec<Bytes>>);

impl Router for Keeper {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        self.0.lock().unwrap().push(packet.content);
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
fn contents_of_changing_sizes_stay_what_they_were() {
    for buffer_len in [1000, 1 << 16, 1 << 22] {
        virtually(async {
            let keeper = std::sync::Arc::new(Keeper::default());
            let server = server(keeper.clone()).without_listener();
            let mut peer = Peer::with_buffer(&server, buffer_len);
            for sent in mixed() {
                peer.say(frame(1, 20, &sent)).await;
            }
            settled().await;
            let kept = keeper.0.lock().unwrap();
            assert_eq!(kept.len(), mixed().len());
            for (number, (kept, sent)) in kept.iter().zip(mixed()).enumerate() {
                assert!(*kept == sent, "content {number} of {} bytes, buffer {buffer_len}", sent.len());
            }
        });
    }
}

#[test]
fn contents_that_are_not_kept_leave_their_buffers_to_the_next() {
    /// Compares each content, and sends it back if it is to.
    struct Compare(Option<()>);

    impl Router for Compare {
        async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
            let number = usize::from(packet.id);
            assert!(packet.content == content(number, packet.content.len()), "content {number}");
            self.0.map(|()| packet).into()
        }
    }

    virtually(async {
        let server = server(Compare(Some(()))).without_listener();
        let connection = connected(client(Compare(None)), &server).await;
        for (id, sent) in (0..).zip(mixed()) {
            connection.send(Packet::new(id, frisbee::Operation::new(20).unwrap(), sent)).await.unwrap();
        }
        settled().await;
        assert!(connection.is_open(), "{:?}", connection.close_reason());
    });
}
