//! A service without message types: messages are text in every format.

use std::future::pending;

use bytes::Bytes;
use frpc::{Answer, Body, Call, Code, Metadata, Method, Service, Status, Streaming, prost_types::Any};
use futures_util::StreamExt;

/// Executes the command in each message, and echoes unknown ones.
pub(crate) struct Probe;

const NAME: &str = "probe.Probe";

impl Service for Probe {
    const NAME: &'static str = NAME;
    const METHODS: &'static [Method] = &[
        Method::unary(NAME, "Say", 10),
        Method::unary(NAME, "Look", 11).without_side_effects(),
        Method::server_streaming(NAME, "Count", 12),
        Method::client_streaming(NAME, "Gather", 13),
        Method::bidirectional(NAME, "Chat", 14),
    ];

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        let format = call.format().to_string();
        let (head, body) = call.into_parts();
        let play = move |message: Bytes| {
            let text = String::from_utf8(message.to_vec()).unwrap();
            Ok(Bytes::from(match text.as_str() {
                "fail" => return Err(failure()),
                "format" => format.clone(),
                "metadata" => format!("{:?}", head.metadata()),
                "time" => format!("{:?}", head.timeout()),
                "peer" => format!("{:?}", head.peer_addr().map(|address| address.to_string())),
                _ => text,
            }))
        };
        let body = match (method, body) {
            (_, Body::One(message)) if &message.clone().into_bytes()[..] == b"hang" => pending().await,
            (0 | 1, Body::One(message)) => Body::from(play(message.into_bytes())?),
            (2, Body::One(message)) => {
                let words: Vec<Bytes> =
                    message.into_bytes().split(|byte| *byte == b' ').map(Bytes::copy_from_slice).collect();
                let words = Streaming::from_iter(words).map(move |word| word.and_then(&play));
                Body::Many(Streaming::new(words).with_trailers(metadata("end")))
            }
            (3, Body::Many(mut messages)) => {
                let mut all = Vec::new();
                while let Some(message) = messages.message().await? {
                    all.push(play(message)?);
                }
                Body::from(all.join(&b' '))
            }
            (4, Body::Many(messages)) => {
                Body::Many(Streaming::new(messages.map(move |message| message.and_then(&play))))
            }
            (_, body) => panic!("{method} with {body:?}"),
        };
        let mut answer = Answer::new(body);
        *answer.metadata_mut() = metadata("head");
        *answer.trailers_mut() = metadata("tail");
        Ok(answer)
    }
}

/// Returns metadata with this name, as text and as bytes.
fn metadata(name: &str) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.insert(name, "7").unwrap();
    metadata.insert_bin(format!("{name}-bin"), [0xff, 0]).unwrap();
    metadata
}

fn failure() -> Status {
    let detail = Any { type_url: "type.googleapis.com/probe.Hint".to_owned(), value: vec![8, 1] };
    let mut status = Status::with_error_details(Code::NotFound, "no \"such\" word", [detail]);
    *status.metadata_mut() = metadata("why");
    status
}
