use std::{sync::Arc, time::Duration};

use frpc::{CallError, CloseReason, Code, ConnectRetry, Request, Server, Status, Streaming};
use frpc_http::{Client, ClientSettings, Http};
use support::{
    SECOND,
    calls::{TestClient, TestServer, TestService, ask, asking, may_have_executed, words},
    in_virtual_time, settle,
};
use tokio::{io::DuplexStream, sync::mpsc::UnboundedReceiver, time::Instant};

use crate::{
    frames::{CANCEL, Heard, REFUSED_STREAM, RawServer},
    network::Network,
};

const URLS: [&str; 3] = ["grpc://test", "http://test", "twirp+http://test"];

/// Connects to a hand-written peer.
pub(crate) async fn with_raw(client: Client) -> (TestClient, RawServer, UnboundedReceiver<DuplexStream>, Network) {
    let network = Network::default();
    let mut connections = network.listen();
    let connecting = network.channel(client).connect("grpc://test");
    let greeting = async { RawServer::begin(connections.recv().await.unwrap()).await };
    let (channel, peer) = tokio::join!(connecting, greeting);
    (TestClient::new(channel.unwrap()), peer, connections, network)
}

fn server(service: &TestService) -> Arc<Server> {
    let services = Server::builder().add_service(TestServer::new(service.clone())).wire(Http::new());
    Arc::new(services.without_listener().unwrap())
}

#[test]
fn the_longest_times_mean_no_limit() {
    in_virtual_time(async {
        let longest = Duration::MAX;
        for url in URLS {
            let network = Network::default();
            network.serve(server(&TestService::default()));
            let settings = ClientSettings {
                idle_max: longest,
                keepalive_interval: Some(longest),
                keepalive_timeout: longest,
                keepalive_while_idle: true,
                http1_silence_max: Some(longest),
                ..ClientSettings::default()
            };
            let channel = network.channel(Client::new().settings(settings)).connect(url).await.unwrap();
            assert_eq!(ask(&TestClient::new(channel), "hi").await.unwrap(), "hi");
        }
    });
}

#[test]
fn a_zero_that_allows_no_call_is_refused() {
    in_virtual_time(async {
        let default = ClientSettings::default;
        for (name, settings) in [
            ("headers_len_max", ClientSettings { headers_len_max: 0, ..default() }),
            ("keepalive_interval", ClientSettings { keepalive_interval: Some(Duration::ZERO), ..default() }),
            ("keepalive_timeout", ClientSettings { keepalive_timeout: Duration::ZERO, ..default() }),
            ("http1_silence_max", ClientSettings { http1_silence_max: Some(Duration::ZERO), ..default() }),
            ("stream_window", ClientSettings { stream_window: 0, ..default() }),
        ] {
            let network = Network::default();
            network.serve(server(&TestService::default()));
            let error = network.channel(Client::new().settings(settings)).connect(URLS[0]).await.unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name} must not be zero")), "{error}");
            assert_eq!(network.attempts(), 0);
        }
    });
}

#[test]
fn a_refused_call_is_retried() {
    in_virtual_time(async {
        let (client, mut peer, _connections, _) = with_raw(Client::new()).await;
        let call = asking(&client, "hi");
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        peer.reset(1, REFUSED_STREAM).await;
        assert_eq!(peer.heard().await, Heard::Request { stream: 3 });
        peer.answer(3, "hello").await;
        assert_eq!(call.await.unwrap().unwrap(), "hello");
    });
}

#[test]
fn a_call_is_attempted_five_times() {
    in_virtual_time(async {
        let (client, mut peer, _connections, _) = with_raw(Client::new()).await;
        let call = asking(&client, "hi");
        for number in 0..5 {
            let stream = 2 * number + 1;
            assert_eq!(peer.heard().await, Heard::Request { stream });
            peer.reset(stream, REFUSED_STREAM).await;
        }
        let status = call.await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.call_error().is_some_and(CallError::is_safe_to_repeat), "{status:?}");
    });
}

#[test]
fn a_partly_sent_request_stream_is_not_retried() {
    in_virtual_time(async {
        let (client, mut peer, _connections, _) = with_raw(Client::new()).await;
        let call = tokio::spawn(async move { client.gather(Streaming::from_iter([words("a"), words("b")])).await });
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        peer.reset(1, REFUSED_STREAM).await;
        let status = call.await.unwrap().unwrap_err();
        assert!(status.call_error().is_some_and(CallError::is_safe_to_repeat), "{status:?}");
    });
}

#[test]
fn calls_unprocessed_at_goaway_move_to_a_new_connection() {
    in_virtual_time(async {
        let (client, mut peer, mut connections, _) = with_raw(Client::new()).await;
        let (taken, not_taken) = (asking(&client, "a"), {
            assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
            asking(&client, "b")
        });
        assert_eq!(peer.heard().await, Heard::Request { stream: 3 });
        peer.go_away(1).await;
        let mut other = RawServer::begin(connections.recv().await.unwrap()).await;
        assert_eq!(other.heard().await, Heard::Request { stream: 1 });
        other.answer(1, "other").await;
        peer.answer(1, "one").await;
        assert_eq!(taken.await.unwrap().unwrap(), "one", "it was taken, and goes on");
        assert_eq!(not_taken.await.unwrap().unwrap(), "other");
    });
}

#[test]
fn a_sent_call_may_have_executed_when_the_connection_fails() {
    in_virtual_time(async {
        let (client, mut peer, _connections, network) = with_raw(Client::new()).await;
        let call = asking(&client, "hi");
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        drop(peer);
        assert!(may_have_executed(&call.await.unwrap().unwrap_err()));
        assert_eq!(network.attempts(), 1, "it is not made again");
    });
}

#[test]
fn a_dropped_call_is_reset() {
    in_virtual_time(async {
        let (client, mut peer, _connections, _) = with_raw(Client::new()).await;
        let call = asking(&client, "hi");
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        call.abort();
        assert_eq!(peer.heard().await, Heard::Reset { stream: 1, code: CANCEL });

        let (sender, requests) = Streaming::channel(1);
        let answers = client.chat(requests).await.unwrap().into_inner();
        sender.send(words("a")).await.unwrap();
        settle().await;
        drop(answers);
        assert_eq!(peer.heard().await, Heard::Reset { stream: 3, code: CANCEL });
        assert!(sender.send(words("b")).await.is_err(), "nobody reads the requests any more");
    });
}

#[test]
fn a_timed_out_call_is_reset() {
    in_virtual_time(async {
        let (client, mut peer, _connections, _) = with_raw(Client::new()).await;
        let mut request = Request::new(words("hi"));
        request.set_timeout(SECOND);
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.say(request).await }
        });
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        assert_eq!(peer.heard().await, Heard::Reset { stream: 1, code: CANCEL });
        let status = call.await.unwrap().unwrap_err();
        assert!(matches!(status.call_error(), Some(CallError::TimedOut { limit }) if *limit == SECOND), "{status:?}");
    });
}

#[test]
fn more_connections_are_opened_up_to_the_limit() {
    const MAX_CONCURRENT_STREAMS: (u16, u32) = (3, 1);
    in_virtual_time(async {
        let network = Network::default();
        let mut connections = network.listen();
        let connecting = network
            .channel(Client::new().settings(ClientSettings { connections_max: 2, ..ClientSettings::default() }))
            .connect("grpc://test");
        let greeting =
            async { RawServer::begin_with(connections.recv().await.unwrap(), &[MAX_CONCURRENT_STREAMS]).await };
        let (channel, mut first) = tokio::join!(connecting, greeting);
        let client = TestClient::new(channel.unwrap());
        let one = asking(&client, "a");
        assert_eq!(first.heard().await, Heard::Request { stream: 1 });
        let two = asking(&client, "b");
        let mut second = RawServer::begin_with(connections.recv().await.unwrap(), &[MAX_CONCURRENT_STREAMS]).await;
        assert_eq!(second.heard().await, Heard::Request { stream: 1 });

        let mut late = Request::new(words("c"));
        late.set_timeout(SECOND);
        let status = client.say(late).await.unwrap_err();
        assert!(matches!(status.call_error(), Some(CallError::NotSent { .. })), "there is no place: {status:?}");

        let three = asking(&client, "d");
        settle().await;
        first.answer(1, "one").await;
        let (answer, heard) = tokio::join!(one, first.heard());
        assert_eq!((answer.unwrap().unwrap(), heard), ("one".to_owned(), Heard::Request { stream: 3 }));
        first.answer(3, "three").await;
        second.answer(1, "two").await;
        assert_eq!(
            (two.await.unwrap().unwrap(), three.await.unwrap().unwrap()),
            ("two".to_owned(), "three".to_owned())
        );
        assert_eq!(network.attempts(), 2);
    });
}

#[test]
fn a_server_without_ping_replies_is_disconnected() {
    let limit = Duration::from_secs(5);
    in_virtual_time(async {
        let client = Client::new().settings(ClientSettings {
            keepalive_interval: Some(Duration::from_secs(20)),
            keepalive_timeout: limit,
            keepalive_while_idle: true,
            ..ClientSettings::default()
        });
        let (client, peer, _connections, _) = with_raw(client).await;
        let mut peer = peer.without_pongs();
        let call = asking(&client, "hi");
        let deaf = tokio::spawn(async move { while peer.heard().await != Heard::Closed {} });
        let status = call.await.unwrap().unwrap_err();
        let lost = matches!(
            status.call_error(),
            Some(CallError::ConnectionLost { reason: CloseReason::Silent { limit: known }, may_have_executed: true })
                if *known == limit
        );
        assert!(lost, "{status:?}");
        deaf.abort();
    });
}

#[test]
fn keepalive_pings_of_a_quiet_stream_are_infrequent() {
    in_virtual_time(async {
        let (client, peer, _connections, _) = with_raw(Client::new()).await;
        let (mut peer, start) = (peer.without_pongs(), Instant::now());
        let mut answers = client.count(words("hi")).await.unwrap().into_inner();
        tokio::spawn(async move { while peer.heard().await != Heard::Closed {} });
        let status = answers.message().await.unwrap_err();
        let lost = matches!(
            status.call_error(),
            Some(CallError::ConnectionLost { reason: CloseReason::Silent { .. }, may_have_executed: true })
        );
        assert!(lost, "{status:?}");
        assert!(start.elapsed() > 300 * SECOND && start.elapsed() < 360 * SECOND, "{:?}", start.elapsed());

        // Without a call, the client sends no PING.
        let (client, peer, _connections, network) = with_raw(Client::new()).await;
        let mut peer = peer.without_pongs();
        tokio::time::sleep(3600 * SECOND).await;
        let call = asking(&client, "hi");
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        peer.answer(1, "hello").await;
        assert_eq!((call.await.unwrap().unwrap(), network.attempts()), ("hello".to_owned(), 1));
    });
}

/// Waits for a request and skips earlier events.
async fn until_asked(peer: &mut RawServer, stream: u32) {
    loop {
        match peer.heard().await {
            Heard::Closed => panic!("the connection was closed"),
            heard if heard == (Heard::Request { stream }) => return,
            _ => {}
        }
    }
}

/// Makes a call with this timeout.
fn asking_within(client: &TestClient, time: Duration) -> tokio::task::JoinHandle<Result<String, Status>> {
    let (client, mut request) = (client.clone(), Request::new(words("hi")));
    request.set_timeout(time);
    tokio::spawn(async move { client.say(request).await.map(|answer| answer.into_inner().text) })
}

#[test]
fn a_silent_connection_gets_no_new_calls() {
    in_virtual_time(async {
        let (client, mut peer, mut connections, network) = with_raw(Client::new()).await;
        let mut chat = client.count(words("long")).await.unwrap().into_inner();
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        settle().await;
        let calls = [asking_within(&client, 10 * SECOND), asking_within(&client, 2 * SECOND)];
        for call in calls {
            let status = call.await.unwrap().unwrap_err();
            assert!(matches!(status.call_error(), Some(CallError::TimedOut { .. })), "{status:?}");
        }
        let next = asking(&client, "hi");
        let mut other = RawServer::begin(connections.recv().await.unwrap()).await;
        assert_eq!(other.heard().await, Heard::Request { stream: 1 });
        other.answer(1, "other").await;
        assert_eq!((next.await.unwrap().unwrap(), network.attempts()), ("other".to_owned(), 2));
        // The server was only slow: the calls it has received continue.
        peer.answer(1, "at last").await;
        assert_eq!(chat.message().await.unwrap().unwrap().text, "at last");
    });
}

#[test]
fn timeouts_do_not_condemn_a_live_connection() {
    in_virtual_time(async {
        let (client, mut peer, _connections, network) = with_raw(Client::new()).await;
        // Given up after a short time.
        let status = asking_within(&client, 2 * SECOND).await.unwrap().unwrap_err();
        assert!(matches!(status.call_error(), Some(CallError::TimedOut { .. })), "{status:?}");
        // Another call has been answered in the meantime.
        let slow = asking_within(&client, 10 * SECOND);
        let quick = asking(&client, "hi");
        until_asked(&mut peer, 5).await;
        peer.answer(5, "quick").await;
        assert_eq!(quick.await.unwrap().unwrap(), "quick");
        assert_eq!(slow.await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
        let next = asking(&client, "hi");
        until_asked(&mut peer, 7).await;
        peer.answer(7, "next").await;
        assert_eq!((next.await.unwrap().unwrap(), network.attempts()), ("next".to_owned(), 1));
    });
}

#[test]
fn rejected_metadata_fails_only_its_call() {
    const MAX_HEADER_LIST_SIZE: (u16, u32) = (6, 16_384);
    in_virtual_time(async {
        let network = Network::default();
        let mut connections = network.listen();
        let connecting = network.channel(Client::new()).connect("grpc://test");
        let greeting =
            async { RawServer::begin_with(connections.recv().await.unwrap(), &[MAX_HEADER_LIST_SIZE]).await };
        let (channel, mut peer) = tokio::join!(connecting, greeting);
        let client = TestClient::new(channel.unwrap());
        let other = asking(&client, "hi");
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        for (len, is_taken) in [(15_000, true), (16_384, false), (70_000, false)] {
            let mut request = Request::new(words("hi"));
            request.metadata_mut().insert("x", "y".repeat(len)).unwrap();
            let call = tokio::spawn({
                let client = client.clone();
                async move { client.say(request).await }
            });
            if is_taken {
                assert_eq!(peer.heard().await, Heard::Request { stream: 3 });
                peer.answer(3, "hello").await;
                call.await.unwrap().unwrap();
            } else {
                let status = call.await.unwrap().unwrap_err();
                assert_eq!(status.code(), Code::ResourceExhausted);
                assert!(status.message().contains("the server accepts at most 16384"), "{status:?}");
            }
        }
        peer.answer(1, "hello").await;
        assert_eq!((other.await.unwrap().unwrap(), network.attempts()), ("hello".to_owned(), 1));
    });
}

#[test]
fn oversized_headers_fail_only_their_call() {
    in_virtual_time(async {
        let (client, mut peer, _connections, network) = with_raw(Client::new()).await;
        let other = asking(&client, "hi");
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        for (index, len) in [20_000, 60_000].into_iter().enumerate() {
            let call = asking(&client, "hi");
            let stream = 3 + 2 * u32::try_from(index).unwrap();
            until_asked(&mut peer, stream).await;
            peer.fail(stream, &"x".repeat(len)).await;
            let status = call.await.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::Internal);
            assert!(status.message().contains("headers_len_max"), "{len}: {status:?}");
        }
        peer.answer(1, "hello").await;
        assert_eq!((other.await.unwrap().unwrap(), network.attempts()), ("hello".to_owned(), 1));
    });
}

#[test]
fn calls_move_to_the_next_server_at_a_shutdown() {
    for url in URLS {
        in_virtual_time(async {
            let (network, service) = (Network::default(), TestService::default());
            let first = server(&service);
            network.serve(first.clone());
            let channel = network.channel(Client::new()).connect(url).await.unwrap();
            let client = TestClient::new(channel);
            let under_way = asking(&client, "wait");
            service.gate.arrival().await;
            let second = server(&service);
            network.serve(second.clone());
            settle().await;
            let first = Arc::into_inner(first).expect("nobody accepts for it any more");
            let shutdown = tokio::spawn(first.shutdown(SECOND));
            settle().await;
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{url}");
            service.gate.open(1);
            assert_eq!(under_way.await.unwrap().unwrap(), "wait", "{url}: it was taken, and goes on");
            shutdown.await.unwrap();
            assert_eq!(second.metrics().accepted, 1, "{url}");
        });
    }
}

#[test]
fn calls_share_reconnection_attempts() {
    for url in URLS {
        in_virtual_time(async {
            let (network, service) = (Network::default(), TestService::default());
            network.serve(server(&service));
            let channel = network
                .channel(Client::new())
                .retry(ConnectRetry { attempts: 3, ..ConnectRetry::default() })
                .connect(url)
                .await
                .unwrap();
            let client = TestClient::new(channel);
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
            // This drops the listener and the server.
            network.close();
            settle().await;
            let before = network.attempts();
            let calls = [asking(&client, "a"), asking(&client, "b"), asking(&client, "c")];
            for call in calls {
                let status = call.await.unwrap().unwrap_err();
                assert!(matches!(status.call_error(), Some(CallError::Unreachable(_))), "{url}: {status:?}");
            }
            // On HTTP/1.1, each call without a connection opens one, until the first attempt fails.
            let shared = if url == "grpc://test" { 3 } else { 9 };
            assert!(network.attempts() - before <= shared, "{url}: {}", network.attempts() - before);

            network.serve(server(&service));
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{url}");
        });
    }
}

#[test]
fn an_unreachable_address_is_a_connect_error() {
    in_virtual_time(async {
        let network = Network::default();
        let error = network
            .channel(Client::new())
            .retry(ConnectRetry { attempts: 2, ..ConnectRetry::default() })
            .connect("grpc://test")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("grpc://test (attempts: 2)"), "{error}");
        assert_eq!(network.attempts(), 2);
    });
}

#[test]
fn a_peer_without_http2_is_a_connect_error() {
    in_virtual_time(async {
        let network = Network::default();
        let mut connections = network.listen();
        tokio::spawn(async move { while connections.recv().await.is_some() {} });
        let error = network
            .channel(Client::new())
            .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
            .connect("grpc://test")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("does not speak HTTP/2"), "{error}");
    });
}

#[test]
fn an_oversized_response_is_rejected_by_its_header() {
    for url in URLS {
        in_virtual_time(async {
            let (network, service) = (Network::default(), TestService::default());
            network.serve(server(&service));
            let config = frpc::Config { content_len_max: 1000, ..frpc::Config::default() };
            let channel = network.channel(Client::new()).config(config).connect(url).await.unwrap();
            let client = TestClient::new(channel);
            assert_eq!(ask(&client, "large 100").await.unwrap().len(), 100);
            assert_eq!(ask(&client, "large 1001").await.unwrap_err().code(), Code::ResourceExhausted, "{url}");
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{url}");
        });
    }
}

#[test]
fn twirp_rejects_streams() {
    in_virtual_time(async {
        let (network, service) = (Network::default(), TestService::default());
        network.serve(server(&service));
        let channel = network.channel(Client::new()).connect("twirp+http://test").await.unwrap();
        let status = TestClient::new(channel).count(words("a")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains("Twirp has no streams"), "{status}");
        assert!(service.log.take().is_empty());
    });
}

#[test]
fn a_connection_idle_for_long_is_replaced() {
    for (url, connections) in [("grpc://test", 1), ("http://test", 2)] {
        in_virtual_time(async {
            let (network, service) = (Network::default(), TestService::default());
            network.serve(server(&service));
            let channel = network
                .channel(Client::new().settings(ClientSettings { idle_max: 5 * SECOND, ..ClientSettings::default() }))
                .connect(url)
                .await
                .unwrap();
            let client = TestClient::new(channel);
            for pause in [4 * SECOND, 6 * SECOND] {
                assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
                tokio::time::sleep(pause).await;
            }
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
            assert_eq!(network.attempts(), connections, "{url}");
        });
    }
}
