//! Strangers on the bus: garbage, floods, and messages to the inboxes of others.

use std::time::Duration;

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use frpc::{Channel, Code, Request, Status, Streaming};
use frpc_nats::Announcement;
use futures_util::StreamExt;
use support::{
    NatsProgram, SECOND,
    calls::{TestClient, TestServer, TestService, all, ask, asking, next, words},
    in_real_time, until,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::common::{Setup, cluster, connect, round_trip};

fn headers(entries: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in entries {
        headers.append(*name, *value);
    }
    headers
}

#[test]
fn every_odd_request_with_a_reply_subject_is_answered() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let setup = Setup::start(program, TestServer::new(TestService::default())).await;
        let stranger = async_nats::connect(setup.nats.url()).await.unwrap();
        let long = "x".repeat(100_000);
        let (say, count) = ("test.test.Test.Say", "test.test.Test.Count");
        for (subject, entries, payload) in [
            (say, headers(&[("Rpc-Call", "dance")]), "{}"),
            (say, headers(&[("Rpc-Call", "unary"), ("Rpc-Timeout-Us", "soon")]), ""),
            (say, headers(&[("Rpc-Call", "unary"), ("Rpc-Timeout-Us", "0")]), ""),
            (say, headers(&[("Content-Type", "text/html")]), ""),
            (say, headers(&[("Content-Type", "application/protobuf")]), "\u{7f}\u{7f}"),
            (say, headers(&[("x-bytes-bin", "***")]), "{}"),
            (say, headers(&[("x-long", &long)]), "{}"),
            (say, headers(&[]), "[[[[[["),
            (count, headers(&[]), "{}"),
            ("test.test.Test.Nothing", headers(&[]), "{}"),
            ("test.a", headers(&[]), "{}"),
            ("test.a.b.c.d.e.f.g.h", headers(&[("Rpc-Call", "stream")]), ""),
        ] {
            let answer = stranger.request_with_headers(subject, entries.clone(), payload.into()).await.unwrap();
            let found = answer.headers.unwrap_or_default();
            assert!(
                found.get("Rpc-Status").is_some() && found.get("Nats-Service-Error").is_some(),
                "{subject} {entries:?}"
            );
        }
        // Nobody to answer.
        for subject in [say, count, "$SRV.PING", "$SRV.INFO.test", "_FRPC.cancel.test"] {
            stranger.publish(subject, "\u{0}garbage".into()).await.unwrap();
        }
        assert!(stranger.request("$SRV.PING.test", "".into()).await.is_ok());
        let client = TestClient::new(setup.connect().await);
        assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
    });
}

/// Listens to everything, as a stranger with these permissions can, and returns messages of interest.
struct Spy {
    client: async_nats::Client,
    messages: async_nats::Subscriber,
}

impl Spy {
    async fn start(nats: &support::NatsServer) -> Self {
        let client = async_nats::connect(nats.url()).await.unwrap();
        let messages = client.subscribe("_INBOX.>").await.unwrap();
        round_trip(&client).await;
        Self { client, messages }
    }

    /// Returns the inboxes of the next call with frames: of the caller, and of the server.
    async fn call(&mut self) -> (String, String) {
        loop {
            let message = self.messages.next().await.unwrap();
            if let Message { reply: Some(reply), headers: Some(headers), subject, .. } = message
                && headers.get("Rpc-Accepted").is_some()
            {
                return (subject.to_string(), reply.to_string());
            }
        }
    }

    async fn send(&self, subject: &str, payload: Vec<u8>) {
        self.client.publish(subject.to_owned(), payload.into()).await.unwrap();
    }
}

fn data(number: u32, len: usize) -> Vec<u8> {
    [&[2, 1][..], &number.to_be_bytes(), &vec![0; len]].concat()
}

#[test]
fn frames_of_strangers_end_a_call_with_a_status() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let service = TestService::default();
        let setup = Setup::start(program, TestServer::new(service.clone())).await;
        let client = TestClient::new(setup.connect().await);
        let mut spy = Spy::start(&setup.nats).await;
        let garbage = [vec![], vec![9; 100], data(77, 0), data(u32::MAX, 5), [3, 0, 0, 0, 99].to_vec()];
        for payload in garbage {
            // To the caller.
            let mut stream = client.count(words("wait")).await.unwrap().into_inner();
            let (caller, server) = spy.call().await;
            service.gate.arrival().await;
            spy.send(&caller, payload.clone()).await;
            let status = stream.message().await.unwrap_err();
            assert!(matches!(status.code(), Code::Internal | Code::Unavailable), "{status}");
            spy.send(&server, payload.clone()).await;

            // To the server.
            let (sender, requests) = Streaming::channel(1);
            let call = tokio::spawn({
                let client = client.clone();
                async move { client.gather(requests).await }
            });
            let (caller, server) = spy.call().await;
            spy.send(&server, payload).await;
            let status = call.await.unwrap().unwrap_err();
            assert!(matches!(status.code(), Code::Internal | Code::Unavailable), "{status}");
            spy.send(&caller, vec![4]).await;
            drop(sender);
        }
        assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
    });
}

#[test]
fn unlimited_credit_and_more_than_the_credit_harm_one_call_only() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let service = TestService::default();
        let setup = Setup::start(program, TestServer::new(service.clone())).await;
        let client = TestClient::new(setup.connect().await);
        let mut spy = Spy::start(&setup.nats).await;
        let credit = [&[1][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();

        let mut stream = client.count(words("endless x")).await.unwrap().into_inner();
        let (caller, server) = spy.call().await;
        for _ in 0..3 {
            spy.send(&server, credit.clone()).await;
            spy.send(&caller, credit.clone()).await;
        }
        // The server sends more than the window. The caller cancels the call instead of storing it, although it reads nothing.
        until(|| service.log.take().iter().any(|event| event == "dropped count endless x")).await;
        let status = loop {
            match stream.message().await {
                Ok(message) => assert!(message.is_some(), "the stream is endless"),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");

        // A flood for a handler that reads nothing.
        let (_sender, requests) = Streaming::channel(1);
        let call = tokio::spawn({
            let client = client.clone();
            async move { all(client.chat(requests).await?).await }
        });
        let (_, server) = spy.call().await;
        // The handler waits for the gate with its first message: "wait" as Words.
        spy.send(&server, [&[2, 1, 0, 0, 0, 0][..], b"\x0a\x04wait"].concat()).await;
        service.gate.arrival().await;
        for number in 1..20 {
            spy.send(&server, data(number, 100_000)).await;
        }
        let status = call.await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
    });
}

/// A server that answers each request with these messages.
async fn liar(nats: &support::NatsServer, answers: Vec<(HeaderMap, Vec<u8>)>) {
    let client = async_nats::connect(nats.url()).await.unwrap();
    let mut requests = client.queue_subscribe("test.>", "test".to_owned()).await.unwrap();
    round_trip(&client).await;
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let Some(reply) = request.reply else { continue };
            for (headers, payload) in &answers {
                let payload = Bytes::from(payload.clone());
                let inbox = "_INBOX.nowhere.1";
                client.publish_with_reply_and_headers(reply.clone(), inbox, headers.clone(), payload).await.unwrap();
            }
        }
    });
}

#[test]
fn answers_of_liars_fail_calls_in_time() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let accepted = || headers(&[("Rpc-Accepted", "1")]);
        for answers in [
            vec![(headers(&[]), vec![0xff; 100])],
            vec![(headers(&[("Rpc-Status", "-5"), ("Rpc-Details", "***"), ("Rpc-Message", "%")]), vec![])],
            vec![(headers(&[("Rpc-Status", "99999999999999999999")]), vec![])],
            vec![(headers(&[("Nats-Service-Error-Code", "no number")]), vec![])],
            vec![(accepted(), vec![])],
            vec![(accepted(), vec![]), (headers(&[]), vec![7])],
            vec![(accepted(), vec![]), (headers(&[]), data(0, 0)), (headers(&[]), data(1, 0))],
            vec![(accepted(), vec![]), (headers(&[]), vec![3, 0, 0, 0, 0])],
            vec![(accepted(), vec![]), (headers(&[]), vec![3, 0, 0, 0, 0]), (headers(&[]), data(1, 0))],
            // Pieces without an end, beyond the credit and the limit of messages.
            [
                vec![(accepted(), vec![])],
                (0..50)
                    .map(|number| {
                        let mut piece = data(number, 100_000);
                        piece[1] = 0;
                        (headers(&[]), piece)
                    })
                    .collect(),
            ]
            .concat(),
        ] {
            let nats = program.start("one", "").await;
            liar(&nats, answers).await;
            let client = TestClient::new(connect(&nats).await);
            let request = || {
                let mut request = Request::new(words("hello"));
                request.set_timeout(Duration::from_millis(300));
                request
            };
            let unary = client.say(request()).await.err();
            let stream = async { all(client.count(request()).await?).await };
            let failures: Vec<Option<Status>> = vec![unary, stream.await.err()];
            // An empty stream is valid; everything else fails.
            assert!(failures[0].is_some(), "{failures:?}");
        }
    });
}

/// Publishes a message with headers of any bytes, which clients refuse to send.
async fn publish_raw(nats: &support::NatsServer, subject: &str, headers: &str) {
    let mut socket = TcpStream::connect(nats.addr).await.unwrap();
    let len = headers.len();
    let commands = format!(
        "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true}}\r\nHPUB {subject} _INBOX.x.1 {len} {len}\r\n{headers}\r\nPING\r\n"
    );
    socket.write_all(commands.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|found| found == b"PONG") {
        let mut part = [0; 1024];
        let len = socket.read(&mut part).await.unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&part[..len]);
    }
}

#[test]
fn malformed_headers_disturb_for_a_moment_only() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let setup = Setup::start(program, TestServer::new(TestService::default())).await;
        let client = TestClient::new(setup.connect().await.with_timeout(SECOND));
        let mut spy = Spy::start(&setup.nats).await;
        // Learn an inbox of the caller.
        let stream = client.count(words("hello")).await.unwrap();
        let (caller, _) = spy.call().await;
        assert_eq!(all(stream).await.unwrap(), ["hello"]);
        drop(spy);
        for headers in [
            "NATS/1.0\r\nno colon\r\n\r\n",
            "NATS/1.0\r\nname: with\rreturn\r\n\r\n",
            "NATS/1.0 abc\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "NATS/1.0\r\n\u{e9}: 1\r\n\r\n",
        ] {
            for subject in ["test.test.Test.Say", &caller] {
                publish_raw(&setup.nats, subject, headers).await;
                loop {
                    match ask(&client, "hello").await {
                        Ok(answer) => break assert_eq!(answer, "hello"),
                        Err(status) => {
                            let code = status.code();
                            assert!(
                                matches!(code, Code::Unavailable | Code::DeadlineExceeded),
                                "{headers:?}: {status}"
                            );
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn garbage_in_the_bucket_is_ignored() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let nats = program.start("one", "").await;
        let service = TestService::default();
        let server =
            frpc::Server::builder().add_service(TestServer::new(service)).bind("tcp://127.0.0.1:0").await.unwrap();
        let announced =
            Announcement::builder("test", server.local_addr()).unwrap().start(&cluster(&nats)).await.unwrap();
        let stranger = async_nats::connect(nats.url()).await.unwrap();
        for (key, value) in [
            ("test.a", "garbage"),
            ("test.b", "{\"address\":\"tcp://\",\"ttl\":1}"),
            ("test.c", "{\"address\":\"unknown://x\",\"ttl\":-1}"),
            ("other.d", "{}"),
        ] {
            stranger.publish(format!("$KV.frpc.{key}"), value.into()).await.unwrap();
        }
        round_trip(&stranger).await;
        let target = format!("nats+direct://{}/test", nats.addr);
        let channel = Channel::builder().resolver(frpc_nats::transport()).connect(target).await.unwrap();
        let client = TestClient::new(channel);
        for _ in 0..10 {
            assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
        }
        drop(announced);
    });
}

#[test]
fn a_flood_of_answers_to_no_call_is_dropped() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let setup = Setup::start(program, TestServer::new(TestService::default())).await;
        let client = TestClient::new(setup.connect().await);
        let mut spy = Spy::start(&setup.nats).await;
        let mut stream = client.count(words("one, wait")).await.unwrap().into_inner();
        let (caller, _) = spy.call().await;
        assert_eq!(next(&mut stream).await, "one");
        let (inbox, _) = caller.rsplit_once('.').unwrap();
        for number in 0..2000 {
            for subject in [format!("{inbox}.{}", number + 1_000_000), format!("{inbox}.x{number}")] {
                spy.send(&subject, vec![0; 100]).await;
            }
        }
        round_trip(&spy.client).await;
        assert_eq!(asking(&client, "hello").await.unwrap().unwrap(), "hello");
    });
}
