//! Every call is answered: with a response, or with a status that explains the failure.

use frpc::{CallError, Channel, Code, Config, Server, Services, Streaming, Unimplemented};
use support::{
    calls::{
        CHAT, COUNT, CallbackClient, CallbackServer, GATHER, SAY, TestClient, TestServer, TestService, Words, all, ask,
        connect, each_kind, encoded, end, error, joined, of_kind, only_connection, open_frame, own_packet, peer_of,
        peer_of_channel, quiet, quiet_channel, schema::test_methods, serve, stream_of, words,
    },
    frames::{frame, stream_frame},
    in_virtual_time, settle,
};
use tokio::io::duplex;

use crate::transport::{Transport, over_every_transport};

over_every_transport! {
    every_kind_of_call_is_answered
    a_status_arrives_with_its_code_and_exact_text
    a_status_with_the_text_eof_is_an_error
    forwarded_refusals_of_a_handler_are_plain_statuses
    messages_before_a_status_arrive
    a_handler_panic_is_answered_and_contained
    calls_to_unknown_services_are_unimplemented
}

mod own {
    use super::*;

    crate::transport::over_own_transports! {
        calling_a_method_as_another_kind_is_unimplemented
        a_status_sent_before_closing_the_connection_arrives
    }
}

fn every_kind_of_call_is_answered(transport: Transport) {
    in_virtual_time(async {
        let services = Services::new().add_service(TestServer::new(TestService::default()));
        let served = transport.serve(services.add_service(CallbackServer::new(TestService::default()))).await;
        let (client, callback) = (TestClient::new(served.channel.clone()), CallbackClient::new(served.channel.clone()));
        let answers = each_kind(&client, "hi").await.map(Result::unwrap);
        assert_eq!(answers, ["hi", "hi", "hi", "re: hi"]);
        assert_eq!(all(client.count(words("a, b")).await.unwrap()).await.unwrap(), ["a", "b"]);
        assert_eq!(client.gather(stream_of("a b")).await.unwrap().into_inner(), words("a b"));
        assert_eq!(all(client.chat(stream_of("a b")).await.unwrap()).await.unwrap(), ["re: a", "re: b"]);
        assert_eq!(callback.say(words("hi")).await.unwrap().into_inner(), words("hi"));
        served.assert_unharmed().await;
    });
}

fn a_status_arrives_with_its_code_and_exact_text(transport: Transport) {
    in_virtual_time(async {
        let (_service, served, client) = transport.serve_and_connect().await;
        for number in 1..=16 {
            for text in ["", "no such order", " spaces ", "EOFs", "ünï\n\0code", &"long".repeat(10_000)] {
                for result in each_kind(&client, &format!("fail {number} {text}")).await {
                    let status = result.unwrap_err();
                    assert_eq!(status.code() as u8, number);
                    assert!(status.message() == text, "{status}");
                    assert!(status.call_error().is_none());
                }
            }
        }
        served.assert_unharmed().await;
    });
}

fn forwarded_refusals_of_a_handler_are_plain_statuses(transport: Transport) {
    const TEXTS: [&str; 6] = [
        "14 the peer is shutting down: the call was not executed",
        "8 the peer is busy (its limits on handlers and waiting requests are reached): the call was not executed",
        "8 the peer takes at most 7 calls at once (calls_max): the call was not executed",
        "8 the server accepts at most 5 bytes (content_len_max), the request has 6: the call was not executed",
        "11 the client accepts at most 5 bytes (content_len_max), the answer has 6",
        "4 the call took longer than 1s, the remaining timeout of its caller",
    ];
    in_virtual_time(async {
        let (service, served, client) = transport.serve_and_connect().await;
        for text in TEXTS {
            let (code, message) = text.split_once(' ').unwrap();
            let results = each_kind(&client, &format!("fail {text}")).await;
            // If the text contains a comma, the first message of the stream is only the beginning of the text.
            let whole = results.into_iter().enumerate().filter(|(kind, _)| *kind != 1 || !text.contains(','));
            let first = joined(client.count(words(format!("first fail {text}"))).await).await;
            for (kind, result) in whole.chain([(1, first)]) {
                let status = result.unwrap_err();
                assert_eq!(status.code() as u8, code.parse::<u8>().unwrap());
                assert!(status.message().ends_with(message), "{kind}: {status}");
                assert!(status.call_error().is_none(), "{kind}: {status:?}");
            }
        }
        let begun = service.log.take().into_iter().filter(|line| !line.starts_with("dropped")).count();
        assert_eq!(begun, 5 * TEXTS.len(), "each call was made once");
        served.assert_unharmed().await;
    });
}

fn a_status_with_the_text_eof_is_an_error(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = transport.serve_and_connect().await;
        for result in each_kind(&client, "fail 5 EOF").await {
            let status = result.unwrap_err();
            assert_eq!(status.code(), Code::NotFound);
            assert!(status.message().ends_with("EOF"), "{status}");
        }
    });
}

#[test]
fn stream_statuses_are_prefixed_with_their_code() {
    in_virtual_time(async {
        let (_service, _served, client) = Transport::Frisbee.serve_and_connect().await;
        let [say, count, gather, chat] = each_kind(&client, "fail 5 EOF").await;
        assert_eq!(say.unwrap_err().message(), "EOF");
        for result in [count, gather, chat] {
            let status = result.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::NotFound, "NotFound: EOF"));
        }
        let server = serve(&TestService::default());
        let mut peer = peer_of(&server);
        peer.say([open_frame(1, COUNT), stream_frame(1, encoded("one, fail 2 EOF"))].concat()).await;
        assert_eq!(peer.heard().await, ["stream 1: one", "stream 1: error 2 Unknown: EOF", "stream 1: end"]);
    });
}

fn messages_before_a_status_arrive(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = transport.serve_and_connect().await;
        let mut stream = client.count(words("one, two, fail 9 enough, three")).await.unwrap().into_inner();
        assert_eq!(stream.message().await.unwrap(), Some(words("one")));
        assert_eq!(stream.message().await.unwrap(), Some(words("two")));
        assert_eq!(stream.message().await.unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(stream.message().await.unwrap(), None, "a status is the last");
    });
}

fn a_handler_panic_is_answered_and_contained(transport: Transport) {
    in_virtual_time(async {
        let (_service, served, client) = transport.serve_and_connect().await;
        let mut results = each_kind(&client, "panic").await.to_vec();
        results.push(joined(client.count(words("first panic")).await).await);
        results.push(joined(client.count(words("one, two, panic")).await).await);
        for result in results {
            let status = result.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Internal, "the handler panicked"));
        }
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        served.assert_unharmed().await;
    });
}

#[test]
fn invalid_requests_are_answered_with_an_error() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service);
        let mut peer = peer_of(&server);
        let cut = encoded("a message");
        let cuts = (1..cut.len()).map(|len| cut.slice(..len));
        for content in cuts.chain([vec![], vec![9, 1], vec![8, 0, 5, 10, 0xff], vec![0xff; 9]].map(Into::into)) {
            let heard = peer.asks(frame(7, SAY, &content)).await;
            assert_eq!(heard.len(), 1, "{content:x?}");
            assert!(heard[0].starts_with("10 7: error 3 "), "{content:x?}: {heard:?}");
        }
        assert_eq!(peer.asks(frame(8, SAY, error("text"))).await, ["10 8: error 3 text"]);
        assert!(service.log.take().is_empty());
        assert_eq!(peer.asks(frame(9, SAY, encoded("hi"))).await, ["10 9: hi"], "the connection lives");
        assert_eq!(peer.asks(frame(9, SAY, [0])).await, ["10 9: "], "an absent message is a default one");
    });
}

#[test]
fn invalid_stream_requests_are_answered_with_an_error() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let mut peer = peer_of(&server);
        for operation in [COUNT, GATHER, CHAT] {
            let heard = peer
                .asks([open_frame(1, operation), stream_frame(1, [8, 0, 5]), stream_frame(1, end())].concat())
                .await;
            assert_eq!(heard.len(), 2, "{heard:?}");
            assert!(heard[0].starts_with("stream 1: error 3 "), "{heard:?}");
            assert_eq!(heard[1], "stream 1: end");
        }
        assert_eq!(only_connection(&server).await.metrics().streams, 0);
        assert_eq!(peer.asks(frame(9, SAY, encoded("hi"))).await, ["10 9: hi"], "the connection lives");
    });
}

#[test]
fn streams_without_an_open_frame_are_closed() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let mut peer = peer_of(&server);
        for content in [encoded("hi").to_vec(), vec![9], vec![9, 0x80], vec![9, 0xff, 0xff, 0xff]] {
            assert_eq!(peer.asks(stream_frame(5, &content)).await, ["stream 5 closed"], "{content:x?}");
        }
        // The bytes after the operation are ignored.
        assert_eq!(
            peer.asks([stream_frame(6, [9, COUNT, 1, 2]), stream_frame(6, encoded("one"))].concat()).await.len(),
            2
        );
    });
}

#[test]
fn unknown_methods_are_answered_with_an_error() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let mut peer = peer_of(&server);
        assert_eq!(peer.asks(frame(7, 99, encoded("hi"))).await, ["99 7: error 12 no method has operation 99"]);
        assert_eq!(
            peer.asks([open_frame(1, 99), stream_frame(1, encoded("hi"))].concat()).await,
            ["stream 1: error 12 no method has operation 99", "stream 1: end"]
        );
        assert!(peer.asks(stream_frame(1, end())).await.is_empty());
        assert_eq!(
            peer.asks([open_frame(2, COUNT), stream_frame(2, encoded("one"))].concat()).await,
            ["stream 1 closed", "stream 2: one", "stream 2: end"],
            "only now, for the sake of Go"
        );
    });
}

fn calls_to_unknown_services_are_unimplemented(transport: Transport) {
    in_virtual_time(async {
        let (service, served, client) = transport.serve_and_connect().await;
        let callback = CallbackClient::new(served.channel.clone());
        let results = [
            callback.say(words("hi")).await.map(drop),
            joined(callback.count(words("hi")).await).await.map(drop),
            callback.gather(Streaming::from_iter([words("hi")])).await.map(drop),
            joined(callback.chat(Streaming::from_iter([words("hi")])).await).await.map(drop),
        ];
        for result in results {
            let status = result.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented);
            assert!(status.call_error().is_none(), "it is an answer");
        }
        assert!(service.log.take().is_empty());
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        served.assert_unharmed().await;
    });
}

fn calling_a_method_as_another_kind_is_unimplemented(transport: Transport) {
    in_virtual_time(async {
        let (service, served, client) = transport.serve_and_connect().await;
        let requests = || Streaming::from_iter([words("hi")]);
        let channel = &served.channel;
        let results = [
            channel.unary::<Words, Words>(&test_methods::COUNT, words("hi")).await.map(drop),
            joined(channel.server_streaming::<Words, Words>(&test_methods::SAY, words("hi")).await).await.map(drop),
            channel.client_streaming::<Words, Words>(&test_methods::SAY, requests()).await.map(drop),
            joined(channel.bidirectional::<Words, Words>(&test_methods::SAY, requests()).await).await.map(drop),
        ];
        for result in results {
            let status = result.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{status}");
            assert!(status.call_error().is_none(), "it is an answer");
        }
        assert!(service.log.take().is_empty());
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        served.assert_unharmed().await;
    });
}

#[test]
fn methods_called_as_a_wrong_kind_are_answered() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let mut peer = peer_of(&server);
        for operation in [COUNT, GATHER, CHAT] {
            let heard = peer.asks(frame(7, operation.into(), encoded("hi"))).await;
            assert_eq!(heard, [format!("{operation} 7: error 12 the method is called on a stream")]);
        }
        let heard =
            peer.asks([open_frame(1, 10), stream_frame(1, encoded("hi")), stream_frame(1, end())].concat()).await;
        assert_eq!(heard[..2], ["stream 1: error 12 the method takes a packet, not a stream", "stream 1: end"]);
    });
}

#[test]
fn unexpected_answers_are_not_answered() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let mut peer = peer_of(&server);
        assert!(peer.asks(frame(7, 99, error("no such thing"))).await.is_empty());
        drop(peer);
        settle().await;
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let channel = quiet_channel().router(Unimplemented).attach(ours).await.unwrap();
        let connection = channel.connection().unwrap();
        connection.send(own_packet(1, "for nobody")).await.unwrap();
        settle().await;
        for connection in [connection, only_connection(&server).await] {
            let counters = connection.metrics().counters;
            assert_eq!(counters.packets_out, 1);
        }
    });
}

#[test]
fn an_oversized_response_becomes_an_error() {
    in_virtual_time(async {
        let config = Config { content_len_max: 200, ..quiet() };
        let server = Server::builder().config(config).add_service(TestServer::new(TestService::default()));
        let server = server.without_listener().unwrap();
        let client = connect(&server).await;
        for result in each_kind(&client, "large 200").await {
            let status = result.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            assert!(status.call_error().is_none(), "it is not this side that refused");
        }
        // The longest answer that fits, with its kind, flags and length.
        assert_eq!(ask(&client, "large 194").await.unwrap().len(), 194);
        assert_eq!(server.metrics().accepted, 1);
    });
}

#[test]
fn an_oversized_status_keeps_its_code() {
    in_virtual_time(async {
        let config = Config { content_len_max: 1000, ..quiet() };
        let server = Server::builder().config(config).add_service(TestServer::new(TestService::default()));
        let server = server.without_listener().unwrap();
        let client = connect(&server).await;
        for result in each_kind(&client, "complain 1000").await {
            assert_eq!(result.unwrap_err().code(), Code::NotFound);
        }
    });
}

#[test]
fn an_oversized_request_is_rejected_by_the_caller() {
    in_virtual_time(async {
        let config = Config { content_len_max: 20, ..quiet() };
        let (client, mut peer) = peer_of_channel(quiet_channel().config(config)).await;
        for result in each_kind(&client, "more than twenty bytes").await {
            let status = result.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted);
            let error = status.call_error().unwrap();
            assert!(matches!(error, CallError::MessageTooLarge { len: 27, limit: 20 }), "{error:?}");
            assert!(error.is_safe_to_repeat());
        }
        let opened = |id, operation| [format!("stream {id}: open {operation}"), format!("stream {id} closed")];
        assert_eq!(peer.heard().await, [opened(1, 11), opened(2, 12), opened(3, 13)].concat());
    });
}

fn a_status_sent_before_closing_the_connection_arrives(transport: Transport) {
    in_virtual_time(async {
        for kind in 0..4 {
            let (_service, served, client) = transport.serve_and_connect().await;
            settle().await;
            let connections = served.server.iter().flat_map(|server| server.connections()).collect::<Vec<_>>();
            assert_eq!(connections.len(), usize::from(transport != Transport::InProcess));
            let status = of_kind(&client, kind, "bye").await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Aborted, "bye"));
            for connection in connections {
                assert!(matches!(connection.closed().await, frpc::CloseReason::Local));
            }
        }
    });
}

#[test]
fn in_process_calls_have_no_connection_and_no_peer() {
    in_virtual_time(async {
        let (_service, _served, client) = Transport::InProcess.serve_and_connect().await;
        assert_eq!(ask(&client, "peer").await.unwrap(), "nobody");
        assert!(client.channel().connection().is_none());
        let status = ask(&client, "back say hi").await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        let taken = Channel::in_process(TestServer::new(TestService::default())).into_raw().await;
        assert_eq!(taken.unwrap_err().code(), Code::FailedPrecondition);
    });
}
