//! Attacks on HTTP/2 with a rhythm of their own, and callers that only look like attackers. `tests/tests/allocations`
//! measures memory and work of floods.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use frpc_http::{Http, HttpSettings};
use support::{
    SECOND,
    calls::TestService,
    http2::{DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, SETTINGS, WINDOW_UPDATE, call, frame},
    in_virtual_time, settle,
};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

use crate::{
    h2_caller::{H2Caller, messages, server},
    hostile2::Frames,
};

#[test]
fn windows_of_single_bytes_end_the_connection() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service, Http::new()).without_listener().unwrap();
        let mut frames = Frames::connect(&server).await;
        frames.say(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await;
        frames.say(&frame(HEADERS, END_HEADERS, 1, &call("Count"))).await;
        frames.say(&frame(DATA, END_STREAM, 1, &messages(&["endless some text"]))).await;
        settle().await;
        let made = service.made();
        let (reason, times) = frames.insist(10_000, |_| frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])).await;
        assert_eq!(reason, Some(ENHANCE_YOUR_CALM));
        assert!(times < 1100 && service.made() - made < 1000, "{times}");
    });
}

#[test]
fn callers_that_have_not_seen_an_early_answer_may_still_send() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let mut frames = Frames::connect(&server).await;
        // As many as may be in flight. The server refuses each by its head.
        let streams = || (0..256).map(|index| index * 2 + 1);
        for stream in streams() {
            assert!(frames.say(&frame(HEADERS, END_HEADERS, stream, &call("None"))).await);
        }
        settle().await;
        for _ in 0..4 {
            for stream in streams() {
                assert!(frames.say(&frame(DATA, 0, stream, b"late")).await);
            }
        }
        settle().await;
        assert_eq!(server.metrics().connections, 1, "the caller has done nothing wrong");
    });
}

/// A socket whose end takes for ever, like that of TLS to a peer that reads nothing.
struct EndlessSocket(DuplexStream);

impl AsyncRead for EndlessSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for EndlessSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[test]
fn handlers_end_before_the_socket() {
    in_virtual_time(async {
        let service = TestService::default();
        let http = Http::new().settings(HttpSettings { write_stall_max: 20 * SECOND, ..HttpSettings::default() });
        let server = server(&service, http).without_listener().unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(EndlessSocket(theirs));
        let (sender, connection) = h2::client::handshake(ours).await.unwrap();
        let connection = tokio::spawn(connection);
        let open = H2Caller(sender).open(crate::h2_caller::grpc_request("Gather", &[])).await;
        settle().await;
        connection.abort();
        drop(open);
        settle().await;
        assert_eq!(service.log.take(), ["gather", "dropped gather"]);
        assert_eq!(server.metrics().connections, 1);
        tokio::time::sleep(21 * SECOND).await;
        assert_eq!(server.metrics().connections, 0);
    });
}
