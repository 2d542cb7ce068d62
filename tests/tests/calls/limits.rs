//! Messages above the receiver's limit. They fail their own call, name the side with the limit, and do not affect other
//! calls.
//!
//! The limits are those of a frisbee connection.

use frpc::{CallError, Code, Config, RefusalReason, Server, Status, Streaming, Unimplemented};
use support::{
    calls::{
        COUNT, CallbackServer, GATHER, SAY, TestClient, TestServer, TestService, ask, asking, connect, each_kind,
        encoded, of_kind, only_connection, open_frame, peer_of, quiet, quiet_channel, words,
    },
    frames::{frame, stream_frame},
    in_virtual_time, settle,
};

fn at_most(limit: u32) -> Config {
    Config { content_len_max: limit, ..quiet() }
}

fn serve(service: &TestService, limit: u32) -> Server {
    Server::builder().config(at_most(limit)).add_service(TestServer::new(service.clone())).without_listener().unwrap()
}

#[track_caller]
fn assert_names(status: &Status, side: &str, limit: u32) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let text = format!("the {side} accepts at most {limit} bytes (content_len_max)");
    assert!(status.message().starts_with(&text), "{status}");
}

#[test]
fn an_oversized_request_fails_only_its_call() {
    // An extended client knows the limit and sends nothing.
    for (len, extended) in [201, 70_000, 6_000_000].into_iter().flat_map(|len| [(len, true), (len, false)]) {
        in_virtual_time(async {
            let service = TestService::default();
            let server = serve(&service, 200);
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            server.attach(theirs);
            let unlimited = Config { content_len_max: u32::MAX, extended, ..quiet() };
            let client = TestClient::new(quiet_channel().config(unlimited).attach(ours).await.unwrap());
            let sibling = asking(&client, "wait");
            settle().await;
            for result in each_kind(&client, &"x".repeat(len)).await {
                assert_names(&result.unwrap_err(), "server", 200);
            }
            let status = ask(&client, &"x".repeat(len)).await.unwrap_err();
            // A plain peer gets the code and the text only.
            assert_eq!(status.call_error().is_some(), extended, "{status:?}");
            if let Some(error) = status.call_error() {
                assert!(
                    matches!(error, CallError::Refused { why: RefusalReason::TooLarge { announced, limit: 200 } } if *announced as usize > len),
                    "{error}"
                );
                assert!(error.is_safe_to_repeat(), "it was not executed");
            }
            service.gate.open(1);
            assert_eq!(sibling.await.unwrap().unwrap(), "wait");
            assert!(service.log.take().iter().all(|line| !line.contains("xxx")), "no handler saw it");
            assert_eq!(server.metrics().accepted, 1);
            assert_eq!(server.metrics().counters.too_large, if extended { 0 } else { 5 });
        });
    }
}

#[test]
fn an_oversized_response_fails_only_its_call() {
    // With the lower limit, the client discards the HELLO of the server. It is a plain peer then, without causes.
    for (limit, is_told) in [(200, false), (1000, true)] {
        in_virtual_time(async {
            let service = TestService::default();
            let server = serve(&service, u32::MAX);
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            server.attach(theirs);
            let client = TestClient::new(quiet_channel().config(at_most(limit)).attach(ours).await.unwrap());
            let sibling = asking(&client, "wait");
            settle().await;
            for len in [3000, 70_000] {
                for result in each_kind(&client, &format!("large {len}")).await {
                    let status = result.unwrap_err();
                    assert_names(&status, "client", limit);
                    assert_eq!(status.call_error().is_some(), is_told, "{status:?}");
                    if let Some(error) = status.call_error() {
                        assert!(matches!(error, CallError::AnswerTooLarge { limit: 1000, .. }), "{error}");
                        assert!(!error.is_safe_to_repeat(), "it was executed");
                    }
                }
            }
            service.gate.open(1);
            assert_eq!(sibling.await.unwrap().unwrap(), "wait");
            assert_eq!(server.metrics().accepted, 1);
        });
    }
}

#[test]
fn an_oversized_callback_response_fails_only_its_call() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, 200);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        server.attach(theirs);
        let callback = CallbackServer::new(TestService::default());
        let client = TestClient::new(quiet_channel().add_service(callback).attach(ours).await.unwrap());
        for kind in ["say", "count"] {
            let status = ask(&client, &format!("back {kind} large 300")).await.unwrap_err();
            assert!(status.message().contains("accepts at most 200 bytes"), "{kind}: {status}");
        }
        assert_eq!(ask(&client, "back say hi").await.unwrap(), "hi");
    });
}

#[test]
fn messages_before_an_oversized_one_arrive() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), 200);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        server.attach(theirs);
        // An extended client would know the limit and cancel the call.
        let plain = Config { extended: false, ..quiet() };
        let client = TestClient::new(quiet_channel().config(plain).attach(ours).await.unwrap());
        let speech = [words("one"), words("x".repeat(300)), words("two")];
        let mut answers = client.chat(Streaming::from_iter(speech)).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap(), Some(words("re: one")));
        assert_names(&answers.message().await.unwrap_err(), "server", 200);
        assert_eq!(answers.message().await.unwrap(), None);
    });
}

/// Go peers treat any error in place of a message as the failure of the call.
#[test]
fn an_oversized_message_is_an_ordinary_error_on_the_wire() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), 150);
        let mut peer = peer_of(&server);
        let large = encoded(&"x".repeat(200));
        let (len, text) = (large.len(), "the server accepts at most 150 bytes (content_len_max), the request has");
        let heard = peer.asks([frame(7, SAY, &large), frame(8, SAY, encoded("hi"))].concat()).await;
        let error = format!("error 8 {text} {len}: the call was not executed");
        assert_eq!(heard, [format!("{SAY} 7: {error}"), format!("{SAY} 8: hi")]);
        let heard = peer
            .asks(
                [open_frame(1, COUNT), stream_frame(1, &large), open_frame(3, GATHER), stream_frame(3, &large)]
                    .concat(),
            )
            .await;
        let of = |id: u16| heard.iter().filter(|frame| frame.starts_with(&format!("stream {id}"))).count();
        assert!(heard[0].starts_with("stream 1: error 8 the"), "{heard:?}");
        assert!(of(1) >= 2 && of(3) >= 2, "an error and an end marker each: {heard:?}");
        assert_eq!(peer.asks(frame(9, SAY, encoded("hi"))).await, [format!("{SAY} 9: hi")]);
    });
}

#[test]
fn the_code_arrives_if_nothing_else_fits() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), 20);
        let client = connect(&server).await;
        for kind in 0..2 {
            let status = of_kind(&client, kind, &"x".repeat(100)).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        }
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        assert!(only_connection(&server).await.close_reason().is_none());
    });
}

#[test]
fn unknown_operations_are_answered_despite_the_limit() {
    in_virtual_time(async {
        let server = Server::builder().config(at_most(90)).router(Unimplemented);
        let server = server.add_service(TestServer::new(TestService::default())).without_listener().unwrap();
        let mut peer = peer_of(&server);
        let heard = peer.asks(frame(7, 999, [b'x'; 91])).await;
        assert_eq!(heard, ["999 7: error 12 no method has operation 999"]);
    });
}

#[test]
fn a_stream_above_the_limit_of_either_side_fails_with_a_typed_error() {
    for [at_server, at_client] in [[1024, 1], [1, 1024]] {
        in_virtual_time(async {
            let config = |streams_max| Config { streams_max, ..quiet() };
            let server =
                Server::builder().config(config(at_server)).add_service(TestServer::new(TestService::default()));
            let server = server.without_listener().unwrap();
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            server.attach(theirs);
            let client = TestClient::new(quiet_channel().config(config(at_client)).attach(ours).await.unwrap());
            ask(&client, "hi").await.unwrap();
            let held = client.count(words("a, wait")).await.unwrap();
            let status = client.count(words("b")).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
            let error = status.call_error().unwrap();
            assert!(matches!(error, CallError::TooManyStreams { .. }) && error.is_safe_to_repeat(), "{status:?}");
            ask(&client, "unary calls go on").await.unwrap();
            drop(held);
            settle().await;
            client.count(words("b")).await.unwrap();
        });
    }
}
