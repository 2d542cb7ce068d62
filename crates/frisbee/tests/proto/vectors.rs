//! The frames of the vectors of docs/protocol.md, read and written.

use std::collections::BTreeMap;

use bytes::BytesMut;
use frisbee::{
    Config, GoAway, Operation, Packet, PacketName,
    proto::{Control, Decoder, Features, FrameFilter, FrameKind, HeaderFormat, Hello, InputEvent},
};
use serde::Deserialize;

use crate::pair::{FORMATS, Pair, frame, quiet, zeros};

#[test]
fn every_vector_decodes_as_described() {
    let vectors = vectors();
    assert!(vectors.len() > 30);
    for Vector { name, hex: digits, means, .. } in vectors {
        for format in FORMATS {
            let mut bytes = bytes_of(&digits);
            if format == HeaderFormat::Plain8 {
                bytes.drain(..2);
            }
            let mut decoder = Decoder::new(Some(format), 1000);
            decoder.set_reach(FrameFilter::Extended);
            let mut inbox = BytesMut::from(&bytes[..]);
            let frame = decoder.decode(&mut inbox).expect("no error").expect("a whole frame");
            assert_eq!(decoder.decode(&mut inbox), Ok(None), "{name}");
            assert!(inbox.is_empty(), "{name}");
            let found = match frame.kind {
                FrameKind::Control => match Control::decode(frame.id, frame.content) {
                    Ok(Some(control)) => said(control),
                    Ok(None) => Means::Nothing,
                    Err(_) => Means::Error,
                },
                FrameKind::Extended => Means::Extended { id: frame.id, content: digits_of(&frame.content) },
                FrameKind::Piece => Means::Piece { id: frame.id, content: digits_of(&frame.content) },
                FrameKind::Reserved => Means::Nothing,
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(found, means, "{name}");
        }
    }
}

#[test]
fn encoded_frames_equal_the_vectors() {
    let vectors: Vec<_> = vectors().into_iter().filter(|vector| vector.encodes).collect();
    for Vector { name, hex, means, .. } in &vectors {
        assert_eq!(digits_of(&written(means)), *hex, "{name}");
    }
    assert_eq!(vectors.len(), 10);
}

/// Returns the meaning of a control frame.
fn said(control: Control) -> Means {
    match control {
        Control::Hello(hello) => Means::Hello {
            features: bits(hello.features),
            content_len_max: hello.content_len_max,
            streams_max: hello.streams_max,
            window: hello.window,
            cancel_burst: hello.cancel_burst,
            parts: ["frpc", "chat", ""]
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), digits_of(hello.part(name)?))))
                .collect(),
        },
        Control::Credit { id, len } => Means::Credit { id, len },
        Control::GoAway(GoAway { code, text }) => Means::GoAway { code, text: text.into() },
        Control::Cancel(PacketName { id, operation }) => Means::Cancel { id, operation: operation.number() },
        Control::Cancelled(PacketName { id, operation }) => Means::Cancelled { id, operation: operation.number() },
        other => panic!("{other:?}"),
    }
}

/// Has a side say something, and returns its bytes.
fn written(means: &Means) -> Vec<u8> {
    if let Means::Hello { features, content_len_max, streams_max, window, cancel_burst, parts } = means {
        let mut hello = Hello::new(&Config::default());
        hello.features = FEATURES
            .into_iter()
            .filter(|(bit, _)| features & bit != 0)
            .fold(Features::default(), |all, (_, feature)| all.with(feature));
        (hello.content_len_max, hello.streams_max) = (*content_len_max, *streams_max);
        (hello.window, hello.cancel_burst) = (*window, *cancel_burst);
        // In the order of the vectors, which is that of their names backwards.
        for (name, part) in parts.iter().rev() {
            hello = hello.with_part(name.clone().leak(), bytes_of(part).into());
        }
        let mut content = vec![1];
        hello.encode(&mut content);
        return frame(0, 3, &content);
    }
    let config = Config { extended: true, streams_max: 2, streams_len_max: 8000, ..quiet() };
    // No window is wider than that.
    let config = Config { stream_queue_len_max: 1000, ..config };
    let mut pair = Pair::with(config.clone(), config);
    pair.exchange();
    let name = |id: u16, number: u16| match number {
        4 => PacketName { id, operation: Operation::EXTENDED },
        number => PacketName { id, operation: Operation::new(number).expect("not reserved") },
    };
    let now = pair.client.now;
    let speaker = match means {
        Means::Credit { len, .. } => {
            let key = pair.client.open_stream().expect("there are few");
            // A frame costs 64 more than its content.
            pair.client.send_on(key, zeros(*len as usize - 64).into()).expect("it is open");
            pair.exchange();
            let opened = |event| if let InputEvent::StreamOpened(key) = event { Some(key) } else { None };
            let key = pair.server.events().into_iter().find_map(opened).expect("one was opened");
            pair.server.read_all(key);
            &mut pair.server
        }
        Means::GoAway { code, text } => {
            assert!(pair.server.go_away(GoAway { code: *code, text: text.as_str().into() }));
            &mut pair.server
        }
        Means::Cancel { id, operation } => {
            assert!(pair.client.cancel(now, name(*id, *operation)));
            &mut pair.client
        }
        Means::Cancelled { id, operation } => {
            pair.client.cancel(now, name(*id, *operation));
            pair.exchange();
            pair.server.cancelled(name(*id, *operation));
            &mut pair.server
        }
        Means::Extended { id, content } => {
            pair.client.send(Packet::new(*id, Operation::EXTENDED, bytes_of(content))).expect("the peer is extended");
            &mut pair.client
        }
        other => panic!("nobody says {other:?}"),
    };
    speaker.write();
    speaker.wire.to_vec()
}

fn bits(features: Features) -> u32 {
    FEATURES.into_iter().filter(|(_, feature)| features.contains(*feature)).map(|(bit, _)| bit).sum()
}

#[derive(Deserialize)]
struct File {
    frames: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    hex: String,
    means: Means,
    #[serde(default)]
    encodes: bool,
}

/// The meaning of a frame. Bytes are hexadecimal.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(tag = "kind")]
enum Means {
    #[serde(rename = "HELLO")]
    Hello {
        features: u32,
        content_len_max: u32,
        streams_max: Option<u32>,
        window: Option<u32>,
        cancel_burst: Option<u32>,
        parts: BTreeMap<String, String>,
    },
    #[serde(rename = "CREDIT")]
    Credit { id: u16, len: u32 },
    #[serde(rename = "GOAWAY")]
    GoAway { code: u8, text: String },
    #[serde(rename = "CANCEL")]
    Cancel { id: u16, operation: u16 },
    #[serde(rename = "CANCELLED")]
    Cancelled { id: u16, operation: u16 },
    #[serde(rename = "EXTENDED")]
    Extended { id: u16, content: String },
    #[serde(rename = "PIECE")]
    Piece { id: u16, content: String },
    /// The frame is ignored.
    #[serde(rename = "nothing")]
    Nothing,
    /// The connection is closed.
    #[serde(rename = "error")]
    Error,
}

fn vectors() -> Vec<Vector> {
    let file: File = serde_json::from_str(VECTORS).expect("the vectors are JSON");
    file.frames
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("the vectors are hexadecimal");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn digits_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const FEATURES: [(u32, Features); 5] = [
    (1, Features::CREDIT),
    (2, Features::CANCEL),
    (4, Features::GOAWAY),
    (8, Features::PIECES),
    (0x100, Features::LEAVES),
];
const VECTORS: &str = include_str!("../../../../tests/vectors/protocol.json");
