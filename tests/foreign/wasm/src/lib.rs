//! The conversation of the client on WebAssembly with the service of our tests.
#![cfg(target_family = "wasm")]
#![allow(clippy::unwrap_used, reason = "a panic fails the conversation")]

use std::{fmt::Debug, panic, time};

use frisbee_wasm::{join, select, sync::Notify};
use frpc::{
    Channel, Code, ConnectRetry, Method, Request, Response, Status, Streaming,
    fleet::{Endpoint, Target},
    prost_types::Duration,
};
use futures_util::{StreamExt, future::join_all, stream};
use protos::{
    Words,
    callback_server::{Callback, CallbackServer},
    test_client::TestClient,
    test_methods,
};
use wasm_bindgen::prelude::wasm_bindgen;

/// Generated from the schema of the test service.
pub mod protos {
    #![allow(missing_docs, reason = "the schema has no comments")]
    frpc::include_proto!("calls");
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn print_error(text: &str);
}

/// Holds the conversation with the server at a URL. The server at the other URL refuses WebSockets.
///
/// # Panics
///
/// Panics at the first wrong answer. The console has the reason.
#[wasm_bindgen]
pub async fn converse(url: String, refusing: String) {
    panic::set_hook(Box::new(|panic| print_error(&panic.to_string())));
    let channel = Channel::builder()
        .transport(frpc_websocket::transport())
        .add_service(CallbackServer::new(Answering))
        .connect(&*url)
        .await
        .unwrap();
    let test = TestClient::new(channel);
    calls_of_each_kind(&test).await;
    large_and_many_messages(&test).await;
    metadata_and_failures(&test).await;
    deadlines_and_cancellation(&test).await;
    calls_of_the_server(&test).await;
    reconnection(&test).await;
    retries(&url).await;
    refusals(&refusing).await;
}

async fn calls_of_each_kind(test: &TestClient) {
    same(say(test, "hi ☺").await, Ok("hi ☺".into()));
    same(count(test, "a, b, c").await, Ok(list(&["a", "b", "c"])));
    same(text(test.gather(words(&["a", "b"])).await), Ok("a b".into()));
    same(texts(test.chat(words(&["a", "b"])).await).await, Ok(list(&["re: a", "re: b"])));

    // Each message is sent after the answer to the one before.
    let answered = std::sync::Arc::new(Notify::new());
    let turns = stream::unfold((0, answered.clone()), async |(turn, answered)| {
        if turn > 0 {
            answered.notified().await;
        }
        (turn < 3).then(|| (Ok(word(&turn.to_string())), (turn + 1, answered)))
    });
    let mut answers = test.chat(Streaming::new(turns)).await.unwrap().into_inner();
    for turn in 0..3 {
        same(answers.message().await.unwrap(), Some(word(&format!("re: {turn}"))));
        answered.notify_one();
    }
    same(answers.message().await.unwrap(), None);
}

async fn large_and_many_messages(test: &TestClient) {
    let many = join_all((0..500).map(|number| async move { say(test, &number.to_string()).await.unwrap() })).await;
    same(many, (0..500).map(|number| number.to_string()).collect());
    same(say(test, "large 1000000").await.unwrap().len(), 1_000_000);
    same(say(test, &"y".repeat(1_000_000)).await.unwrap().len(), 1_000_000);
    // Far more than a window of credit, both ways.
    let lengths = count(test, &["large 20000"; 100].join(", ")).await.unwrap();
    same(lengths.iter().map(String::len).collect(), vec![20_000; 100]);
    let long = "z".repeat(20_000);
    same(text(test.gather(words(&[&*long; 100])).await).unwrap().len(), 100 * 20_001 - 1);
}

async fn metadata_and_failures(test: &TestClient) {
    let mut request = Request::new(word("hi"));
    request.metadata_mut().insert("echo-text", "one").unwrap();
    request.metadata_mut().insert_bin("echo-bytes-bin", [0, 255]).unwrap();
    let response = test.say(request).await.unwrap();
    same(response.metadata().get("echo-text"), Some("one"));
    same(response.metadata().get_bin("echo-bytes-bin"), Some(&[0, 255][..]));
    same(response.trailers().get("echo-text"), Some("one"));

    same(say(test, "fail 5 no such word").await, Err((Code::NotFound, "no such word".into())));
    same(count(test, "a, fail 9 not now").await, Err((Code::FailedPrecondition, "not now".into())));
    same(text(test.gather(words(&["fail 7 you"])).await), Err((Code::PermissionDenied, "you".into())));
    same(say(test, "panic").await.unwrap_err().0, Code::Internal);
    let explained = test.say(word("explain too late")).await.unwrap_err();
    same((explained.code(), explained.message()), (Code::InvalidArgument, "too late"));
    let details = explained.error_details();
    same(details[0].to_msg::<Duration>().unwrap(), Duration { seconds: 3, nanos: 0 });
}

async fn deadlines_and_cancellation(test: &TestClient) {
    same(test.say(soon("wait")).await.unwrap_err().code(), Code::DeadlineExceeded);
    same(texts(test.count(soon("first wait")).await).await.unwrap_err().0, Code::DeadlineExceeded);
    // A dropped call and a dropped stream. The server asserts that their handlers end.
    select! {
        _ = test.say(word("wait")) => panic!("the call should wait"),
        answer = say(test, "hi") => same(answer, Ok("hi".into())),
    }
    let mut ticks = test.count(word("endless tick")).await.unwrap().into_inner();
    same(ticks.message().await.unwrap(), Some(word("tick")));
}

async fn calls_of_the_server(test: &TestClient) {
    same(say(test, "back say hi").await, Ok("client heard hi".into()));
    same(say(test, "back count a b").await, Ok("a b".into()));
    same(say(test, "back gather a b c").await, Ok("a+b+c".into()));
    same(say(test, "back chat a b").await, Ok("client: a client: b".into()));
    same(say(test, "back say fail").await, Err((Code::AlreadyExists, "twice".into())));
}

/// The server closes the connection. The running call fails, and the next call gets a new connection.
async fn reconnection(test: &TestClient) {
    same(say(test, "visit").await, Ok("1".into()));
    same(say(test, "visit").await, Ok("2".into()));
    let (lost, bye) = join!(count(test, "first wait"), say(test, "bye"));
    same(lost.unwrap_err().0, Code::Unavailable);
    same(bye.unwrap_err().0, Code::Aborted);
    same(say(test, "visit").await, Ok("1".into()));
}

/// Unavailable calls are repeated if they are idempotent. The server asserts the number of attempts.
async fn retries(url: &str) {
    let servers = Target::endpoints([Endpoint::new(url).unwrap()]).unwrap();
    let channel = Channel::builder().transport(frpc_websocket::transport()).connect(servers).await.unwrap();
    same(say(&TestClient::new(channel.clone()), "fail 14 once").await, Err((Code::Unavailable, "once".into())));
    let repeated = channel.unary::<_, Words>(&IDEMPOTENT, word("fail 14 again")).await;
    same(text(repeated), Err((Code::Unavailable, "again".into())));
}

/// Servers without WebSocket, and schemes of other platforms.
async fn refusals(refusing: &str) {
    let once = ConnectRetry { attempts: 1, ..ConnectRetry::default() };
    let builder = Channel::builder().transport(frpc_websocket::transport()).retry(once);
    let unavailable = builder.connect(refusing).await.unwrap_err();
    assert!(unavailable.to_string().contains("the browser cannot open"), "{unavailable}");
    let no_sockets = Channel::builder().retry(once).connect("tcp://127.0.0.1:9").await.unwrap_err();
    assert!(no_sockets.to_string().contains("a browser has no TCP sockets"), "{no_sockets}");
}

static IDEMPOTENT: Method = test_methods::SAY.idempotent();

/// The service offered to the server.
struct Answering;

impl Callback for Answering {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        match &*request.get_ref().text {
            "fail" => Err(Status::already_exists("twice")),
            text => Ok(word(&format!("client heard {text}")).into()),
        }
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        Ok(words(&request.get_ref().text.split(' ').collect::<Vec<_>>()).into())
    }

    async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        let (mut all, mut received) = (Vec::new(), request.into_inner());
        while let Some(Words { text }) = received.message().await? {
            all.push(text);
        }
        Ok(word(&all.join("+")).into())
    }

    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        let answers = request.into_inner().map(|next| next.map(|Words { text }| word(&format!("client: {text}"))));
        Ok(Streaming::new(answers).into())
    }
}

/// A code and a message.
type Failure = (Code, String);

async fn say(test: &TestClient, command: &str) -> Result<String, Failure> {
    text(test.say(word(command)).await)
}

async fn count(test: &TestClient, command: &str) -> Result<Vec<String>, Failure> {
    texts(test.count(word(command)).await).await
}

fn text(answer: Result<Response<Words>, Status>) -> Result<String, Failure> {
    answer.map(|answer| answer.into_inner().text).map_err(failure)
}

async fn texts(answer: Result<Response<Streaming<Words>>, Status>) -> Result<Vec<String>, Failure> {
    let (mut all, mut received) = (Vec::new(), answer.map_err(failure)?.into_inner());
    while let Some(Words { text }) = received.message().await.map_err(failure)? {
        all.push(text);
    }
    Ok(all)
}

fn failure(status: Status) -> Failure {
    (status.code(), status.message().to_owned())
}

fn word(text: &str) -> Words {
    Words { text: text.into() }
}

fn words(texts: &[&str]) -> Streaming<Words> {
    Streaming::from_iter(texts.iter().map(|text| word(text)).collect::<Vec<_>>())
}

fn list(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// Returns a request with a short timeout.
fn soon(text: &str) -> Request<Words> {
    let mut request = Request::new(word(text));
    request.set_timeout(time::Duration::from_millis(50));
    request
}

#[track_caller]
fn same<T: Debug + PartialEq>(actual: T, expected: T) {
    assert_eq!(actual, expected);
}
