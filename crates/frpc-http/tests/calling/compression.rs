//! Compressed responses of protocols with the whole response as body: Connect and Twirp.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use frpc::{Code, prost::Message};
use frpc_http::{Client, ClientSettings};
use support::{
    calls::{TestClient, ask, words},
    in_virtual_time,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::network::Network;

/// Calls a hand-written server. Returns the head of the request and the outcome of the call.
async fn answered(url: &str, accept_gzip: bool, head: &str, body: Vec<u8>) -> (String, Result<String, frpc::Status>) {
    let network = Network::default();
    let mut connections = network.listen();
    let response = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len());
    let server = tokio::spawn(async move {
        let (mut socket, mut request) = (connections.recv().await.unwrap(), Vec::new());
        while !request.ends_with(&words("hi").encode_to_vec()) {
            assert_ne!(socket.read_buf(&mut request).await.unwrap(), 0);
        }
        socket.write_all(&[response.as_bytes(), &body].concat()).await.unwrap();
        String::from_utf8_lossy(&request).to_lowercase()
    });
    let client = Client::new().settings(ClientSettings { accept_gzip, ..ClientSettings::default() });
    let channel = network.channel(client).connect(url).await.unwrap();
    let outcome = ask(&TestClient::new(channel), "hi").await;
    (server.await.unwrap(), outcome)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_responses_are_decompressed_or_refused_by_name() {
    for (url, content_type) in [("http://test", "application/proto"), ("twirp+http://test", "application/protobuf")] {
        in_virtual_time(async {
            let message = words("here").encode_to_vec();
            let good = |coding: &str| format!("200 OK\r\ncontent-type: {content_type}\r\ncontent-encoding: {coding}");

            let (request, outcome) = answered(url, true, &good("gzip"), gzip(&message)).await;
            assert!(request.contains("\r\naccept-encoding: gzip\r\n"), "{request}");
            assert_eq!(outcome.unwrap(), "here", "{url}");

            let (_, outcome) = answered(url, true, &good("identity"), message.clone()).await;
            assert_eq!(outcome.unwrap(), "here", "{url}");

            let (request, outcome) = answered(url, false, &good("gzip"), gzip(&message)).await;
            assert!(!request.contains("accept-encoding"), "{request}");
            assert_eq!(outcome.unwrap_err().code(), Code::Internal, "{url}");

            // These bytes are a valid message, so only the header tells that they are compressed.
            let (_, outcome) = answered(url, true, &good("br"), message).await;
            let status = outcome.unwrap_err();
            assert_eq!(status.code(), Code::Internal, "{url}");
            assert!(status.message().contains("content-encoding") && status.message().contains("'br'"), "{status}");

            let (_, outcome) = answered(url, true, &good("gzip"), b"not compressed".to_vec()).await;
            assert_eq!(outcome.unwrap_err().code(), Code::Internal, "{url}");

            let failed = "404 Not Found\r\ncontent-type: application/json\r\ncontent-encoding: gzip";
            let error = gzip(br#"{"code":"not_found","msg":"no orders","message":"no orders"}"#);
            let (_, outcome) = answered(url, true, failed, error).await;
            let status = outcome.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::NotFound, "no orders"), "{url}");
        });
    }
}
