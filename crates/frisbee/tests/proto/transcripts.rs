//! Recorded conversations of the Go implementation, replayed against this one.

use std::{collections::HashMap, time::Duration};

use bytes::BytesMut;
use frisbee::{
    CloseReason, Config, Operation, Packet, ProtocolError,
    proto::{Decoder, Frame, FrameKind, HeaderFormat, InputEvent, Role},
};
use serde::Deserialize;

use crate::pair::{Side, quiet};

#[test]
fn recorded_bytes_decode_to_the_recorded_packets() {
    for_each(|format, transcript| {
        for from in ["client", "server"] {
            let (input, expected) = (transcript.decodable(from), transcript.decoded(from));
            for start in [Some(format), None] {
                let cuts = (0..=input.len()).map(|cut| vec![&input[..cut], &input[cut..]]);
                for pieces in cuts.chain([input.chunks(1).collect()]) {
                    assert_eq!(decode(start, &pieces), expected, "{} {from}", transcript.name);
                }
            }
        }
    });
}

#[test]
fn a_server_writes_the_same_bytes_as_the_go_server() {
    let mut count = 0;
    for_each(|format, transcript| {
        if transcript.layer != "frisbee" || !transcript.server.starts_with("go-") {
            return;
        }
        count += 1;
        for piece in [1, 2, 7, usize::MAX] {
            // A Go server discards nothing.
            let mut server = Side::new(Role::Server, Config { discard_len_max: 0, ..quiet() });
            for bytes in hex(&transcript.client_bytes).chunks(piece) {
                server.hear_with(bytes, |server, event| {
                    handle(server, event, &transcript.name);
                    server.write();
                });
                server.write();
            }
            assert_eq!(server.format(), Some(format), "{}", transcript.name);
            assert_eq!(server.wire, transcript.packet_bytes("server"), "{}", transcript.name);
            assert_eq!(server.state(), transcript.state_of_server(), "{}", transcript.name);
            assert!(
                server.inbox.ends_with(&transcript.raw_bytes("client")),
                "{}: raw bytes are not lost",
                transcript.name
            );
        }
    });
    assert_eq!(count, 24, "eleven conversations in both formats, and two that need the magic number or the limit");
}

#[test]
fn a_client_writes_the_same_bytes_as_the_go_client() {
    let mut count = 0;
    for_each(|format, transcript| {
        if !transcript.client.starts_with("go-") {
            return;
        }
        count += 1;
        let ping_interval = (transcript.name == "ping_from_client").then_some(PING_INTERVAL);
        let mut client = Side::client(Config { header: Some(format), ping_interval, ..quiet() });
        let mut streams = HashMap::new();
        for step in transcript.steps.iter().take_while(|step| !step.raw) {
            match (step.from.as_str(), step.kind()) {
                _ if step.end => {}
                ("server", _) => client.hear(&hex(&step.hex)),
                (_, FrameKind::Ping) => client.advance(PING_INTERVAL),
                (_, FrameKind::Application(operation)) => {
                    client.send(Packet::new(step.id, operation, hex(&step.content))).expect("open");
                }
                (_, FrameKind::Stream) if step.content.is_empty() => client.close_stream(streams[&step.id]),
                (_, FrameKind::Stream) => {
                    let open = |client: &mut Side| client.open_stream_with_id(step.id).expect("the id is free");
                    let key = *streams.entry(step.id).or_insert_with(|| open(&mut client));
                    client.send_on(key, hex(&step.content).into()).expect("open");
                }
                (_, kind) => panic!("clients do not send {kind:?} by themselves"),
            }
            client.write();
        }
        assert_eq!(client.wire, transcript.packet_bytes("client"), "{}", transcript.name);
        assert_eq!(client.state(), "open", "{}", transcript.name);
    });
    assert!(count > 30, "both formats have conversations of Go clients");
}

/// The services behind the recordings, as the README of the vectors tells.
fn handle(server: &mut Side, event: InputEvent, transcript: &str) {
    match event {
        InputEvent::Packet(packet) => match packet.operation.number() {
            20 => server.send(packet).expect("open"),
            21 => server.send(Packet::new(packet.id + 1000, operation(31), "other packet")).expect("open"),
            23 => {
                server.send(packet).expect("open");
                server.finish(CloseReason::Local);
            }
            40 => {
                for id in 1..=3 {
                    server.send(Packet::new(id, operation(41), format!("news {id}"))).expect("open");
                }
            }
            50 => {
                server.send(packet).expect("open");
                server.finish(CloseReason::TakenOver);
            }
            _ => {}
        },
        InputEvent::StreamOpened(key) | InputEvent::StreamReadable(key) => {
            if ["stream_default_server", "stream_closed_by_handler"].contains(&transcript) {
                return server.release_stream(key);
            }
            let (contents, end) = server.read_all(key);
            contents.into_iter().for_each(|content| server.send_on(key, content.into()).expect("open"));
            if end.is_some() {
                server.release_stream(key);
            }
        }
        other => panic!("{other:?}"),
    }
}

fn decode(format: Option<HeaderFormat>, pieces: &[&[u8]]) -> (Vec<Frame>, Option<ProtocolError>) {
    let mut decoder = Decoder::new(format, Config::default().content_len_max);
    let (mut inbox, mut frames) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        inbox.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut inbox) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    assert!(inbox.is_empty(), "everything was taken");
    (frames, None)
}

#[derive(Deserialize)]
struct Recording {
    header_bytes: usize,
    transcripts: Vec<Transcript>,
}

#[derive(Deserialize)]
struct Transcript {
    name: String,
    layer: String,
    client: String,
    server: String,
    steps: Vec<Step>,
    client_bytes: String,
    server_bytes: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Step {
    from: String,
    id: u16,
    op: u16,
    content: String,
    hex: String,
    raw: bool,
    end: bool,
}

impl Transcript {
    fn bytes(&self, from: &str, raw: bool) -> Vec<u8> {
        self.steps.iter().filter(|step| step.from == from && step.raw == raw).flat_map(|step| hex(&step.hex)).collect()
    }

    fn packet_bytes(&self, from: &str) -> Vec<u8> {
        self.bytes(from, false)
    }

    fn raw_bytes(&self, from: &str) -> Vec<u8> {
        self.bytes(from, true)
    }

    /// Returns the input of a decoder: the packets, or everything if a broken one is among it.
    fn decodable(&self, from: &str) -> Vec<u8> {
        let all = hex(if from == "client" { &self.client_bytes } else { &self.server_bytes });
        let packets = self.packet_bytes(from);
        assert!(all.starts_with(&packets), "{}: raw bytes come last", self.name);
        if self.error(from).is_some() { all } else { packets }
    }

    fn decoded(&self, from: &str) -> (Vec<Frame>, Option<ProtocolError>) {
        let sent = self.steps.iter().filter(|step| step.from == from && !step.raw && !step.end);
        let mut frames: Vec<Frame> = sent.map(Step::frame).collect();
        let error = self.error(from);
        if let Some(ProtocolError::BadMagic { .. }) = error {
            frames.pop();
        }
        (frames, error)
    }

    fn error(&self, from: &str) -> Option<ProtocolError> {
        match (self.name.as_str(), from) {
            ("bad_magic", "client") => Some(ProtocolError::BadMagic { found: 0xff0f }),
            ("content_too_long", "client") => {
                let limit = 5 * 1024 * 1024;
                Some(ProtocolError::ContentTooLarge { announced: limit + 1, limit })
            }
            _ => None,
        }
    }

    fn state_of_server(&self) -> String {
        let reason = match self.name.as_str() {
            "action_close" => CloseReason::Local,
            "raw_takeover" => CloseReason::TakenOver,
            _ => match self.error("client") {
                Some(error) => CloseReason::Protocol(error),
                None => return "open".into(),
            },
        };
        format!("closed: {reason}")
    }
}

impl Step {
    /// As a plain peer understands it.
    fn kind(&self) -> FrameKind {
        match FrameKind::of(self.op) {
            FrameKind::Control | FrameKind::Extended | FrameKind::Piece => FrameKind::Reserved,
            kind => kind,
        }
    }

    fn frame(&self) -> Frame {
        let (content, kind) = (hex(&self.content), self.kind());
        let (content, skipped) = if kind == FrameKind::Reserved { (Vec::new(), content.len()) } else { (content, 0) };
        Frame { id: self.id, kind, content: content.into(), skipped: skipped.try_into().expect("they are short") }
    }
}

fn for_each(mut check: impl FnMut(HeaderFormat, &Transcript)) {
    for (format, text) in [(HeaderFormat::Magic10, HEADER10), (HeaderFormat::Plain8, HEADER8)] {
        let recording: Recording = serde_json::from_str(text).expect("the vectors are JSON");
        assert_eq!(recording.header_bytes, format.header_len());
        recording.transcripts.iter().for_each(|transcript| check(format, transcript));
    }
}

fn operation(number: u16) -> Operation {
    Operation::new(number).expect("not reserved")
}

fn hex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("the vectors are hexadecimal");
    (0..digits.len()).step_by(2).map(byte).collect()
}

const HEADER10: &str = include_str!("../../../../tests/vectors/transcripts_header10.json");
const HEADER8: &str = include_str!("../../../../tests/vectors/transcripts_header8.json");
/// A step of the clock that makes a PING due: how often they came in the recording is not on the wire.
const PING_INTERVAL: Duration = Duration::from_millis(500);
