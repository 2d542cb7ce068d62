//! Everything in a call except its messages: metadata, deadlines, trailers, status details and cancellation. In process
//! all of it arrives. Plain frisbee carries none of it, and reports the loss.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use frpc::{
    CallError, Channel, ChannelCallSettings, Code, Config, Head, LostMetadata, Metadata, MetadataValue, Request,
    Response, Server, Services, Status, Streaming, prost_types,
};
use support::{
    EventLog, Gate, SECOND, ThreadLog,
    calls::{
        TestClient, TestServer, TestService, Words, each_kind, peer_of_channel, quiet, quiet_channel,
        schema::test_server::Test, serve, words,
    },
    in_virtual_time, settle,
};
use tokio::{io::duplex, task::JoinSet};
use tracing::Level;

use crate::transport::{Served, Transport, over_every_transport, over_full_transports};

over_every_transport! {
    a_request_without_metadata_arrives_without
    extensions_are_not_sent
    the_source_of_a_status_is_not_sent
}

over_full_transports! {
    metadata_and_trailers_of_every_form_arrive
    stream_metadata_comes_first_and_trailers_last
    status_details_and_metadata_arrive
    an_answered_call_is_not_cancelled
    a_handler_learns_that_its_call_was_cancelled
    a_handler_sees_the_timeout_of_its_caller
}

/// Answers each call with its metadata as text, unless the text is a command. The command `mirror` also returns the
/// metadata as metadata, and adds trailers.
#[derive(Clone, Default)]
struct Mirror {
    log: EventLog,
    gate: Gate,
}

impl Mirror {
    /// Executes the command in a request and returns the text of the answer.
    async fn play(&self, text: &str, head: &Head) -> Result<String, Status> {
        match text {
            "wait" => {
                let (cancelled, log) = (head.cancelled(), self.log.clone());
                tokio::spawn(async move {
                    cancelled.await;
                    log.add("cancelled");
                });
                self.log.add("waits");
                self.gate.passed().await;
            }
            "time" => return Ok(format!("{:?} {}", head.timeout(), head.deadline().is_some())),
            "extension" => return Ok(format!("{:?}", head.extensions().get::<u32>())),
            "fail" => return Err(rich_status()),
            "source" => {
                let refused = CallError::TooManyCalls { limit: 1 };
                return Err(Status::aborted("elsewhere").with_source(Arc::new(refused) as Arc<_>));
            }
            _ => {}
        }
        Ok(shown(head.metadata()))
    }

    async fn one(&self, text: &str, head: &Head) -> Result<Response<Words>, Status> {
        let mut response = Response::new(words(self.play(text, head).await?));
        if text == "mirror" {
            *response.metadata_mut() = head.metadata().clone();
            *response.trailers_mut() = trailers();
        }
        Ok(response)
    }

    async fn many(&self, text: &str, head: &Head) -> Result<Response<Streaming<Words>>, Status> {
        let answer = self.play(text, head).await?;
        let (sender, answers) = Streaming::channel(1);
        let mut response = Response::new(answers);
        let is_mirror = text == "mirror";
        if is_mirror {
            *response.metadata_mut() = head.metadata().clone();
        }
        tokio::spawn(async move {
            for text in ["first".into(), answer] {
                if sender.send(words(text)).await.is_err() {
                    return;
                }
            }
            if is_mirror {
                sender.finish(trailers());
            }
        });
        Ok(response)
    }
}

async fn only(request: &mut Request<Streaming<Words>>) -> Result<String, Status> {
    let message = request.get_mut().message().await?;
    Ok(message.map(|Words { text }| text).unwrap_or_default())
}

impl Test for Mirror {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        self.one(&request.get_ref().text, request.head()).await
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        self.many(&request.get_ref().text, request.head()).await
    }

    async fn gather(&self, mut request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        let text = only(&mut request).await?;
        self.one(&text, request.head()).await
    }

    async fn chat(&self, mut request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        let text = only(&mut request).await?;
        self.many(&text, request.head()).await
    }
}

/// The answer to a call.
#[derive(Debug, Default, PartialEq)]
struct Reply {
    /// Text of the last message.
    text: String,
    metadata: Metadata,
    trailers: Metadata,
}

impl Reply {
    fn of_one(response: Response<Words>) -> Self {
        let (metadata, trailers) = (response.metadata().clone(), response.trailers().clone());
        Self { text: response.into_inner().text, metadata, trailers }
    }

    async fn of_many(response: Response<Streaming<Words>>) -> Result<Self, Status> {
        let (mut answers, mut text) = (response.into_inner(), String::new());
        while let Some(message) = answers.message().await? {
            text = message.text;
        }
        let metadata = answers.metadata().cloned().unwrap_or_default();
        let trailers = answers.trailers().await?.unwrap_or_default();
        Ok(Self { text, metadata, trailers })
    }
}

/// Makes a call of each kind with the same text and metadata.
async fn each_reply(client: &TestClient, text: &str, metadata: &Metadata) -> [Result<Reply, Status>; 4] {
    let (one, stream) = (|| with(metadata, words(text)), || with(metadata, Streaming::from_iter([words(text)])));
    [
        client.say(one()).await.map(Reply::of_one),
        async { Reply::of_many(client.count(one()).await?).await }.await,
        client.gather(stream()).await.map(Reply::of_one),
        async { Reply::of_many(client.chat(stream()).await?).await }.await,
    ]
}

fn with<T>(metadata: &Metadata, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !metadata.is_empty() {
        *request.metadata_mut() = metadata.clone();
    }
    request
}

/// Returns metadata in every form: ASCII, binary, and several values for a name.
fn every_form() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.insert("authorization", "Bearer s3cret").unwrap();
    metadata.append("forwarded", "first").unwrap();
    metadata.append("forwarded", "second").unwrap();
    metadata.insert_bin("trace-bin", Bytes::from_static(&[0, 0xff, 7])).unwrap();
    metadata.append_bin("trace-bin", Bytes::new()).unwrap();
    metadata
}

fn shown(metadata: &Metadata) -> String {
    let values = metadata.iter().map(|(name, value)| match value {
        MetadataValue::Ascii(value) => format!("{name}={value}"),
        MetadataValue::Binary(value) => format!("{name}={}", value.escape_ascii()),
    });
    values.collect::<Vec<_>>().join(" ")
}

fn trailers() -> Metadata {
    let mut trailers = Metadata::new();
    trailers.insert("rows", "2").unwrap();
    trailers
}

const RETRY_IN: prost_types::Duration = prost_types::Duration { seconds: 3, nanos: 0 };

/// Returns a status with typed details and metadata.
fn rich_status() -> Status {
    let detail = prost_types::Any::from_msg(&RETRY_IN).unwrap();
    let mut status = Status::with_error_details(Code::Unavailable, "come back later", [detail]);
    *status.metadata_mut() = every_form();
    status
}

async fn mirror(transport: Transport) -> (Mirror, Served, TestClient) {
    let mirror = Mirror::default();
    let served = transport.serve(Services::new().add_service(TestServer::new(mirror.clone()))).await;
    let client = TestClient::new(served.channel.clone());
    (mirror, served, client)
}

fn a_request_without_metadata_arrives_without(transport: Transport) {
    in_virtual_time(async {
        let (_service, served, client) = transport.serve_and_connect().await;
        for result in each_reply(&client, "hi", &Metadata::new()).await {
            let reply = result.unwrap();
            assert!(reply.text.ends_with("hi"), "{reply:?}");
            assert!(reply.metadata.is_empty() && reply.trailers.is_empty(), "{reply:?}");
        }
        served.assert_unharmed().await;
    });
}

fn extensions_are_not_sent(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = transport.serve_and_connect().await;
        let mut request = Request::new(words("extension"));
        request.extensions_mut().insert(7_u32);
        assert_eq!(client.say(request).await.unwrap().into_inner(), words("None"));
    });
}

/// The failure of a handler's own call must not look like a failure of the outer call.
fn the_source_of_a_status_is_not_sent(transport: Transport) {
    in_virtual_time(async {
        let (_mirror, _served, client) = mirror(transport).await;
        for result in each_kind(&client, "source").await {
            let status = result.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Aborted, "elsewhere"));
            assert!(status.call_error().is_none(), "{status:?}");
        }
    });
}

fn metadata_and_trailers_of_every_form_arrive(transport: Transport) {
    in_virtual_time(async {
        let (_mirror, _served, client) = mirror(transport).await;
        let metadata = every_form();
        let text = "authorization=Bearer s3cret forwarded=first forwarded=second trace-bin=\\x00\\xff\\x07 trace-bin=";
        for result in each_reply(&client, "mirror", &metadata).await {
            let expected = Reply { text: text.into(), metadata: metadata.clone(), trailers: trailers() };
            assert_eq!(result.unwrap(), expected);
        }
    });
}

fn stream_metadata_comes_first_and_trailers_last(transport: Transport) {
    in_virtual_time(async {
        let (_mirror, _served, client) = mirror(transport).await;
        let mut answers = client.count(with(&every_form(), words("mirror"))).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap(), Some(words("first")));
        assert_eq!(answers.metadata(), Some(&every_form()));
        assert_eq!(answers.trailers().await.unwrap(), Some(trailers()), "what was not read is discarded");
        assert_eq!(answers.message().await.unwrap(), None);
    });
}

/// Makes a call of each kind with a timeout of 5 s. Returns the timeouts seen by the handlers.
async fn each_time(client: &TestClient) -> [String; 4] {
    let (mut one, mut stream) = (Request::new(words("time")), Request::new(Streaming::from_iter([words("time")])));
    let mut chat = Request::new(Streaming::from_iter([words("time")]));
    one.set_timeout(5 * SECOND);
    stream.set_timeout(5 * SECOND);
    chat.set_timeout(5 * SECOND);
    [
        client.say(one.clone()).await.unwrap().into_inner().text,
        Reply::of_many(client.count(one).await.unwrap()).await.unwrap().text,
        client.gather(stream).await.unwrap().into_inner().text,
        Reply::of_many(client.chat(chat).await.unwrap()).await.unwrap().text,
    ]
}

fn a_handler_sees_the_timeout_of_its_caller(transport: Transport) {
    in_virtual_time(async {
        let (_mirror, _served, client) = mirror(transport).await;
        assert_eq!(each_time(&client).await, ["Some(5s) true"; 4]);
    });
}

#[test]
fn an_in_process_handler_sees_the_channel_timeout() {
    in_virtual_time(async {
        let (_mirror, _served, client) = mirror(Transport::InProcess).await;
        let [say, rest @ ..] = each_kind(&client, "time").await.map(Result::unwrap);
        assert_eq!(say, "Some(30s) true", "the timeout of the channel");
        assert_eq!(
            rest,
            ["first None false", "None false", "first None false"],
            "streams may take as long as they like"
        );
    });
}

#[test]
fn plain_frisbee_carries_no_timeout() {
    in_virtual_time(async {
        let (_mirror, _served, client) = mirror(Transport::Frisbee).await;
        assert_eq!(each_time(&client).await, ["None false"; 4]);
    });
}

fn status_details_and_metadata_arrive(transport: Transport) {
    in_virtual_time(async {
        let (_mirror, _served, client) = mirror(transport).await;
        for result in each_reply(&client, "fail", &Metadata::new()).await {
            let status = result.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Unavailable, "come back later"));
            assert_eq!(status.error_detail(), Some(RETRY_IN));
            assert_eq!(status.metadata(), &every_form());
        }
    });
}

/// Starts a waiting call of this kind. Dropping the returned set cancels the call.
async fn waiting(client: &TestClient, kind: usize, timeout: Option<Duration>) -> JoinSet<Option<Code>> {
    let mut calls = JoinSet::new();
    let client = client.clone();
    calls.spawn(async move {
        let mut one = Request::new(words("wait"));
        let mut stream = Request::new(Streaming::from_iter([words("wait")]));
        timeout.inspect(|timeout| one.set_timeout(*timeout));
        timeout.inspect(|timeout| stream.set_timeout(*timeout));
        let result = match kind {
            0 => client.say(one).await.map(Reply::of_one),
            1 => async { Reply::of_many(client.count(one).await?).await }.await,
            2 => client.gather(stream).await.map(Reply::of_one),
            _ => async { Reply::of_many(client.chat(stream).await?).await }.await,
        };
        result.err().map(|status| status.code())
    });
    settle().await;
    calls
}

fn a_handler_learns_that_its_call_was_cancelled(transport: Transport) {
    in_virtual_time(async {
        let (mirror, _served, client) = mirror(transport).await;
        for kind in 0..4 {
            let call = waiting(&client, kind, None).await;
            assert_eq!(mirror.log.take(), ["waits"], "{kind}");
            drop(call);
            settle().await;
            assert_eq!(mirror.log.take(), ["cancelled"], "{kind}");

            let mut call = waiting(&client, kind, Some(SECOND)).await;
            assert_eq!(mirror.log.take(), ["waits"], "{kind}");
            assert_eq!(call.join_next().await.unwrap().unwrap(), Some(Code::DeadlineExceeded), "{kind}");
            settle().await;
            assert_eq!(mirror.log.take(), ["cancelled"], "{kind}");
        }
    });
}

fn an_answered_call_is_not_cancelled(transport: Transport) {
    in_virtual_time(async {
        let (mirror, _served, client) = mirror(transport).await;
        for kind in 0..4 {
            let mut call = waiting(&client, kind, None).await;
            mirror.gate.open(1);
            assert_eq!(call.join_next().await.unwrap().unwrap(), None, "{kind}");
            drop(call);
            settle().await;
            assert_eq!(mirror.log.take(), ["waits"], "{kind}");
        }
    });
}

#[test]
fn a_handler_learns_of_the_end_of_its_connection() {
    in_virtual_time(async {
        for kind in 0..4 {
            let (mirror, served, client) = mirror(Transport::Frisbee).await;
            let call = waiting(&client, kind, None).await;
            assert_eq!(mirror.log.take(), ["waits"], "{kind}");
            // Dropping the server closes its connections.
            drop(served.server);
            settle().await;
            assert_eq!(mirror.log.take(), ["cancelled"], "{kind}");
            drop(call);
        }
    });
}

#[test]
fn metadata_fails_calls_over_plain_frisbee() {
    in_virtual_time(async {
        let plain = Config { extended: false, ..quiet() };
        let (client, mut peer) = peer_of_channel(quiet_channel().config(plain)).await;
        for result in each_reply(&client, "hi", &every_form()).await {
            let status = result.unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
            let error = status.call_error().unwrap();
            assert!(matches!(error, CallError::MetadataNotCarried { name } if name == "authorization"), "{error:?}");
            assert!(error.is_safe_to_repeat());
        }
        assert!(peer.heard().await.is_empty());
    });
}

/// Returns a frisbee channel that accepts the loss of metadata with a warning, and its server.
async fn channel_that_warns() -> (Server, Channel) {
    let server = serve(&TestService::default());
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    let plain = Config { extended: false, ..quiet() };
    let channel = quiet_channel()
        .config(plain)
        .calls(ChannelCallSettings { lost_metadata: LostMetadata::Warn, ..ChannelCallSettings::default() })
        .attach(ours)
        .await
        .unwrap();
    (server, channel)
}

#[test]
fn metadata_is_dropped_over_plain_frisbee_if_allowed() {
    in_virtual_time(async {
        let (_server, channel) = channel_that_warns().await;
        let client = TestClient::new(channel);
        let log = ThreadLog::hear(Level::WARN);
        for result in each_reply(&client, "hi", &every_form()).await {
            assert!(result.unwrap().text.ends_with("hi"));
        }
        let expected = ["Say", "Count", "Gather", "Chat"].map(|method| {
            let lost = "the peer speaks plain fRPC, which carries no metadata: the call goes without";
            format!("WARN {lost} method=calls.Test/{method} name=\"authorization\"")
        });
        assert_eq!(log.take(), expected, "a line for each call, and never a value");
    });
}

#[test]
fn a_channel_over_a_connection_rejects_metadata_too() {
    in_virtual_time(async {
        let (_server, channel) = channel_that_warns().await;
        settle().await;
        let client = TestClient::new(Channel::over(&channel.connection().unwrap()).unwrap());
        let status = client.say(with(&every_form(), words("hi"))).await.unwrap_err();
        assert!(matches!(status.call_error(), Some(CallError::MetadataNotCarried { .. })), "{status}");
    });
}

/// The only test in this binary that loses anything. The warning appears once per process and would otherwise show up
/// in another test.
#[test]
fn handler_metadata_over_plain_frisbee_is_lost_and_logged() {
    in_virtual_time(async {
        let (_mirror, served, client) = mirror(Transport::Frisbee).await;
        let log = ThreadLog::hear(Level::DEBUG);
        for result in each_reply(&client, "mirror", &Metadata::new()).await {
            let reply = result.unwrap();
            assert!(reply.metadata.is_empty() && reply.trailers.is_empty(), "{reply:?}");
        }
        for result in each_reply(&client, "fail", &Metadata::new()).await {
            let status = result.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Unavailable, "come back later"));
            assert!(status.details().is_empty() && status.metadata().is_empty());
        }
        let told = log.take().into_iter().filter(|line| line.contains("which does not carry this")).collect::<Vec<_>>();
        let (warnings, others): (Vec<_>, Vec<_>) = told.iter().partition(|line| line.starts_with("WARN"));
        let lost = "the peer speaks plain fRPC, which does not carry this (told once)";
        assert_eq!(warnings, [&format!("WARN {lost} method=calls.Test/Say what=\"trailers\" len=1")]);
        // The trailers of three more calls, and the details and metadata of four statuses.
        assert_eq!(others.len(), 3 + 2 * 4, "{others:#?}");
        served.assert_unharmed().await;
    });
}
