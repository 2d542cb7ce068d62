//! Servers of HTTP/2 that end, refuse or hold back single calls.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use frpc::{Code, Request, Server, Streaming};
use frpc_http::{Client, ClientSettings, Http};
use futures_util::stream;
use support::{
    SECOND,
    calls::{TestClient, TestServer, TestService, ask, asking, words},
    in_virtual_time, settle,
};
#[cfg(feature = "http2")]
use tokio::time::Instant;

use crate::{
    frames::{Heard, RawServer},
    losses::with_raw,
    network::Network,
};

#[test]
fn the_code_of_a_reset_becomes_a_status() {
    const CODES: [(u32, Code); 15] = [
        (0, Code::Internal),
        (1, Code::Internal),
        (2, Code::Internal),
        (3, Code::Internal),
        (4, Code::Internal),
        (5, Code::Internal),
        (6, Code::Internal),
        (7, Code::Unavailable),
        (8, Code::Cancelled),
        (9, Code::Internal),
        (10, Code::Internal),
        (11, Code::ResourceExhausted),
        (12, Code::PermissionDenied),
        (13, Code::Internal),
        (99, Code::Internal),
    ];
    in_virtual_time(async {
        let (client, mut peer, _connections, _) = with_raw(Client::new()).await;
        let mut stream = 1;
        for has_head in [false, true] {
            // A refused call without a head is repeated; `losses` tests that.
            for (code, expected) in CODES.into_iter().filter(|(code, _)| has_head || *code != 7) {
                let call = asking(&client, "hi");
                assert_eq!(peer.heard().await, Heard::Request { stream });
                if has_head {
                    peer.begin_answer(stream).await;
                }
                peer.reset(stream, code).await;
                let status = call.await.unwrap().unwrap_err();
                assert_eq!(status.code(), expected, "{code} {has_head}: {status:?}");
                stream += 2;
            }
        }
    });
}

#[test]
fn a_response_without_trailers_has_no_status() {
    in_virtual_time(async {
        let (client, mut peer, _connections, _) = with_raw(Client::new()).await;
        let call = asking(&client, "hi");
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        peer.begin_answer(1).await;
        peer.end(1).await;
        let status = call.await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().contains("without a status"), "{status:?}");
    });
}

#[test]
fn calls_continue_through_a_shutdown_in_two_steps() {
    in_virtual_time(async {
        let (client, mut peer, mut connections, _) = with_raw(Client::new()).await;
        let calls = [asking(&client, "a"), asking(&client, "b")];
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        assert_eq!(peer.heard().await, Heard::Request { stream: 3 });
        peer.go_away(u32::MAX >> 1).await;
        settle().await;
        let late = asking(&client, "c");
        let mut other = RawServer::begin(connections.recv().await.unwrap()).await;
        assert_eq!(other.heard().await, Heard::Request { stream: 1 });
        peer.go_away(1).await;
        assert_eq!(other.heard().await, Heard::Request { stream: 3 }, "the second call moves");
        other.answer(1, "late").await;
        other.answer(3, "moved").await;
        peer.answer(1, "kept").await;
        let [kept, moved] = calls;
        assert_eq!(kept.await.unwrap().unwrap(), "kept");
        assert_eq!(moved.await.unwrap().unwrap(), "moved");
        assert_eq!(late.await.unwrap().unwrap(), "late");
        while peer.heard().await != Heard::Closed {}
    });
}

#[test]
fn a_server_that_stops_reading_holds_back_the_requests() {
    const LEN: usize = 32 << 10;
    in_virtual_time(async {
        let (client, peer, _connections, _) = with_raw(Client::new()).await;
        let taken = Arc::new(AtomicUsize::new(0));
        let count = taken.clone();
        let messages = stream::repeat_with(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(words("x".repeat(LEN)))
        });
        let mut request = Request::new(Streaming::new(messages));
        request.set_timeout(SECOND);
        let status = client.gather(request).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        let taken = taken.load(Ordering::Relaxed) * LEN;
        assert!((64 << 10..=512 << 10).contains(&taken), "{taken}");
        drop(peer);
    });
}

fn serve(network: &Network) -> TestService {
    let service = TestService::default();
    let services = Server::builder().add_service(TestServer::new(service.clone())).wire(Http::new());
    network.serve(Arc::new(services.without_listener().unwrap()));
    service
}

#[test]
fn long_messages_pass_in_both_directions() {
    in_virtual_time(async {
        let network = Network::default();
        serve(&network);
        let client = TestClient::new(network.channel(Client::new()).connect("grpc://test").await.unwrap());
        let long = "x".repeat(1 << 20);
        let calls: Vec<_> = (0..4).map(|_| asking(&client, &long)).collect();
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap().len(), long.len());
        }
        let texts = (0..8).map({
            let long = long.clone();
            move |_| words(&long)
        });
        let mut answers = client.chat(Streaming::from_iter(texts)).await.unwrap().into_inner();
        let mut len = 0;
        while let Some(answer) = answers.message().await.unwrap() {
            len += answer.text.strip_prefix("re: ").unwrap().len();
        }
        assert_eq!(len, 8 * long.len());
    });
}

#[test]
fn unread_responses_fill_the_windows_and_continue() {
    in_virtual_time(async {
        let network = Network::default();
        serve(&network);
        let settings =
            ClientSettings { stream_window: 100_000, connection_window: 500_000, ..ClientSettings::default() };
        let client =
            TestClient::new(network.channel(Client::new().settings(settings)).connect("grpc://test").await.unwrap());
        let texts = |n: usize| (0..n).map(|_| words("x".repeat(1000)));
        let mut streams = Vec::new();
        for _ in 0..4 {
            streams.push(client.chat(Streaming::from_iter(texts(200))).await.unwrap().into_inner());
        }
        settle().await;
        for answers in &mut streams {
            let mut count = 0;
            while answers.message().await.unwrap().is_some() {
                count += 1;
            }
            assert_eq!(count, 200);
        }
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
    });
}

#[test]
fn ten_thousand_calls_in_flight_are_all_answered() {
    in_virtual_time(async {
        let network = Network::default();
        serve(&network);
        let client = TestClient::new(network.channel(Client::new()).connect("grpc://test").await.unwrap());
        let calls: Vec<_> = (0..10_000).map(|_| asking(&client, "hi")).collect();
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), "hi");
        }
    });
}

#[test]
#[cfg(feature = "http2")]
fn unread_responses_do_not_hold_back_other_calls() {
    in_virtual_time(async {
        let network = Network::default();
        serve(&network);
        let settings =
            ClientSettings { stream_window: 100_000, connection_window: 64 << 20, ..ClientSettings::default() };
        let client =
            TestClient::new(network.channel(Client::new().settings(settings)).connect("grpc://test").await.unwrap());
        let mut streams = Vec::new();
        for _ in 0..20 {
            let answers = client.count(words(format!("endless {}", "x".repeat(10_000)))).await.unwrap();
            streams.push(answers.into_inner());
        }
        settle().await;
        // The queues of the server are full of data of the streams that are not read.
        let start = Instant::now();
        assert_eq!(ask(&client, "large 1000000").await.unwrap().len(), 1_000_000);
        assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    });
}

#[test]
#[cfg(feature = "http2")]
fn a_server_that_stops_reading_is_left() {
    in_virtual_time(async {
        let settings = ClientSettings { keepalive_interval: Some(5 * SECOND), ..ClientSettings::default() };
        let (client, mut peer, _connections, _) = with_raw(Client::new().settings(settings)).await;
        // More than the socket takes.
        let calls: Vec<_> = (0..10).map(|_| asking(&client, &"x".repeat(20_000))).collect();
        for call in calls {
            assert!(call.await.unwrap().is_err());
        }
        settle().await;
        assert!(peer.is_left().await, "the socket is closed, although the last frames were never read");
    });
}
