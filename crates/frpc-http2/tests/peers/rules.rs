//! Rules of RFC 9113 beyond h2spec: shutdown, trailers, informational responses, content lengths.

use bytes::Bytes;
use frpc_http2::{Connection, ErrorCode, Event, Field, Header, OpenError, SendError, Settings};

use crate::victim::*;

fn open(victim: &mut Victim, method: &'static str) -> u32 {
    let fields = [Field::new(":method", method), Field::new(":scheme", "http"), Field::new(":path", "/")];
    victim.side.open(Header::fields(&fields), true).unwrap().get()
}

const OK: u8 = 0x88;

#[test]
fn a_server_shuts_down_in_two_steps() {
    let mut victim = Victim::server(Settings::default());
    victim.feed(&request(1)).unwrap();
    victim.side.shut_down();
    let output = victim.output();
    assert_eq!((output[0].0, &output[0].3[..4]), (GOAWAY, &[0x7f, 0xff, 0xff, 0xff][..]));
    assert_eq!(output[1].0, PING);
    // A request that crossed the first GOAWAY is served.
    assert_eq!(victim.feed(&request(3)), Ok(vec![Seen::Head(3, true)]));
    victim.feed(&frame(PING, ACK, 0, &output[1].3)).unwrap();
    assert_eq!(victim.output()[0].3[..4], [0, 0, 0, 3]);
    victim.feed(&request(5)).unwrap();
    assert_eq!(victim.output(), [(RST_STREAM, 0, 5, vec![0, 0, 0, 7])]);
    assert!(!victim.side.is_done());
    victim.respond(1, 0);
    victim.respond(3, 0);
    assert!(victim.side.is_done());
}

#[test]
fn a_shutdown_needs_no_answer() {
    let mut victim = Victim::server(Settings::default());
    victim.side.shut_down();
    victim.output();
    victim.pass(20).unwrap();
    assert_eq!(victim.kinds(), [(GOAWAY, 0)]);
    assert!(victim.side.is_done());
}

#[test]
fn a_client_may_retry_requests_after_the_last_stream() {
    let mut victim = Victim::client(Settings::default());
    let (first, second) = (open(&mut victim, "GET"), open(&mut victim, "GET"));
    let goaway = [first.to_be_bytes(), [0; 4]].concat();
    let events = victim.feed(&frame(GOAWAY, 0, 0, &goaway)).unwrap();
    assert_eq!(events, [Seen::Reset(second, ErrorCode::REFUSED_STREAM), Seen::GoAway(first)]);
    let fields = [Field::new(":method", "GET"), Field::new(":scheme", "http"), Field::new(":path", "/")];
    assert_eq!(victim.side.open(Header::fields(&fields), true), Err(OpenError::GoingAway));
    assert!(!victim.side.is_done());
    victim.feed(&frame(HEADERS, END_HEADERS | END_STREAM, first, &[OK])).unwrap();
    assert!(victim.side.is_done());
}

#[test]
fn a_whole_response_is_sent_at_once_or_not_at_all() {
    let mut victim = Victim::server(Settings::default());
    // The windows of the streams are four bytes.
    victim.feed(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 4])).unwrap();
    victim.output();
    let respond = |victim: &mut Victim, stream: u32, message: &[u8]| {
        let head = [Field::new(":status", "200")];
        let trailers = [Field::new("grpc-status", "0")];
        let stream = victim.id(stream);
        victim.side.send_response(stream, Header::fields(&head), [b"ab", message], Header::fields(&trailers))
    };
    victim.feed(&request(1)).unwrap();
    assert_eq!(respond(&mut victim, 1, b"cde"), Err(SendError::Full));
    assert_eq!(victim.kinds(), []);
    assert_eq!(respond(&mut victim, 1, b"cd"), Ok(()));
    let output = victim.output();
    assert_eq!((output[0].0, output[0].1), (HEADERS, END_HEADERS));
    assert_eq!(output[1], (DATA, 0, 1, b"abcd".to_vec()));
    assert_eq!((output[2].0, output[2].1), (HEADERS, END_HEADERS | END_STREAM));
    assert_eq!(respond(&mut victim, 1, b""), Err(SendError::Closed));

    // The rest of a request is not needed any more.
    let mut open = request(3);
    open[4] = END_HEADERS;
    victim.feed(&open).unwrap();
    assert_eq!(respond(&mut victim, 3, b""), Ok(()));
    assert_eq!(victim.kinds(), [(HEADERS, 3), (DATA, 3), (HEADERS, 3), (RST_STREAM, 3)]);

    victim.feed(&request(5)).unwrap();
    let stream = victim.id(5);
    victim.side.send_head(stream, Header::fields(&[Field::new(":status", "200")]), false).unwrap();
    assert_eq!(respond(&mut victim, 5, b""), Err(SendError::OutOfOrder));
}

#[test]
fn informational_responses_come_before_the_head() {
    let mut victim = Victim::client(Settings::default());
    let id = open(&mut victim, "GET");
    let early = [&[0x08, 3][..], b"103"].concat();
    let input = [frame(HEADERS, END_HEADERS, id, &early), frame(HEADERS, END_HEADERS | END_STREAM, id, &[OK])].concat();
    let received = victim.side.receive(&input, victim.now).unwrap();
    let Some(Event::Informational { head, .. }) = received.event else { panic!("{received:?}") };
    assert_eq!(head.status(), Some(103));
    assert_eq!(victim.feed(&input[received.consumed..]), Ok(vec![Seen::Head(id, true)]));

    let id = open(&mut victim, "GET");
    let events = victim.feed(&frame(HEADERS, END_HEADERS | END_STREAM, id, &early));
    assert_eq!(events, Ok(vec![Seen::Reset(id, ErrorCode::PROTOCOL_ERROR)]), "none may end a stream");
}

#[test]
fn the_length_of_data_matches_its_announcement() {
    let with_length = [&[OK, 0x0f, 13, 1][..], b"3"].concat();
    for (data, is_fine) in [(&b"abc"[..], true), (b"ab", false), (b"abcd", false), (b"", false)] {
        let mut victim = Victim::client(Settings::default());
        let id = open(&mut victim, "GET");
        victim.feed(&frame(HEADERS, END_HEADERS, id, &with_length)).unwrap();
        let events = victim.feed(&frame(DATA, END_STREAM, id, data)).unwrap();
        assert_eq!(events == [Seen::Data(id, data.len(), true)], is_fine, "{events:?}");
        assert_eq!(events == [Seen::Reset(id, ErrorCode::PROTOCOL_ERROR)], !is_fine, "{events:?}");
    }
    // The response to HEAD announces the length of data that it does not carry.
    for (method, is_fine) in [("HEAD", true), ("GET", false)] {
        let mut victim = Victim::client(Settings::default());
        let id = open(&mut victim, method);
        let events = victim.feed(&frame(HEADERS, END_HEADERS | END_STREAM, id, &with_length)).unwrap();
        assert_eq!(events == [Seen::Head(id, true)], is_fine);
    }
}

#[test]
fn connect_is_refused_or_passed_on() {
    // `:method: CONNECT`, `:authority: a:1`.
    let connect = [&[0x02, 7][..], b"CONNECT", &[0x01, 3], b"a:1"].concat();
    for accepts_connect in [false, true] {
        let mut victim = Victim::server(Settings { accepts_connect, ..Default::default() });
        let events = victim.feed(&frame(HEADERS, END_HEADERS, 1, &connect)).unwrap();
        assert_eq!(events == [Seen::Head(1, false)], accepts_connect);
        assert_eq!(victim.kinds().contains(&(RST_STREAM, 1)), !accepts_connect);
    }
}

#[test]
fn an_early_answer_stops_the_request_without_an_error() {
    let mut victim = Victim::server(Settings::default());
    victim.feed(&[frame(HEADERS, END_HEADERS, 1, &GET), frame(DATA, 0, 1, b"some")].concat()).unwrap();
    victim.respond(1, 0);
    assert_eq!(victim.output()[1], (RST_STREAM, 0, 1, vec![0; 4]));
    assert_eq!(victim.feed(&frame(DATA, END_STREAM, 1, b"more")), Ok(vec![]), "it crossed the answer");
    assert_eq!(victim.side.active_streams(), 0);
}

#[test]
fn trailers_follow_queued_data() {
    let mut victim = Victim::server(Settings::default());
    victim.feed(&[setting(4, 3), request(1)].concat()).unwrap();
    let id = victim.id(1);
    let side = &mut victim.side;
    let trailers = [Field::repeated("grpc-status", "0")];
    assert_eq!(side.send_trailers(id, Header::fields(&trailers)), Err(SendError::OutOfOrder));
    side.send_head(id, Header::fields(&[Field::new(":status", "200")]), false).unwrap();
    side.send_data(id, Bytes::from_static(b"hello"), false).unwrap();
    side.send_trailers(id, Header::fields(&trailers)).unwrap();
    assert_eq!(side.send_slice(id, b"x", false), Err(SendError::Closed));
    let kinds = |victim: &mut Victim| victim.kinds().into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
    assert_eq!(kinds(&mut victim), [SETTINGS, HEADERS, DATA]);
    victim.feed(&number(WINDOW_UPDATE, 1, 2)).unwrap();
    assert_eq!(kinds(&mut victim), [DATA, HEADERS]);
    assert_eq!(victim.side.active_streams(), 0);
}

#[test]
fn small_responses_overtake_large_ones() {
    let mut victim = Victim::server(Settings::default());
    victim.memory_max = 8 << 20;
    let windows = [setting(4, 0x7fff_ffff), number(WINDOW_UPDATE, 0, 0x7000_0000)].concat();
    victim.feed(&[windows, request(1), request(3), request(5)].concat()).unwrap();
    victim.output();
    victim.respond(1, 300_000);
    victim.respond(3, 300_000);
    let mut batch = Vec::new();
    victim.side.take_output(&mut batch);
    assert!(batch.len() <= (256 << 10) + 16_393);
    victim.respond(5, 10);
    let kinds = victim.kinds();
    assert_eq!(kinds[..2], [(HEADERS, 5), (DATA, 5)]);
    // The large ones take turns.
    let turns: Vec<_> = kinds[2..12].iter().map(|(_, stream)| *stream).collect();
    assert!(turns.windows(2).all(|pair| pair[0] != pair[1]), "{turns:?}");
}

#[test]
fn long_blocks_are_sent_and_received_in_pieces() {
    let now = std::time::Instant::now();
    let settings = || Settings { header_list_max: 60_000, header_block_max: 60_000, ..Default::default() };
    let (mut client, mut server) = (Connection::client(settings(), now), Connection::server(settings(), now));
    let long = "v".repeat(50_000);
    let fields = [
        Field::new(":method", "GET"),
        Field::new(":scheme", "http"),
        Field::new(":path", "/"),
        Field::new("x-long", &long),
    ];
    client.open(Header::fields(&fields), true).unwrap();
    let mut wire = Vec::new();
    client.take_output(&mut wire);
    let mut input = &wire[..];
    loop {
        let received = server.receive(input, now).unwrap();
        input = &input[received.consumed..];
        match received.event {
            Some(Event::Head { head, .. }) => break assert_eq!(head.get("x-long"), Some(long.as_bytes())),
            Some(_) => {}
            None => panic!("the request arrives"),
        }
    }
}

#[test]
fn an_end_without_data_needs_no_window() {
    let mut victim = Victim::server(Settings::default());
    // 65,535 bytes for the connection, and more for each stream.
    victim.feed(&[setting(4, 1 << 20), request(1), request(3)].concat()).unwrap();
    victim.respond(1, 100_000);
    let id = victim.id(3);
    victim.side.send_head(id, Header::fields(&[Field::new(":status", "200")]), false).unwrap();
    victim.output();
    victim.side.send_slice(id, &[], true).unwrap();
    assert_eq!(victim.kinds(), [(DATA, 3)]);
}

#[test]
fn streams_with_open_windows_continue_next_to_a_full_queue() {
    let settings = Settings { stream_queue_max: 20_000, connection_queue_max: 100_000, ..Default::default() };
    let mut victim = Victim::server(settings);
    victim.feed(&[setting(4, 0), number(WINDOW_UPDATE, 0, 1 << 20)].concat()).unwrap();
    for stream in [1, 3, 5, 7, 9, 11] {
        victim.feed(&request(stream)).unwrap();
        let id = victim.id(stream);
        victim.side.send_head(id, Header::fields(&[Field::new(":status", "200")]), false).unwrap();
        if stream < 11 {
            assert_eq!(victim.side.send_data(id, Bytes::from(vec![b'x'; 20_000]), false), Ok(()));
        }
    }
    victim.output();
    // The peer reads the last stream only.
    let id = victim.id(11);
    assert_eq!(victim.side.capacity(id), 0);
    assert_eq!(victim.side.send_slice(id, b"x", false), Err(SendError::Full));
    victim.feed(&number(WINDOW_UPDATE, 11, 255)).unwrap();
    assert_eq!((victim.output(), victim.feed(&[])), (vec![], Ok(vec![])), "a tiny window counts as closed");
    victim.feed(&number(WINDOW_UPDATE, 11, 1 << 20)).unwrap();
    assert_eq!(victim.output(), []);
    assert_eq!(victim.feed(&[]), Ok(vec![Seen::Writable(11)]));
    // Frames of this stream go out until a batch is full, and again once that is written.
    let mut sent = 0;
    for _ in 0..3 {
        loop {
            let room = victim.side.capacity(id);
            if room == 0 {
                assert_eq!(victim.side.send_slice(id, &[b'y'; 100], false), Err(SendError::Full));
                break;
            }
            victim.side.send_data(id, Bytes::from(vec![b'y'; room]), false).unwrap();
            sent += room;
        }
        victim.output();
        assert_eq!(victim.feed(&[]), Ok(vec![Seen::Writable(11)]));
    }
    assert!(sent >= 3 * (256 << 10), "{sent}");
}

#[test]
fn a_long_data_frame_causes_an_event_for_each_part() {
    let mut victim = Victim::server(Settings { stream_window: 20_000, ..Settings::default() });
    victim.releases = false;
    let head = |stream| frame(HEADERS, END_HEADERS, stream, &GET);
    let frames = |stream| frame(DATA, END_STREAM, stream, &[7; 12_000]);
    victim.feed(&head(1)).unwrap();
    assert_eq!(victim.feed(&frames(1)[..4104]), Ok(vec![]), "short parts wait for more");
    assert_eq!(victim.feed(&frames(1)[..5009]), Ok(vec![Seen::Data(1, 5000, false)]));
    assert_eq!(victim.feed(&[7; 4095]), Ok(vec![]));
    assert_eq!(victim.feed(&[7; 4096]), Ok(vec![Seen::Data(1, 4096, false)]));
    assert_eq!(victim.feed(&[7; 2904]), Ok(vec![Seen::Data(1, 2904, true)]), "the last part may be short");
    assert_eq!(victim.side.unreleased(), 12_000);

    // The window and a reset count from part to part. The rest of the frame belongs to no stream then.
    victim.feed(&[head(3), frame(DATA, 0, 3, &[7; 15_000])].concat()).unwrap();
    assert_eq!(victim.feed(&frames(3)[..5009]), Ok(vec![Seen::Data(3, 5000, false)]));
    assert_eq!(victim.feed(&[7; 5000]), Ok(vec![Seen::Reset(3, ErrorCode::FLOW_CONTROL_ERROR)]));
    assert_eq!(victim.feed(&[&[7; 2000][..], &head(5)].concat()), Ok(vec![Seen::Head(5, false)]));
}
