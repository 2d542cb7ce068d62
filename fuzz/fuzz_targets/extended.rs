//! Processes bytes of an extended peer. Nothing panics, and memory stays within the limits regardless of announced
//! lengths.
#![no_main]

use std::{sync::Arc, time::Instant};

use arbitrary::Arbitrary;
use bytes::{BufMut, Bytes, BytesMut};
use frisbee::{
    Config,
    proto::{Connection, Control, Header, HeaderFormat, Hello, InputEvent, Role},
};
use frisbee_fuzz::fuzz_target;

/// A frame of a peer with support for pieces.
#[derive(Arbitrary, Debug)]
enum Said<'a> {
    /// The first piece of a content. It may also be taken for a later piece.
    First {
        id: bool,
        operation: u8,
        total: u16,
        bytes: &'a [u8],
    },
    Next {
        id: bool,
        bytes: &'a [u8],
    },
    Other {
        id: bool,
        operation: u8,
        bytes: &'a [u8],
    },
}

fuzz_target!(|input: (u8, Vec<Said>, Vec<u8>)| {
    let (metadata_max, frames, bytes) = input;
    hear_pieces(&frames);
    let (metadata_max, content) = (usize::from(metadata_max) * 8, Bytes::from(bytes));
    let (metadata_len, messages_len) = frpc::fuzzing::read_extended(&content, metadata_max, INFLATED_MAX);
    assert!(metadata_len <= metadata_max);
    assert!(messages_len <= 2 * content.len().max(INFLATED_MAX as usize));

    drop(Control::decode(7, content.clone()));
    if let Ok(hello) = Hello::decode(content) {
        let mut encoded = Vec::new();
        hello.encode(&mut encoded);
        assert_eq!(Hello::decode(encoded.into()).as_ref(), Ok(&hello), "what was read is what is said");
    }
});

/// Runs a connection on these frames.
fn hear_pieces(frames: &[Said]) {
    let config = Config { content_len_max: CONTENT_LEN_MAX, discard_len_max: 2 * CONTENT_LEN_MAX, ..Config::default() };
    let now = Instant::now();
    let mut connection = Connection::new(Role::Server, Arc::new(config), now);
    let mut inbox = BytesMut::new();
    let mut say = |id: bool, operation: u8, content: &[u8]| {
        let len = content.len().try_into().expect("inputs are short");
        Header { id: id.into(), operation: operation.into(), len }.encode(HeaderFormat::Magic10, &mut inbox);
        inbox.extend_from_slice(content);
    };
    say(false, 3, &[1, 1, 1, 0, 0, 0, 4, 0, 0, 0, 15]);
    for said in frames {
        match said {
            Said::First { id, operation, total, bytes } => {
                let mut content = vec![0, *operation];
                content.put_u32((*total).into());
                content.extend_from_slice(bytes);
                say(*id, 5, &content);
            }
            Said::Next { id, bytes } => say(*id, 5, bytes),
            Said::Other { id, operation, bytes } => say(*id, *operation, bytes),
        }
    }
    connection.handle_received(now, inbox.len());
    while let Ok(Some(event)) = connection.handle_input(now, &mut inbox) {
        if let InputEvent::Packet(packet) = event {
            assert!(packet.content.len() <= CONTENT_LEN_MAX as usize);
        }
    }
}

const CONTENT_LEN_MAX: u32 = 1000;
/// More than one part of compressed content.
const INFLATED_MAX: u32 = 300 * 1024;
