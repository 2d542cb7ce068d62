//! HTTP/2: any bytes sent to both sides, and any header block.
#![no_main]

use std::time::Instant;

use arbitrary::Arbitrary;
use frisbee_fuzz::fuzz_target;
use frpc_http2::{BlockDecoder, BlockEncoder, Connection, Event, Field, Header, Settings};

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Server { cuts: [u8; 4], after_greeting: bool, bytes: &'a [u8] },
    Client { cuts: [u8; 4], bytes: &'a [u8] },
    Block { list_max: u16, bytes: &'a [u8] },
    Fields { table_max: u16, fields: Vec<(&'a [u8], u8)> },
}

/// More than the windows, queues, tables and caches of the small settings below can hold.
const MEMORY_MAX: usize = 2 << 20;

fuzz_target!(|input: Input| match input {
    Input::Server { cuts, after_greeting, bytes } => {
        let mut server = Connection::server(small_settings(), Instant::now());
        let mut wire = Vec::new();
        if after_greeting {
            Connection::client(small_settings(), Instant::now()).take_output(&mut wire);
        }
        wire.extend_from_slice(bytes);
        attack(&mut server, &wire, &cuts);
    }
    Input::Client { cuts, bytes } => {
        let mut client = Connection::client(small_settings(), Instant::now());
        client.open(Header::fields(&request()), true).expect("the first stream opens");
        let mut wire = Vec::new();
        Connection::server(small_settings(), Instant::now()).take_output(&mut wire);
        wire.extend_from_slice(bytes);
        attack(&mut client, &wire, &cuts);
    }
    Input::Block { list_max, bytes } => decode_block(list_max.into(), bytes),
    Input::Fields { table_max, fields } => round_trip(table_max.into(), &fields),
});

fn small_settings() -> Settings {
    let (stream_window, connection_window, frame_len_max) = (1 << 15, 1 << 16, 20_000);
    Settings { stream_window, connection_window, frame_len_max, streams_max: 20, ..Default::default() }
}

fn request() -> [Field<'static>; 3] {
    [Field::new(":method", "POST"), Field::new(":scheme", "http"), Field::repeated(":path", "/a")]
}

/// Sends `wire` in pieces. Every head is answered, and data is released on every other stream only.
fn attack(connection: &mut Connection, wire: &[u8], cuts: &[u8]) {
    let (mut inbox, mut rest, mut out) = (Vec::new(), wire, Vec::new());
    for cut in cuts.iter().cycle() {
        let (piece, after) = rest.split_at(rest.len().min(usize::from(*cut) + 1));
        if piece.is_empty() {
            break;
        }
        rest = after;
        let awaits_more = connection.awaits_more(&inbox, piece.len(), Instant::now());
        inbox.extend_from_slice(piece);
        if awaits_more && connection.wants_input() {
            let received = connection.receive(&inbox, Instant::now()).expect("a part of a frame is no error");
            assert!(received.consumed == 0 && received.event.is_none());
            continue;
        }
        let takes_messages = cuts[0] % 2 == 1;
        if !pass(connection, &mut inbox, takes_messages, |connection, event| match event {
            Event::Head { stream, .. } => {
                let _ = connection.send_head(stream, Header::fields(&[Field::new(":status", "200")]), false);
                let _ = connection.send_data(stream, vec![0; 5000].into(), true);
            }
            Event::Data { stream, data, .. } if stream.get() % 4 == 1 => connection.release(stream, data.len()),
            _ => {}
        }) {
            break;
        }
        connection.take_output(&mut out);
        out.clear();
        assert!(connection.memory() < MEMORY_MAX, "{} bytes", connection.memory());
    }
}

/// Handles all of the inbox. Returns `false` after an error, which stays.
fn pass(
    connection: &mut Connection,
    inbox: &mut Vec<u8>,
    takes_messages: bool,
    mut handle: impl FnMut(&mut Connection, Event<'_>),
) -> bool {
    let mut start = 0;
    loop {
        if takes_messages && let Some(message) = connection.receive_message(&inbox[start..], Instant::now()) {
            start += message.consumed;
            handle(connection, Event::Head { stream: message.stream, head: message.head, end: false });
            continue;
        }
        match connection.receive(&inbox[start..], Instant::now()) {
            Ok(received) => {
                start += received.consumed;
                match received.event {
                    Some(event) => handle(connection, event),
                    None => break,
                }
            }
            Err(error) => {
                assert_eq!(connection.error(), Some(error));
                return false;
            }
        }
    }
    inbox.drain(..start);
    while let Some(event) = connection.poll_event() {
        handle(connection, event);
    }
    true
}

/// Decodes a block twice, so that the second one refers to the table. A second decoder agrees on every valid block.
fn decode_block(list_max: usize, bytes: &[u8]) {
    let mut decoder = BlockDecoder::new(4096, list_max);
    let mut other = fluke_hpack::Decoder::new();
    for _ in 0..2 {
        let mut fields = Vec::new();
        let decoded = decoder.decode(bytes, |name, value| fields.push((name.to_vec(), value.to_vec())));
        assert!(decoder.table_len() <= 4096);
        match decoded {
            Ok(true) if !fields.is_empty() => assert_eq!(other.decode(bytes).ok(), Some(fields), "of {bytes:?}"),
            // The other decoder has no limits, and refuses table sizes without fields.
            _ => return,
        }
    }
}

/// Encodes fields twice, so that the second block refers to the table.
fn round_trip(table_max: usize, fields: &[(&[u8], u8)]) {
    let (mut encoder, mut decoder) = (BlockEncoder::new(table_max), BlockDecoder::new(4096, usize::MAX));
    for _ in 0..2 {
        let (mut out, mut decoded) = (Vec::new(), Vec::new());
        encoder.begin(&mut out);
        for (value, kind) in fields {
            encoder.field(&mut out, field(value, *kind));
        }
        let complete = decoder.decode(&out, |name, value| decoded.push((name.to_vec(), value.to_vec())));
        assert_eq!(complete, Ok(true));
        let given = fields.iter().map(|(value, kind)| (field(value, *kind).name().as_bytes().to_vec(), value.to_vec()));
        assert!(decoded.into_iter().eq(given));
    }
}

fn field(value: &[u8], kind: u8) -> Field<'_> {
    let name = ["x-a", "x-b", ":path", "cookie"][usize::from(kind >> 4) % 4];
    match kind % 3 {
        0 => Field::new(name, value),
        1 => Field::repeated(name, value),
        _ => Field::sensitive(name, value),
    }
}
