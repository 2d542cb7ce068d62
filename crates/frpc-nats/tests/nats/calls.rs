//! Calls through NATS.

use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use frpc::{Answer, Call, Channel, Code, Layer, Layered, Next, Request, Server, Status, Streaming, interceptor};
use frpc_nats::{NatsServer, NatsSettings};
use support::{
    NatsProgram, SECOND,
    calls::{TestClient, TestServer, TestService, all, ask, asking, each_kind, may_have_executed, next, words},
    in_real_time,
    interop::{
        Service,
        schema::{Blob, Rich, interop_client::InteropClient, interop_server::InteropServer},
    },
    until,
};

use crate::common::{Setup, cluster, connect};

#[test]
fn every_kind_of_call_goes_through_nats() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let service = TestService::default();
        let setup = Setup::start(program, TestServer::new(service.clone())).await;
        let client = TestClient::new(setup.connect().await);
        for text in ["hello", "\u{e9}\n%"] {
            let answers = each_kind(&client, text).await.map(Result::unwrap);
            assert_eq!(answers, [text, text, text, &format!("re: {text}")]);
        }
        for answer in each_kind(&client, "fail 5 not here").await {
            let status = answer.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::NotFound, "not here"));
        }
        let status = ask(&client, "panic").await.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(setup.server.shutdown(10 * SECOND).await, 0);
    });
}

#[test]
fn conversations_alternate_and_end() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let setup = Setup::start(program, TestServer::new(TestService::default())).await;
        let client = TestClient::new(setup.connect().await);
        let (sender, requests) = Streaming::channel(1);
        let mut answers = client.chat(requests).await.unwrap().into_inner();
        for text in ["one", "two", "three"] {
            sender.send(words(text)).await.unwrap();
            assert_eq!(next(&mut answers).await, format!("re: {text}"));
        }
        drop(sender);
        assert_eq!(answers.message().await.unwrap(), None);
    });
}

/// Answers with the metadata of the request, as metadata and as trailers.
struct Mirror;

impl Layer for Mirror {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let (metadata, has_deadline) = (call.head().metadata().clone(), call.head().deadline().is_some());
        if metadata.contains_key("x-fail") {
            return Err(Status::with_details_and_metadata(Code::Aborted, "as asked", &b"\x00details"[..], metadata));
        }
        let mut answer = next.run(call).await?;
        *answer.metadata_mut() = metadata.clone();
        answer.metadata_mut().insert("x-deadline", has_deadline.to_string()).unwrap();
        let mut trailers = metadata;
        trailers.insert("x-last", "yes").unwrap();
        Ok(match answer.body() {
            frpc::Body::One(_) => {
                *answer.trailers_mut() = trailers;
                answer
            }
            _ => answer.map_body(|body| match body {
                frpc::Body::Many(messages) => frpc::Body::Many(messages.with_trailers(trailers)),
                body => body,
            }),
        })
    }
}

#[test]
fn metadata_trailers_details_and_deadlines_arrive() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let setup = Setup::start(program, Layered::new(TestServer::new(TestService::default()), Mirror)).await;
        let client = TestClient::new(setup.connect().await);
        let request = |name: &str| {
            let mut request = Request::new(words("hello"));
            request.metadata_mut().insert(name, "a value").unwrap();
            request.metadata_mut().append("x-many", "1").unwrap();
            request.metadata_mut().append("x-many", "2").unwrap();
            request.metadata_mut().insert_bin("x-bytes-bin", [0, 255, 10, 13]).unwrap();
            request.set_timeout(10 * SECOND);
            request
        };
        let answer = client.say(request("x-one")).await.unwrap();
        for metadata in [answer.metadata(), answer.trailers()] {
            assert_eq!(metadata.get("x-one"), Some("a value"));
            assert_eq!(metadata.get_all("x-many").collect::<Vec<_>>(), ["1", "2"]);
            assert_eq!(metadata.get_bin("x-bytes-bin"), Some(&[0, 255, 10, 13][..]));
        }
        assert_eq!((answer.metadata().get("x-deadline"), answer.trailers().get("x-last")), (Some("true"), Some("yes")));

        let mut stream = client.count(request("x-one")).await.unwrap().into_inner();
        assert_eq!(next(&mut stream).await, "hello");
        assert_eq!(stream.metadata().unwrap().get("x-one"), Some("a value"));
        assert_eq!(stream.trailers().await.unwrap().unwrap().get("x-last"), Some("yes"));

        let stream = async { all(client.count(request("x-fail")).await.unwrap()).await.unwrap_err() };
        for status in [client.say(request("x-fail")).await.unwrap_err(), stream.await] {
            assert_eq!(
                (status.code(), status.message(), status.details()),
                (Code::Aborted, "as asked", &b"\x00details"[..])
            );
            assert_eq!(status.metadata().get("x-fail"), Some("a value"));
        }
    });
}

#[test]
fn dropped_calls_are_cancelled_at_the_server() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let service = TestService::default();
        let setup = Setup::start(program, TestServer::new(service.clone())).await;
        let client = TestClient::new(setup.connect().await);
        let call = asking(&client, "wait");
        service.gate.arrival().await;
        call.abort();
        until_dropped(&service, "dropped say wait").await;

        let mut stream = client.count(words("endless x")).await.unwrap().into_inner();
        assert_eq!(next(&mut stream).await, "x");
        drop(stream);
        until_dropped(&service, "dropped count endless x").await;

        let (sender, requests) = Streaming::channel(1);
        let gathering = tokio::spawn({
            let client = client.clone();
            async move { client.gather(requests).await }
        });
        sender.send(words("wait")).await.unwrap();
        service.gate.arrival().await;
        gathering.abort();
        until_dropped(&service, "dropped gather").await;
    });
}

async fn until_dropped(service: &TestService, event: &str) {
    until(|| service.log.take().iter().any(|found| found == event)).await;
}

#[test]
fn deadlines_end_calls_on_both_sides() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let service = TestService::default();
        let setup = Setup::start(program, TestServer::new(service.clone())).await;
        let client = TestClient::new(setup.connect().await);
        let mut request = Request::new(words("wait"));
        request.set_timeout(Duration::from_millis(200));
        assert_eq!(client.say(request).await.unwrap_err().code(), Code::DeadlineExceeded);
        until_dropped(&service, "dropped say wait").await;
        let mut request = Request::new(words("one, wait"));
        request.set_timeout(Duration::from_millis(200));
        let mut stream = client.count(request).await.unwrap().into_inner();
        assert_eq!(next(&mut stream).await, "one");
        assert_eq!(stream.message().await.unwrap_err().code(), Code::DeadlineExceeded);
        until_dropped(&service, "dropped count one, wait").await;
    });
}

#[test]
fn a_call_without_a_server_fails_immediately_and_unexecuted() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let nats = program.start("one", "").await;
        let client = TestClient::new(connect(&nats).await.with_timeout(support::DAY));
        for answer in each_kind(&client, "hello").await {
            let status = answer.unwrap_err();
            assert!(status.message().contains("no server of `test`"), "{status}");
            assert!(!may_have_executed(&status));
        }
    });
}

#[test]
fn unknown_methods_are_unimplemented() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let setup = Setup::start(program, TestServer::new(TestService::default())).await;
        let status = InteropClient::new(setup.connect().await).echo(Rich::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
    });
}

#[test]
fn long_messages_travel_in_pieces() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let setup = Setup::start_with(program, "max_payload: 100000", InteropServer::new(Service)).await;
        let interop = InteropClient::new(setup.connect().await);
        for len in [0, 1, 60_000, 70_000, 99_990, 200_000, 3_000_000] {
            let blob = Blob { data: (0..len).map(|at: u32| at.to_le_bytes()[0]).collect() };
            assert!(interop.payload(blob.clone()).await.unwrap().into_inner() == blob, "{len}");
        }
        let status = interop.payload(Blob { data: vec![0; 5_000_000] }).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    });
}

#[test]
fn a_long_answer_to_a_short_request_travels_in_pieces() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let setup = Setup::start(program, TestServer::new(TestService::default())).await;
        let client = TestClient::new(setup.connect().await);
        for len in [1_000_000, 1_048_576, 3_000_000] {
            assert_eq!(ask(&client, &format!("large {len}")).await.unwrap().len(), len);
        }
    });
}

#[test]
fn an_unread_stream_stops_its_sender_and_continues_later() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let service = TestService::default();
        let setup = Setup::start(program, TestServer::new(service.clone())).await;
        let client = TestClient::new(setup.connect().await);
        let item = "x".repeat(1000);
        let mut stream = client.count(words(format!("endless {item}"))).await.unwrap().into_inner();
        assert_eq!(next(&mut stream).await, item);
        // The window is 512 KiB.
        until(|| service.made() > 400).await;
        assert_eq!(ask(&client, "hello").await.unwrap(), "hello", "other calls continue");
        let made = service.made();
        assert!(made < 600, "{made} messages were sent ahead");
        for _ in 0..3000 {
            assert_eq!(next(&mut stream).await, item);
        }
        assert!(service.made() > 3000);
    });
}

#[test]
fn calls_are_spread_over_the_servers_of_a_group() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let nats = program.start("one", "").await;
        let services = [TestService::default(), TestService::default()];
        let mut servers = Vec::new();
        for service in &services {
            let cluster = cluster(&nats);
            let server = NatsServer::builder("test").serve(&cluster, TestServer::new(service.clone()));
            servers.push(server.await.unwrap());
        }
        let client = TestClient::new(connect(&nats).await);
        for _ in 0..100 {
            ask(&client, "hello").await.unwrap();
        }
        let counts = services.map(|service| service.log.take().len());
        assert_eq!(counts.iter().sum::<usize>(), 100);
        assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    });
}

#[test]
fn a_shutdown_under_load_fails_no_call() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let nats = program.start("one", "").await;
        let start = || async {
            NatsServer::builder("test").serve(&cluster(&nats), TestServer::new(TestService::default())).await.unwrap()
        };
        let channel = connect(&nats).await;
        let (over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut server = start().await;
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let (client, over, made) = (TestClient::new(channel.clone()), over.clone(), made.clone());
                tokio::spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for round in 1..=5 {
            until(|| made.load(Ordering::Relaxed) > round * 50).await;
            let next = start().await;
            assert_eq!(std::mem::replace(&mut server, next).shutdown(10 * SECOND).await, 0);
        }
        over.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.await.unwrap();
        }
    });
}

#[test]
fn a_shutdown_cuts_calls_after_its_limit() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let service = TestService::default();
        let setup = Setup::start(program, TestServer::new(service.clone())).await;
        let client = TestClient::new(setup.connect().await);
        let call = asking(&client, "wait");
        service.gate.arrival().await;
        assert_eq!(setup.server.shutdown(Duration::from_millis(100)).await, 1);
        until_dropped(&service, "dropped say wait").await;
        call.abort();
    });
}

#[test]
fn a_full_server_refuses_calls_unexecuted() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let nats = program.start("one", "").await;
        let service = TestService::default();
        let settings = NatsSettings { calls_max: 1, ..NatsSettings::default() };
        let server = NatsServer::builder("test").settings(settings);
        let _server = server.serve(&cluster(&nats), TestServer::new(service.clone())).await.unwrap();
        let client = TestClient::new(connect(&nats).await);
        let call = asking(&client, "wait");
        service.gate.arrival().await;
        let status = ask(&client, "hello").await.unwrap_err();
        assert!(matches!(status.call_error(), Some(frpc::CallError::Refused { .. })), "{status}");
        assert!(status.message().contains("calls_max"), "{status}");
        service.gate.open(1);
        assert_eq!(call.await.unwrap().unwrap(), "wait");
    });
}

#[test]
fn the_services_of_a_server_are_served_in_both_ways() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let seen = Arc::new(AtomicUsize::new(0));
        let count = seen.clone();
        let counting = interceptor(move |_: &mut Call| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let server = Server::builder().layer(counting).add_service(TestServer::new(TestService::default()));
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let setup = Setup::start(program, server.endpoint()).await;
        for channel in [setup.connect().await, Channel::connect(server.local_addr()).await.unwrap()] {
            assert_eq!(ask(&TestClient::new(channel), "hello").await.unwrap(), "hello");
        }
        assert_eq!(seen.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn calls_continue_after_a_restart_of_nats() {
    let Some(program) = NatsProgram::find() else { return };
    in_real_time(async {
        let Setup { mut nats, server } = Setup::start(program, TestServer::new(TestService::default())).await;
        let client = TestClient::new(connect(&nats).await.with_timeout(SECOND));
        assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
        nats.kill().await;
        let nats = nats.restart().await;
        // Until both sides are connected again, calls fail with a reason.
        loop {
            match ask(&client, "hello").await {
                Ok(answer) => break assert_eq!(answer, "hello"),
                Err(status) => assert!(matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded), "{status}"),
            }
        }
        drop((nats, server));
    });
}
