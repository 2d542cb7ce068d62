//! The rest of an HTTP/1.1 request answered before its end.

use frpc_http::Http;
use support::{calls::TestService, in_virtual_time};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::h2_caller::server;

/// Sends the head of a request with an unknown path, and this much of its body.
async fn refused(io: &mut DuplexStream, body_len: usize, sent: usize) -> std::io::Result<()> {
    let head = format!(
        "POST /calls.Test/None HTTP/1.1\r\nhost: test\r\ncontent-type: application/grpc-web+proto\r\n\
         content-length: {body_len}\r\n\r\n"
    );
    io.write_all(head.as_bytes()).await?;
    io.write_all(&vec![0; sent]).await
}

/// Reads the head of a response without a body.
async fn answer(io: &mut DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.expect("the connection is open"));
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn a_short_unread_body_keeps_the_connection() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let (mut io, theirs) = duplex(16 * 1024);
        server.attach(theirs);
        for _ in 0..2 {
            refused(&mut io, 200_000, 10).await.unwrap();
            // Answered before the rest arrives.
            assert!(answer(&mut io).await.contains("grpc-status: 12"));
            io.write_all(&[0; 200_000 - 10]).await.unwrap();
        }
    });
}

#[test]
fn a_long_unread_body_closes_the_connection() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let (mut io, theirs) = duplex(16 * 1024);
        server.attach(theirs);
        refused(&mut io, 2_000_000, 1).await.unwrap();
        assert!(answer(&mut io).await.contains("grpc-status: 12"));
        io.write_all(&[0; 1_999_999]).await.unwrap_err();
    });
}

#[test]
fn a_stalled_unread_body_closes_the_connection() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let (mut io, theirs) = duplex(16 * 1024);
        server.attach(theirs);
        refused(&mut io, 1000, 1).await.unwrap();
        assert!(answer(&mut io).await.contains("grpc-status: 12"));
        assert_eq!(io.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    });
}

#[test]
fn an_early_response_to_a_long_request_is_the_last() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        for (len, is_last) in
            [("content-length: 1000", false), ("content-length: 2000000", true), ("transfer-encoding: chunked", true)]
        {
            let (mut io, theirs) = duplex(16 * 1024);
            server.attach(theirs);
            let head = format!(
                "POST /calls.Test/None HTTP/1.1\r\nhost: test\r\ncontent-type: application/grpc-web+proto\r\n{len}\r\n\r\n"
            );
            io.write_all(head.as_bytes()).await.unwrap();
            assert_eq!(answer(&mut io).await.contains("connection: close"), is_last, "{len}");
        }
    });
}
