//! Servers with invalid answers.

use std::{future::ready, net::SocketAddr};

use frpc::{Channel, Code};
use frpc_jsonrpc::Client;
use support::{
    calls::{TestClient, ask, may_have_executed, words},
    in_real_time, in_virtual_time,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, duplex},
    net::TcpListener,
};

use crate::channel;

/// Serves connections with this answer to each line.
async fn answering(answer: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut socket = BufReader::new(socket);
                let mut line = String::new();
                while socket.read_line(&mut line).await.is_ok_and(|len| len > 0) {
                    if socket.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                    line.clear();
                }
            });
        }
    });
    address
}

async fn client(answer: &str) -> TestClient {
    let address = answering(answer.to_owned()).await;
    let channel = channel()
        .config(frpc::Config { content_len_max: 1000, ..frpc::Config::default() })
        .connect(&*format!("jsonrpc+tcp://{address}"))
        .await;
    TestClient::new(channel.unwrap())
}

#[test]
fn hostile_servers_always_yield_a_status() {
    in_real_time(async {
        for (answer, code) in [
            (r#"{"jsonrpc":"2.0","result":{"text":5},"id":1}"#, Code::Internal),
            (r#"{"jsonrpc":"2.0","result":"text","id":1}"#, Code::Internal),
            (r#"{"jsonrpc":"2.0","id":1}"#, Code::Internal),
            (r#"{"jsonrpc":"2.0","error":5,"id":1}"#, Code::Internal),
            (r#"{"jsonrpc":"2.0","error":{"code":-32005,"message":"no"},"id":1}"#, Code::NotFound),
            (r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"},"id":null}"#, Code::Internal),
            (r#"{"jsonrpc":"2.0","result":nothing,"id":1}"#, Code::Internal),
            (r#"[{"jsonrpc":"2.0","error":{"code":-32005,"message":"no"},"id":1}]"#, Code::NotFound),
            ("<html>", Code::Unavailable),
            ("{\"\u{1}\":}", Code::Internal),
        ] {
            let status = ask(&client(answer).await, "hi").await.unwrap_err();
            assert_eq!(status.code(), code, "{answer}: {status}");
        }
        let client = client(&format!("{{\"a\":\"{}", "x".repeat(2000))).await;
        for _ in 0..2 {
            // Each call is made, on a connection of its own.
            let status = ask(&client, "hi").await.unwrap_err();
            assert!(may_have_executed(&status), "{status}");
        }
    });
}

#[test]
fn unexpected_messages_are_ignored() {
    in_real_time(async {
        let others = r#"{"jsonrpc":"2.0","method":"hello","params":[1]} {"jsonrpc":"2.0","method":"hello"} [] {}
            {"jsonrpc":"2.0","method":"ping","id":1} {"jsonrpc":"2.0","method":"ping","params":{},"id":"1"}
            {"jsonrpc":"2.0","method":"x","params":{"subscription":"9","result":{}}}
            [{"id":1,"extra":[{}],"result":{"text":"here"},"error":null},{"id":1,"result":{"text":"again"}}]"#;
        assert_eq!(ask(&client(others).await, "hi").await.unwrap(), "here");
    });
}

#[test]
fn a_stream_with_a_slow_reader_ends() {
    in_real_time(async {
        let message = r#"{"jsonrpc":"2.0","method":"x","params":{"subscription":7,"result":{"text":"a"}}}"#;
        let answer = format!(
            r#"{{"jsonrpc":"2.0","result":7,"id":1}}{}{{"jsonrpc":"2.0","result":{{}},"id":2}}"#,
            message.repeat(2000)
        );
        let client = client(&answer).await;
        let mut stream = client.count(words("many")).await.unwrap().into_inner();
        // Its answer follows all messages.
        let _ = ask(&client, "hi").await;
        let mut count = 0;
        let status = loop {
            match stream.message().await {
                Ok(Some(_)) => count += 1,
                Ok(None) => panic!("a stream that lost messages does not end well"),
                Err(status) => break status,
            }
        };
        assert_eq!((count, status.code()), (1024, Code::ResourceExhausted));
    });
}

#[test]
fn an_answer_needs_the_id_of_a_call() {
    in_virtual_time(async {
        for (answer, outcome) in [
            (r#""result":{"text":"here"},"id":1"#, Ok("here")),
            (r#""result":{"text":"here"},"id":2"#, Err(Code::Internal)),
            (r#""result":{"text":"here"},"id":"1""#, Ok("here")),
            (r#""result":{"text":"here"},"id":"2""#, Err(Code::Internal)),
            (r#""result":{"text":"here"},"id":null"#, Err(Code::Internal)),
            (r#""result":{"text":"here"}"#, Err(Code::Internal)),
            (r#""error":{"code":-32005,"message":"no"},"id":1"#, Err(Code::NotFound)),
            (r#""error":{"code":-32005,"message":"no"},"id":2"#, Err(Code::Internal)),
            (r#""error":{"code":-32005,"message":"no"},"id":null"#, Err(Code::NotFound)),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0",{answer}}}"#);
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
            for (url, head) in [("jsonrpc+http://nowhere/rpc", &*head), ("jsonrpc+tcp://nowhere:1", "")] {
                let response = format!("{head}{body}");
                let connector = move || {
                    let (near, mut far) = duplex(1 << 10);
                    let response = response.clone();
                    tokio::spawn(async move {
                        let mut request = Vec::new();
                        while !request.trim_ascii_end().ends_with(br#""id":1}"#) {
                            assert_ne!(far.read_buf(&mut request).await.unwrap(), 0);
                        }
                        far.write_all(response.as_bytes()).await.unwrap();
                        // The connection stays open until the client has seen the answer.
                        while far.read_buf(&mut request).await.is_ok_and(|len| len > 0) {}
                    });
                    ready(Ok(near))
                };
                let transport = Client::new().connector(connector);
                let channel = Channel::builder().transport(transport).connect(url).await.unwrap();
                let answered = ask(&TestClient::new(channel), "hi").await;
                assert_eq!(answered.as_deref().map_err(frpc::Status::code), outcome, "{url} {answer}: {answered:?}");
            }
        }
    });
}
