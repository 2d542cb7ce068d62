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
use tokio::time::Instant;

use crate::{
    frames::{CANCEL, Heard, RawServer, message},
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

#[test]
fn a_response_may_arrive_in_any_pieces() {
    in_virtual_time(async {
        let settings = ClientSettings { stream_window: 2000, connection_window: 2000, ..ClientSettings::default() };
        let (client, mut peer, _connections, _) = with_raw(Client::new().settings(settings)).await;
        let mut stream = 1;
        for text_len in [0, 1, 1500, 20_000] {
            let text = "x".repeat(text_len);
            let data = message(&text);
            for cut in [0, 1, 5, 6, 700, 1999] {
                let call = asking(&client, "hi");
                assert_eq!(peer.heard().await, Heard::Request { stream });
                peer.begin_answer(stream).await;
                settle().await;
                let (first, rest) = data.split_at(cut.min(data.len()));
                for piece in [first].into_iter().chain(rest.chunks(500)).filter(|piece| !piece.is_empty()) {
                    peer.send_data(stream, piece).await;
                    // The client reads the piece, which opens the window again.
                    settle().await;
                }
                peer.succeed(stream).await;
                assert_eq!(call.await.unwrap().unwrap(), text, "{text_len} {cut}");
                stream += 2;
            }
        }
    });
}

#[test]
fn metadata_and_faults_of_short_responses_reach_the_caller() {
    type Headers = &'static [(&'static str, &'static str)];
    const TYPE: (&str, &str) = ("content-type", "application/grpc");
    in_virtual_time(async {
        let (client, mut peer, _connections, _) = with_raw(Client::new()).await;
        let heads: [(Headers, Result<Option<&str>, Code>); 6] = [
            (&[TYPE, ("date", "Mon, 23 Nov 2026 00:00:00 GMT"), ("grpc-encoding", "identity")], Ok(None)),
            (&[TYPE, ("x-place", "here")], Ok(Some("here"))),
            (&[TYPE, ("grpc-encoding", "brotli")], Err(Code::Internal)),
            (&[("content-type", "application/grpc+json")], Err(Code::Internal)),
            (&[("content-type", "text/html")], Err(Code::Unknown)),
            (&[], Err(Code::Unknown)),
        ];
        for (number, (headers, expected)) in heads.into_iter().enumerate() {
            let call = tokio::spawn({
                let client = client.clone();
                async move { client.say(words("hi")).await }
            });
            let stream = u32::try_from(2 * number + 1).unwrap();
            while peer.heard().await != (Heard::Request { stream }) {}
            peer.begin_answer_with(stream, headers).await;
            peer.send_data(stream, &message("hello")).await;
            peer.succeed(stream).await;
            let found = call.await.unwrap().map_err(|status| status.code());
            let place = found.map(|found| found.metadata().get("x-place").map(str::to_owned));
            assert_eq!(place, expected.map(|place| place.map(str::to_owned)), "{headers:?}");
        }
        // Several messages, none, a message that is too short, and one with unknown flags.
        let two = [message("a"), message("b")].concat();
        let faults = [
            (two, Code::Unimplemented),
            (Vec::new(), Code::Unimplemented),
            (message("hello")[..8].to_vec(), Code::Internal),
            ([&[4][..], &message("hello")[1..]].concat(), Code::Internal),
        ];
        for (number, (data, code)) in faults.into_iter().enumerate() {
            let call = asking(&client, "hi");
            let stream = u32::try_from(2 * number + 13).unwrap();
            while peer.heard().await != (Heard::Request { stream }) {}
            peer.begin_answer(stream).await;
            peer.send_data(stream, &data).await;
            peer.succeed(stream).await;
            assert_eq!(call.await.unwrap().unwrap_err().code(), code, "{number}");
        }
    });
}

#[test]
fn calls_end_at_their_own_deadlines() {
    in_virtual_time(async {
        let (client, mut peer, _connections, _) = with_raw(Client::new()).await;
        let start = Instant::now();
        let calls = [3, 1, 2].map(|seconds| {
            let mut request = Request::new(words("hi"));
            request.set_timeout(seconds * SECOND);
            let client = client.clone();
            tokio::spawn(async move {
                let status = client.say(request).await.unwrap_err();
                assert_eq!(status.code(), Code::DeadlineExceeded);
                (start.elapsed() - seconds * SECOND) < SECOND / 2
            })
        });
        for stream in [1, 3, 5] {
            assert_eq!(peer.heard().await, Heard::Request { stream });
        }
        // A part of a response does not extend the deadline.
        peer.begin_answer(3).await;
        peer.send_data(3, &message("hello")).await;
        for stream in [3, 5, 1] {
            assert_eq!(peer.heard().await, Heard::Reset { stream, code: CANCEL });
        }
        for call in calls {
            assert!(call.await.unwrap(), "the call ends at its deadline");
        }
        let call = asking(&client, "hi");
        assert_eq!(peer.heard().await, Heard::Request { stream: 7 });
        peer.answer(7, "hello").await;
        assert_eq!(call.await.unwrap().unwrap(), "hello");
    });
}

#[test]
fn a_server_gets_credit_for_a_long_message_as_it_arrives() {
    in_virtual_time(async {
        let settings = ClientSettings { stream_window: 65_535, connection_window: 65_535, ..ClientSettings::default() };
        let (client, mut peer, _connections, _) = with_raw(Client::new().settings(settings)).await;
        let call = tokio::spawn(async move {
            let mut answers = client.count(words("hi")).await?.into_inner();
            let first = answers.message().await?.unwrap().text.len();
            Ok::<_, frpc::Status>((first, answers.message().await?))
        });
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        peer.begin_answer(1).await;
        // Longer than four windows. The caller gets nothing of it before its end, so it can return no credit itself.
        let long = message(&"x".repeat(300_000));
        for part in long.chunks(16_000) {
            settle().await;
            assert!(!call.is_finished(), "within the windows of the client");
            peer.send_data(1, part).await;
        }
        peer.succeed(1).await;
        assert_eq!(call.await.unwrap().unwrap(), (300_000, None));
    });
}
