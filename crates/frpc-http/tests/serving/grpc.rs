//! gRPC, as seen by a client on the bare `h2` crate.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use frpc::{
    Answer, Call, Code, Layer, Metadata, Next, Server, Status,
    prost::Message,
    prost_types::{Any, Duration},
};
use frpc_http::{Http, HttpSettings};
use h2::Reason;
use http::{Method, StatusCode};
use support::{
    EventLog, SECOND, assert_elapsed,
    calls::{TestServer, TestService, quiet, words},
    in_virtual_time, settle,
};
use tokio::time::Instant;

use crate::h2_caller::{H2Caller, frame, frames, grpc_request, messages, server, text};

async fn serve(service: &TestService) -> (Server, H2Caller) {
    serve_as(service, Http::new()).await
}

async fn serve_as(service: &TestService, http: Http) -> (Server, H2Caller) {
    let server = server(service, http).without_listener().unwrap();
    let caller = H2Caller::connect(&server).await;
    (server, caller)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn calls_of_every_kind_are_served() {
    in_virtual_time(async {
        let (_server, mut caller) = serve(&TestService::default()).await;
        assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), ["hi"]);
        assert_eq!(caller.call("Count", &[], &["a, b"]).await.texts(), ["a", "b"]);
        assert_eq!(caller.call("Gather", &[], &["a", "b"]).await.texts(), ["a b"]);
        assert_eq!(caller.call("Gather", &[], &[]).await.texts(), [""]);
        assert_eq!(caller.call("Chat", &[], &["a", "b"]).await.texts(), ["re: a", "re: b"]);
        let large = caller.call("Say", &[], &["large 100000"]).await.texts();
        assert_eq!(large, ["x".repeat(100_000)]);
        let list = vec!["large 9000"; 20].join(", ");
        assert_eq!(caller.call("Count", &[], &[&list]).await.texts(), vec!["x".repeat(9000); 20]);
    });
}

#[test]
fn bidirectional_streams_interleave() {
    in_virtual_time(async {
        let (_server, mut caller) = serve(&TestService::default()).await;
        let mut open = caller.open(grpc_request("Chat", &[])).await;
        let mut answers = None;
        for word in ["one", "two", "three"] {
            open.send(word);
            if answers.is_none() {
                answers = Some((&mut open.response).await.unwrap().into_body());
            }
            let data = answers.as_mut().unwrap().data().await.unwrap().unwrap();
            assert_eq!(text(&frames(&data)[0].1), format!("re: {word}"));
        }
        open.finish();
        let mut answers = answers.unwrap();
        assert!(answers.data().await.is_none());
        assert_eq!(answers.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    });
}

#[test]
fn early_failures_are_trailers_only_responses() {
    in_virtual_time(async {
        let (_server, mut caller) = serve(&TestService::default()).await;
        for method in ["Say", "Count", "Gather", "Chat"] {
            let message = if method == "Count" { "first fail 5 no \u{e9}" } else { "fail 5 no \u{e9}" };
            let reply = caller.call(method, &[], &[message]).await;
            if reply.trailers.is_none() {
                assert_eq!(reply.headers["grpc-message"], "no %C3%A9");
            }
            assert_eq!(reply.texts(), ["5 no %C3%A9"], "{method}");
        }
        let reply = caller.call("Say", &[], &["fail 5 no"]).await;
        assert!(reply.trailers.is_none() && reply.body.is_empty(), "trailers only: {reply:?}");
        let reply = caller.call("Count", &[], &["one, two, fail 9 enough, three"]).await;
        assert_eq!(reply.texts(), ["one", "two", "9 enough"]);
        assert_eq!(caller.call("Say", &[], &["panic"]).await.texts(), ["13 the handler panicked"]);
        assert_eq!(caller.call("Sing", &[], &["hi"]).await.texts(), ["12 this server has no method /calls.Test/Sing"]);
        let long = caller.call(&"a".repeat(10_000), &[], &["hi"]).await.texts();
        assert!(long[0].starts_with("12 this server has no method /calls.Test/aaa") && long[0].len() < 300, "{long:?}");
    });
}

#[test]
fn a_unary_call_needs_exactly_one_message() {
    in_virtual_time(async {
        let service = TestService::default();
        let (_server, mut caller) = serve(&service).await;
        for (texts, message) in [
            (&[][..], "12 the request has no message; this method takes exactly one"),
            (&["a", "b"], "12 the request has several messages; this method takes exactly one"),
        ] {
            assert_eq!(caller.call("Say", &[], texts).await.texts(), [message]);
        }
        assert!(service.log.take().is_empty(), "no handler is called");
    });
}

#[test]
fn invalid_requests_are_rejected_with_an_http_status() {
    in_virtual_time(async {
        let (_server, mut caller) = serve(&TestService::default()).await;
        for content_type in ["application/grpc+thrift", "application/grpcs", "text/html", ""] {
            let mut request = grpc_request("Say", &[]);
            request.headers_mut().insert("content-type", content_type.parse().unwrap());
            let reply = caller.ask(request, messages(&["hi"])).await;
            assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{content_type}");
        }
        let mut request = grpc_request("Say", &[]);
        *request.method_mut() = Method::PUT;
        let reply = caller.ask(request, messages(&["hi"])).await;
        assert_eq!((reply.status, &reply.headers["allow"]), (StatusCode::METHOD_NOT_ALLOWED, &"POST".parse().unwrap()));

        let (_server, mut caller) = serve_as(
            &TestService::default(),
            Http::new().settings(HttpSettings { grpc: false, ..HttpSettings::default() }),
        )
        .await;
        let reply = caller.call("Say", &[], &["hi"]).await;
        assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "it is switched off");
    });
}

/// Answers with the metadata of the request, as metadata and as trailers.
struct Echo;

impl Layer for Echo {
    async fn call(&self, mut call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let metadata = std::mem::take(call.head_mut().metadata_mut());
        if metadata.contains_key("x-fail") {
            let detail = Any::from_msg(&Duration { seconds: 3, nanos: 0 }).unwrap();
            let mut status = Status::with_error_details(Code::Aborted, "again", [detail]);
            *status.metadata_mut() = metadata;
            return Err(status);
        }
        let mut answer = next.run(call).await?;
        answer.trailers_mut().merge(only(&metadata, "x-behind-bin"));
        answer.metadata_mut().merge(metadata);
        Ok(answer)
    }
}

fn only(metadata: &Metadata, name: &str) -> Metadata {
    let mut only = Metadata::new();
    metadata.get_all_bin(name).for_each(|value| only.append_bin(name, value).unwrap());
    only
}

#[test]
fn metadata_travels_in_both_directions() {
    in_virtual_time(async {
        let service = TestServer::new(TestService::default());
        let server = Server::builder().config(quiet()).wire(Http::new()).layer(Echo).add_service(service);
        let server = server.without_listener().unwrap();
        let mut caller = H2Caller::connect(&server).await;
        let headers = [("x-text", "a, b"), ("x-behind-bin", "AQI="), ("x-behind-bin", "AQ,/w"), ("grpc-x", "no")];
        for method in ["Say", "Count"] {
            let reply = caller.call(method, &headers, &["hi"]).await;
            assert_eq!(reply.texts(), ["hi"]);
            assert_eq!(reply.headers["x-text"], "a, b");
            assert!(!reply.headers.contains_key("grpc-x"));
            let behind: Vec<_> = reply.trailers.unwrap().get_all("x-behind-bin").into_iter().cloned().collect();
            assert_eq!(behind, ["AQI", "AQ", "/w"], "without padding");
        }
        let reply = caller.call("Say", &[("x-fail", "yes")], &["hi"]).await;
        assert_eq!(reply.texts(), ["10 again"]);
        assert_eq!(reply.end("x-fail"), Some("yes"));
        assert!(reply.end("grpc-status-details-bin").unwrap().starts_with("CAoSBWFnYWlu"), "{reply:?}");
        assert_eq!(
            caller.call("Say", &[("x-bin", "?")], &["hi"]).await.texts(),
            ["3 the value of x-bin is not base64"]
        );
        let long = "x".repeat(9000);
        let texts = caller.call("Say", &[("x-long", &long)], &["hi"]).await.texts();
        assert!(texts[0].starts_with("8 the metadata has 90"), "{texts:?}");
    });
}

#[test]
fn handlers_are_dropped_at_the_deadline_of_the_caller() {
    in_virtual_time(async {
        let service = TestService::default();
        let (_server, mut caller) = serve(&service).await;
        let texts = caller.call("Say", &[("grpc-timeout", "2S")], &["sleep 3"]).await.texts();
        assert!(texts[0].starts_with("4 "), "{texts:?}");
        let texts = caller.call("Count", &[("grpc-timeout", "2000m")], &["a, sleep 3"]).await.texts();
        assert!(texts[0] == "a" && texts[1].starts_with("4 "), "{texts:?}");
        let log = ["say sleep 3", "dropped say sleep 3", "count a, sleep 3", "dropped count a, sleep 3"];
        assert_eq!(service.log.take(), log);
        let texts = caller.call("Say", &[("grpc-timeout", "2s")], &["hi"]).await.texts();
        assert_eq!(texts, ["3 invalid grpc-timeout \"2s\""]);
    });
}

#[test]
fn a_late_message_ends_its_call() {
    in_virtual_time(async {
        let (_server, mut caller) = serve_as(
            &TestService::default(),
            Http::new().settings(HttpSettings { body_time_max: 5 * SECOND, ..HttpSettings::default() }),
        )
        .await;
        let (start, mut open) = (Instant::now(), caller.open(grpc_request("Say", &[])).await);
        open.sending.send_data(messages(&["hi"]).slice(..7), false).unwrap();
        assert_eq!(open.reply().await.texts(), ["4 the request did not arrive within 5s"]);
        assert_elapsed(start, 5 * SECOND);
        let (start, open) = (Instant::now(), caller.open(grpc_request("Say", &[("grpc-timeout", "1S")])).await);
        assert_eq!(open.reply().await.texts(), ["4 the request did not arrive within 1s"]);
        assert_elapsed(start, SECOND);
    });
}

#[test]
fn a_reset_call_drops_its_handler() {
    in_virtual_time(async {
        let service = TestService::default();
        let (_server, mut caller) = serve(&service).await;
        for (method, name) in [("Say", "say wait"), ("Count", "count wait"), ("Gather", "gather"), ("Chat", "chat")] {
            let mut open = caller.open(grpc_request(method, &[])).await;
            open.send("wait");
            if method == "Say" || method == "Count" {
                open.finish();
            }
            settle().await;
            assert_eq!(service.log.take(), [name]);
            open.sending.send_reset(Reason::CANCEL);
            settle().await;
            assert_eq!(service.log.take(), [format!("dropped {name}")]);
        }
        for reason in [Reason::CANCEL, Reason::NO_ERROR] {
            let mut open = caller.open(grpc_request("Gather", &[])).await;
            open.send("a");
            settle().await;
            open.sending.send_reset(reason);
            settle().await;
            assert_eq!(service.log.take(), ["gather", "dropped gather"], "a part is not taken for the whole: {reason}");
        }
        let mut open = caller.open(grpc_request("Say", &[])).await;
        open.send("wait");
        open.finish();
        settle().await;
        service.log.take();
        drop((open, caller));
        settle().await;
        assert_eq!(service.log.take(), ["dropped say wait"], "with the connection");
    });
}

#[test]
fn responses_are_compressed_for_compressing_callers() {
    in_virtual_time(async {
        let (_server, mut caller) = serve(&TestService::default()).await;
        let content = gzip(&words("large 5000").encode_to_vec());
        for method in ["Say", "Count"] {
            let request = grpc_request(method, &[("grpc-encoding", "gzip"), ("grpc-accept-encoding", "br, gzip")]);
            let reply = caller.ask(request, frame(1, &content)).await;
            assert_eq!(reply.headers["grpc-encoding"], "gzip");
            let frames = frames(&reply.body);
            assert!(frames.len() == 1 && frames[0].0 == 1 && frames[0].1.len() < 200, "{frames:?}");
        }
        let request = grpc_request("Say", &[("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity")]);
        let reply = caller.ask(request, frame(1, &content)).await;
        assert_eq!(reply.texts(), ["x".repeat(5000)]);
        let request = grpc_request("Say", &[("grpc-encoding", "gzip")]);
        let reply = caller.ask(request, messages(&["small"])).await;
        assert_eq!(reply.texts(), ["small"]);

        let reply = caller.call("Say", &[("grpc-encoding", "snappy")], &["hi"]).await;
        assert!(reply.end("grpc-status") == Some("12") && reply.headers["grpc-accept-encoding"] == "gzip", "{reply:?}");
        let reply = caller.ask(grpc_request("Say", &[]), frame(1, &content)).await;
        assert_eq!(reply.texts(), ["13 a message is compressed, but no request header names the compression"]);
        let reply = caller.call("Say", &[("grpc-accept-encoding", "gzip")], &["large 5000"]).await;
        assert_eq!(reply.texts(), ["x".repeat(5000)], "for those alone");

        let (_server, mut caller) = serve_as(
            &TestService::default(),
            Http::new().settings(HttpSettings { send_compressed: true, ..HttpSettings::default() }),
        )
        .await;
        let reply = caller.call("Say", &[("grpc-accept-encoding", "gzip")], &["large 5000"]).await;
        assert_eq!(frames(&reply.body)[0].0, 1);
    });
}

#[test]
fn oversized_messages_are_rejected() {
    in_virtual_time(async {
        let service = TestService::default();
        let (_server, mut caller) =
            serve_as(&service, Http::new().settings(HttpSettings { message_len_max: 1000, ..HttpSettings::default() }))
                .await;
        let text = "x".repeat(1001);
        for method in ["Say", "Count"] {
            let texts = caller.call(method, &[], &[&text]).await.texts();
            assert_eq!(texts, ["8 a message of 1004 bytes exceeds the limit of 1000 bytes"]);
        }
        // The handler decides about a failed request stream. This one returns the status of the stream.
        for method in ["Gather", "Chat"] {
            let texts = caller.call(method, &[], &["a", &text]).await.texts();
            assert_eq!(texts.last().unwrap(), "8 a message of 1004 bytes exceeds the limit of 1000 bytes");
        }
        let bomb = frame(1, &gzip(&vec![0; 1_000_000]));
        let reply = caller.ask(grpc_request("Say", &[("grpc-encoding", "gzip")]), bomb).await;
        assert_eq!(reply.texts(), ["8 a message of 4615 bytes exceeds the limit of 1000 bytes"]);
        let bomb = frame(1, &gzip(&vec![0; 100_000]));
        let reply = caller.ask(grpc_request("Say", &[("grpc-encoding", "gzip")]), bomb).await;
        assert_eq!(reply.texts(), ["8 a decompressed message exceeds the limit of 1000 bytes"]);
    });
}

#[test]
fn a_request_truncated_within_a_message_is_rejected() {
    in_virtual_time(async {
        let (_server, mut caller) = serve(&TestService::default()).await;
        for len in 1..messages(&["hi"]).len() {
            let reply = caller.ask(grpc_request("Say", &[]), messages(&["hi"]).slice(..len)).await;
            assert_eq!(reply.texts(), ["3 the message stream ended in the middle of a message"]);
        }
        let reply = caller.ask(grpc_request("Say", &[]), frame(0x7e, b"")).await;
        assert_eq!(reply.texts(), ["13 a message has unknown flags: 0x7e"]);
    });
}

#[test]
fn shutdown_sends_goaway_and_lets_calls_finish() {
    in_virtual_time(async {
        let service = TestService::default();
        let (server, mut caller) = serve(&service).await;
        let mut open = caller.open(grpc_request("Say", &[])).await;
        open.send("wait");
        open.finish();
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(9 * SECOND));
        settle().await;
        let refused =
            caller.0.clone().ready().await.and_then(|mut sender| sender.send_request(grpc_request("Say", &[]), true));
        if let Ok((response, _)) = refused {
            assert!(response.await.unwrap_err().is_go_away());
        }
        service.gate.open(1);
        assert_eq!(open.reply().await.texts(), ["wait"]);
        assert_eq!(shutdown.await.unwrap(), 0, "no connection had to be cut");
    });
}

#[test]
fn shutdown_does_not_exceed_its_limit() {
    in_virtual_time(async {
        let service = TestService::default();
        let (server, mut caller) = serve(&service).await;
        let mut open = caller.open(grpc_request("Say", &[])).await;
        open.send("wait");
        open.finish();
        settle().await;
        let start = Instant::now();
        assert_eq!(server.shutdown(9 * SECOND).await, 1);
        assert_elapsed(start, 9 * SECOND);
        assert!(open.response.await.is_err());
        settle().await;
        assert_eq!(service.log.take(), ["say wait", "dropped say wait"]);
    });
}

/// Records cancelled calls, in tasks that outlive their handlers.
struct Watch(EventLog);

impl Layer for Watch {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let (log, name, cancelled) = (self.0.clone(), call.method().name, call.head().cancelled());
        tokio::spawn(async move {
            cancelled.await;
            log.add(name);
        });
        next.run(call).await
    }
}

#[test]
fn handler_tasks_learn_of_cancellation_only() {
    in_virtual_time(async {
        let (service, log) = (TestService::default(), EventLog::default());
        let server = server(&service, Http::new()).layer(Watch(log.clone())).without_listener().unwrap();
        let mut caller = H2Caller::connect(&server).await;
        for (method, last) in [("Say", "wait"), ("Count", "a, wait"), ("Gather", "wait"), ("Chat", "wait")] {
            assert_eq!(caller.call(method, &[], &["hi"]).await.end("grpc-status"), Some("0"));
            caller.call(method, &[], &["fail 5 no"]).await;
            settle().await;
            assert!(log.take().is_empty(), "{method} ended by itself");
            let mut open = caller.open(grpc_request(method, &[])).await;
            open.send(last);
            open.finish();
            settle().await;
            open.sending.send_reset(Reason::CANCEL);
            settle().await;
            assert_eq!(log.take(), [method]);
        }
    });
}

#[test]
fn a_call_with_a_zero_timeout_runs_no_handler() {
    in_virtual_time(async {
        let service = TestService::default();
        let (_server, mut caller) = serve(&service).await;
        for method in ["Say", "Count", "Gather", "Chat"] {
            for time in ["0S", "0n"] {
                let reply = caller.call(method, &[("grpc-timeout", time)], &["hi"]).await;
                assert_eq!(reply.texts(), ["4 the timeout of the call is zero"], "{method}");
            }
        }
        let request = || http::Request::post("http://test/calls.Test/Say").header("content-type", "application/json");
        let reply = caller.ask(request().header("connect-timeout-ms", "0").body(()).unwrap(), "{}").await;
        assert_eq!((reply.status.as_u16(), reply.body.starts_with(b"{\"code\":\"deadline_exceeded\"")), (504, true));
        assert!(service.log.take().is_empty());
    });
}

#[test]
fn a_handler_error_with_code_ok_is_a_failure() {
    in_virtual_time(async {
        let service = TestService::default();
        let (_server, mut caller) = serve(&service).await;
        let failed = "2 the handler failed with the code Ok: all is well";
        assert_eq!(caller.call("Say", &[], &["fail 0 all is well"]).await.texts(), [failed]);
        assert_eq!(caller.call("Count", &[], &["first fail 0 all is well"]).await.texts(), [failed]);
        assert_eq!(caller.call("Count", &[], &["a, fail 0 all is well"]).await.texts(), ["a", failed]);
    });
}
