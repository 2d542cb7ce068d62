use std::time::Instant;

use super::{Connection, Event, Header};
use crate::{ErrorCode, Field, OpenError, Settings};

/// The highest id of a client.
const LAST_ID: u32 = 0x7fff_ffff;

fn request() -> [Field<'static>; 3] {
    [Field::new(":method", "GET"), Field::new(":scheme", "http"), Field::new(":path", "/")]
}

/// Passes all output of a side to the other one. Returns the received heads and resets.
fn pass(from: &mut Connection, to: &mut Connection) -> Vec<String> {
    let (mut wire, mut events) = (Vec::new(), Vec::new());
    from.take_output(&mut wire);
    let mut input = &wire[..];
    loop {
        let received = to.receive(input, Instant::now()).unwrap();
        input = &input[received.consumed..];
        match received.event {
            None => return events,
            Some(Event::Head { stream, .. }) => events.push(format!("head {}", stream.get())),
            Some(Event::Reset { stream, error }) => events.push(format!("reset {} {}", stream.get(), error.code)),
            Some(_) => {}
        }
    }
}

fn connected() -> (Connection, Connection) {
    let now = Instant::now();
    let mut client = Connection::client(Settings::default(), now);
    let mut server = Connection::server(Settings::default(), now);
    pass(&mut client, &mut server);
    pass(&mut server, &mut client);
    (client, server)
}

#[test]
fn a_client_opens_the_last_stream_and_then_needs_another_connection() {
    let (mut client, mut server) = connected();
    client.next_id = LAST_ID - 2;
    let request = request();
    let head = Header::fields(&request);
    let before = client.open(head, true).unwrap();
    let last = client.open(head, true).unwrap();
    assert_eq!((before.get(), last.get()), (LAST_ID - 2, LAST_ID));
    for _ in 0..2 {
        assert_eq!(client.open(head, true), Err(OpenError::IdsExhausted));
    }
    // Open streams continue, and the connection is done after the last of them.
    assert_eq!(pass(&mut client, &mut server), [format!("head {}", LAST_ID - 2), format!("head {LAST_ID}")]);
    client.shut_down();
    for stream in [last, before] {
        assert!(!client.is_done());
        server.send_head(stream, Header::fields(&[Field::new(":status", "200")]), true).unwrap();
        assert_eq!(pass(&mut server, &mut client), [format!("head {}", stream.get())]);
    }
    assert!(client.is_done());
    assert_eq!(client.open(head, true), Err(OpenError::GoingAway), "a shutdown counts more than the ids");
}

#[test]
fn short_data_is_sent_with_its_request_if_the_windows_allow_it() {
    let request = request();
    for (window, is_sent) in [(4, false), (5, true)] {
        let (mut client, mut server) = connected();
        client.peer.window = window;
        let (stream, sent) = client.open_with(Header::fields(&request), [b"ab", b"cde"]).unwrap();
        assert_eq!(sent, is_sent);
        if !is_sent {
            // The stream is open, and the data can be queued.
            client.send_slice(stream, b"abcde", true).unwrap();
        }
        assert_eq!(client.active_streams(), 1);
        assert_eq!(pass(&mut client, &mut server), ["head 1"]);
        assert_eq!(server.unreleased(), if is_sent { 5 } else { 4 });
    }
    let (mut client, _) = connected();
    client.send_window = 4;
    let (_, sent) = client.open_with(Header::fields(&request), [b"abcde", b""]).unwrap();
    assert!(!sent, "the window of the connection counts too");
}

#[test]
fn used_up_ids_count_more_than_a_lack_of_capacity() {
    let (mut client, _) = connected();
    client.peer.streams_max = 1;
    client.next_id = LAST_ID;
    let request = request();
    client.open(Header::fields(&request), true).unwrap();
    // A driver must not wait for capacity here: the end of the open stream would not help.
    assert_eq!(client.open(Header::fields(&request), true), Err(OpenError::IdsExhausted));
    assert!(!client.wants_capacity);
}

#[test]
fn a_server_accepts_the_last_stream_and_none_after_it() {
    let (mut client, mut server) = connected();
    client.next_id = LAST_ID;
    let request = request();
    client.open(Header::fields(&request), true).unwrap();
    assert_eq!(pass(&mut client, &mut server), [format!("head {LAST_ID}")]);
    // A client that continues has to use an id twice, or a lower one.
    client.next_id = LAST_ID - 2;
    client.open(Header::fields(&request), true).unwrap();
    let mut wire = Vec::new();
    client.take_output(&mut wire);
    let error = server.receive(&wire, Instant::now()).unwrap_err();
    assert_eq!(error.code, ErrorCode::STREAM_CLOSED);
}
