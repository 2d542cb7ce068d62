//! Conversations from the vectors of docs/protocol.md. Our server and our client each send exactly the bytes given
//! there.

use std::future::pending;

use frpc::{
    CallError, CallSettings, Channel, Code, CompressionSettings, Config, Head, Metadata, RefusalReason, Request,
    Response, Server, Status, Streaming,
};
use futures_util::StreamExt;
use serde::Deserialize;
use support::{
    MILLI, SECOND,
    calls::{TestClient, TestServer, Words, next, quiet, schema::test_server::Test, stream_of, words},
    in_virtual_time,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

#[test]
fn the_server_writes_the_bytes_of_the_vectors() {
    let conversations = conversations("server");
    assert!(conversations.len() >= 15);
    for conversation in conversations {
        in_virtual_time(async move {
            let server = Server::builder().config(config()).compression(CompressionSettings {
                inflated_len_max: conversation.inflated_len_max(),
                ..CompressionSettings::default()
            });
            let server = server.calls(CallSettings { calls_max: conversation.calls_max(), ..CallSettings::default() });
            let server = server.add_service(TestServer::new(Vectors)).without_listener().unwrap();
            let (mut io, theirs) = duplex(64 * 1024);
            server.attach(theirs);
            conversation.play("client", &mut io, |_| {}).await;
        });
    }
}

#[test]
fn the_client_writes_the_bytes_of_the_vectors() {
    let conversations = conversations("client");
    assert!(conversations.len() >= 13);
    for conversation in conversations {
        in_virtual_time(async move {
            let (mut io, theirs) = duplex(64 * 1024);
            let channel = Channel::builder().config(config()).timeout(60 * SECOND);
            let channel = channel
                .compression(CompressionSettings {
                    inflated_len_max: conversation.inflated_len_max(),
                    ..CompressionSettings::default()
                })
                .attach(theirs)
                .await
                .unwrap();
            let (go_on, going_on) = mpsc::unbounded_channel();
            let mut calling: Option<JoinHandle<()>> = None;
            let client = TestClient::new(channel);
            let mut caller = Some((client.clone(), conversation.name.clone(), going_on));
            conversation
                .play("server", &mut io, |step| match step {
                    0 | 1 => {}
                    2 => {
                        let (client, name, going_on) = caller.take().unwrap();
                        calling = Some(tokio::spawn(async move { call(&client, &name, going_on).await }));
                    }
                    // Most callers send once.
                    _ => drop(go_on.send(())),
                })
                .await;
            drop(go_on);
            calling.unwrap().await.unwrap();
        });
    }
}

/// Makes the call of a conversation and checks its answer. If the caller sends twice, it waits for a signal.
async fn call(client: &TestClient, name: &str, mut going_on: mpsc::UnboundedReceiver<()>) {
    let mut say = Request::new(words("hi"));
    match name {
        "plain_call" | "method_with_another_number" | "method_with_other_messages" => {
            assert_eq!(client.say(say).await.unwrap().into_inner(), words("hi"));
        }
        "compressed_answer" => {
            assert_eq!(client.say(say).await.unwrap().into_inner(), words("ab".repeat(20)));
        }
        "compressed_stream_of_answers" => {
            let mut texts = client.count(words("a b")).await.unwrap().into_inner();
            assert_eq!((next(&mut texts).await, next(&mut texts).await), ("a".to_owned(), "ab".repeat(20)));
            assert!(texts.message().await.unwrap().is_none());
        }
        "method_whose_number_is_taken" => {
            assert_eq!(client.say(say).await.unwrap_err().code(), Code::Unimplemented);
        }
        "call_with_head" => {
            say.set_timeout(2 * SECOND);
            *say.metadata_mut() = asked();
            let answer = client.say(say).await.unwrap();
            assert_eq!((answer.metadata(), answer.trailers()), (&answered(), &trailers()));
            assert_eq!(answer.into_inner(), words("hi"));
        }
        "refused_call" => {
            let status = client.say(say).await.unwrap_err();
            let refused = matches!(status.call_error(), Some(CallError::Refused { why: RefusalReason::Busy }));
            assert!(refused && status.code() == Code::ResourceExhausted, "{status}");
        }
        "failed_call" => check_failure(&client.say(words("fail")).await.unwrap_err()),
        "withdrawn_call" | "withdrawn_request" => {
            let mut wait = Request::new(words("wait"));
            if name == "withdrawn_request" {
                wait.set_timeout(2 * SECOND);
            }
            tokio::select! {
                _ = client.say(wait) => panic!("nobody answers it"),
                told = going_on.recv() => told.unwrap(),
            }
        }
        "stream_of_answers" => {
            let mut request = Request::new(words("a b"));
            *request.metadata_mut() = asked();
            let answer = client.count(request).await.unwrap();
            let mut texts = answer.into_inner();
            assert_eq!((next(&mut texts).await, next(&mut texts).await), ("a".to_owned(), "b".to_owned()));
            assert!(texts.message().await.unwrap().is_none());
            assert_eq!(texts.trailers().await.unwrap(), Some(trailers()));
        }
        "stream_of_requests" => {
            assert_eq!(client.gather(stream_of("a b")).await.unwrap().into_inner(), words("a b"));
        }
        "conversation" => {
            let (sender, requests) = Streaming::channel(1);
            sender.send(words("a")).await.unwrap();
            let mut texts = client.chat(requests).await.unwrap().into_inner();
            assert_eq!(next(&mut texts).await, "re: a");
            going_on.recv().await.unwrap();
            drop(sender);
            assert!(texts.message().await.unwrap().is_none());
        }
        "failed_stream" => {
            let mut texts = client.count(words("a fail")).await.unwrap().into_inner();
            assert_eq!(next(&mut texts).await, "a");
            check_failure(&texts.message().await.unwrap_err());
        }
        other => panic!("no caller makes the call {other}"),
    }
}

/// Behaves as the vectors require: a call with metadata gets metadata and a trailer.
struct Vectors;

impl Vectors {
    async fn play(text: &str) -> Result<Words, Status> {
        match text {
            "fail" => Err(failure()),
            "wait" => pending().await,
            text => Ok(words(text)),
        }
    }

    fn with_head<T>(head: &Head, message: T) -> Response<T> {
        let mut response = Response::new(message);
        if !head.metadata().is_empty() {
            assert_eq!(*head.metadata(), asked());
            *response.metadata_mut() = answered();
        }
        response
    }
}

impl Test for Vectors {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let mut response = Self::with_head(request.head(), Self::play(&request.get_ref().text).await?);
        if !response.metadata().is_empty() {
            *response.trailers_mut() = trailers();
        }
        Ok(response)
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        let has_metadata = !request.head().metadata().is_empty();
        let texts: Vec<String> = request.get_ref().text.split(' ').map(str::to_owned).collect();
        let (sender, answers) = Streaming::channel(texts.len());
        for text in texts {
            match Self::play(&text).await {
                Ok(answer) => sender.send(answer).await.unwrap(),
                Err(status) => {
                    sender.fail(status).await;
                    return Ok(answers.into());
                }
            }
        }
        if has_metadata {
            sender.finish(trailers());
        }
        Ok(Self::with_head(request.head(), answers))
    }

    async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        let (mut texts, mut all) = (request.into_inner(), Vec::new());
        while let Some(Words { text }) = texts.message().await? {
            all.push(text);
        }
        Ok(words(all.join(" ")).into())
    }

    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        let texts = request.into_inner();
        Ok(Streaming::new(texts.map(|said| Ok(words(format!("re: {}", said?.text))))).into())
    }
}

fn asked() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.insert("x-id", "7").unwrap();
    metadata.insert_bin("trace-bin", &b"\x00\xff"[..]).unwrap();
    metadata
}

fn answered() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.insert("served-by", "vectors").unwrap();
    metadata
}

fn trailers() -> Metadata {
    let mut trailers = Metadata::new();
    trailers.insert_bin("cost-bin", &b"\x00\xff"[..]).unwrap();
    trailers
}

fn failure() -> Status {
    let mut metadata = Metadata::new();
    metadata.insert_bin("why-bin", &b"\x01"[..]).unwrap();
    Status::with_details_and_metadata(Code::NotFound, "no such order", vec![8, 5], metadata)
}

#[track_caller]
fn check_failure(status: &Status) {
    let expected = failure();
    assert_eq!((status.code(), status.message()), (expected.code(), expected.message()));
    assert_eq!((status.details(), status.metadata()), (expected.details(), expected.metadata()));
}

/// Limits of both sides in the vectors.
fn config() -> Config {
    Config { content_len_max: 1 << 20, streams_max: 100, streams_len_max: 1_000_000, cancel_burst: 50, ..quiet() }
}

impl Conversation {
    /// With 0, a side does not announce decompression.
    fn inflated_len_max(&self) -> usize {
        if self.name.starts_with("compressed") { 1 << 20 } else { 0 }
    }

    /// Returns the limit on concurrent calls that the server announces.
    fn calls_max(&self) -> Option<u32> {
        (self.name == "call_over_the_limit").then_some(1)
    }

    /// Plays one side of the conversation by hand: sends its bytes, and compares the bytes received with those of the
    /// other side. `before` is called with the number of each step.
    async fn play(&self, side: &str, io: &mut DuplexStream, mut before: impl FnMut(usize)) {
        let Self { name, steps, .. } = self;
        for (number, step) in steps.iter().enumerate() {
            before(number);
            for Frame { hex: digits, means } in &step.frames {
                let bytes = bytes_of(digits);
                if step.from == side {
                    io.write_all(&bytes).await.unwrap();
                    continue;
                }
                let mut found = vec![0; bytes.len()];
                let read = timeout(SECOND, io.read_exact(&mut found)).await;
                assert_eq!(digits_of(&found), *digits, "{name}, step {number}: {means}, {read:?}");
            }
        }
        before(steps.len());
        let mut rest = Vec::new();
        let ended = timeout(MILLI, io.read_buf(&mut rest)).await;
        assert!(ended.is_err(), "{name}: behind the end comes {}", digits_of(&rest));
    }
}

#[derive(Deserialize)]
struct File {
    conversations: Vec<Conversation>,
}

#[derive(Deserialize)]
struct Conversation {
    name: String,
    replay: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    from: String,
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
struct Frame {
    hex: String,
    means: String,
}

/// Returns the conversations that test one of our sides.
fn conversations(side: &str) -> Vec<Conversation> {
    let file: File = serde_json::from_str(VECTORS).expect("the vectors are JSON");
    file.conversations.into_iter().filter(|conversation| conversation.replay.iter().any(|of| of == side)).collect()
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("the vectors are hexadecimal");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn digits_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const VECTORS: &str = include_str!("../../vectors/protocol.json");
