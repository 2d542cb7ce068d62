//! Test doubles: mocks, servers in memory, and injected faults.

use std::{panic::catch_unwind, time::Duration};

use frpc::{
    Channel, Code, Layered, Request, Response, Server, Status, Streaming,
    testing::{FaultCounts, FaultInjector, FaultRates, MemoryServer, Sequence},
};
use support::{
    SECOND,
    calls::{
        TestClient, TestServer, TestService, Words, all, ask, each_kind, joined, of_kind, schema::test_mock::MockTest,
        stream_of, words,
    },
    in_virtual_time,
};

fn client(mock: &MockTest) -> TestClient {
    TestClient::new(mock.channel())
}

/// Returns the text of the panic of a function.
fn panic_of(function: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = catch_unwind(function).expect_err("it panics");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_mock_answers_calls_of_all_kinds() {
    in_virtual_time(async {
        let mock = MockTest::new();
        mock.expect_say().with(words("a")).times(2).answering(words("b"));
        mock.expect_count().withf(|request| request.get_ref().text.len() == 3).answering_all([words("x"), words("y")]);
        mock.expect_gather().with_messages([words("a"), words("b")]).times(1..=2).answering(words("ab"));
        mock.expect_chat().returning(|request| Ok(Response::new(request.into_inner())));
        let client = client(&mock);
        for _ in 0..2 {
            assert_eq!(ask(&client, "a").await.unwrap(), "b");
        }
        assert_eq!(of_kind(&client, 1, "abc").await.unwrap(), "x y");
        assert_eq!(client.gather(stream_of("a b")).await.unwrap().into_inner(), words("ab"));
        assert_eq!(all(client.chat(stream_of("a b c")).await.unwrap()).await.unwrap(), ["a", "b", "c"]);
        mock.verify();
    });
}

#[test]
fn expectations_are_tried_in_order_and_used_up() {
    in_virtual_time(async {
        let mock = MockTest::new();
        mock.expect_say().times(1).answering(words("first"));
        mock.expect_say().with(words("b")).answering(words("second"));
        mock.expect_say().failing(Status::not_found("no such word"));
        let client = client(&mock);
        assert_eq!(ask(&client, "b").await.unwrap(), "first");
        assert_eq!(ask(&client, "b").await.unwrap(), "second");
        assert_eq!(ask(&client, "c").await.unwrap_err().code(), Code::NotFound);
    });
}

#[test]
fn missed_expectations_are_named_with_their_place() {
    let text = panic_of(|| {
        let mock = MockTest::new();
        mock.expect_say().with(words("a")).times(2..).answering(words("b"));
        in_virtual_time(async move { _ = ask(&client(&mock), "a").await });
    });
    let parts = [
        "missed: calls.Test/Say with Words { text: \"a\" }: expected at least 2 calls, got 1",
        "tests/calls/doubles.rs:",
    ];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn an_unexpected_call_fails_and_is_named() {
    let text = panic_of(|| {
        let mock = MockTest::new();
        mock.expect_say().with(words("a")).answering(words("b"));
        mock.expect_gather().never();
        in_virtual_time(async {
            let client = client(&mock);
            let status = ask(&client, "z").await.unwrap_err();
            assert!(status.code() == Code::Internal && status.message().contains("unexpected call"), "{status}");
            assert!(client.count(words("c")).await.unwrap().into_inner().message().await.is_err());
            assert!(client.gather(stream_of("a")).await.is_err());
        });
        mock.verify();
    });
    for part in [
        "unexpected call of calls.Test/Say with Words { text: \"z\" }\n  calls.Test/Say with Words { text: \"a\" }",
        "unexpected call of calls.Test/Count with Words { text: \"c\" }, a method without expectations",
        "unexpected call of calls.Test/Gather",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_sequence_orders_the_calls_of_several_mocks() {
    in_virtual_time(async {
        let (order, one, other) = (Sequence::new(), MockTest::new(), MockTest::new());
        one.expect_say().times(2).in_sequence(&order).answering(words("first"));
        other.expect_say().times(1).in_sequence(&order).answering(words("second"));
        let (one_client, other_client) = (client(&one), client(&other));
        ask(&one_client, "a").await.unwrap();
        assert!(ask(&other_client, "a").await.unwrap_err().message().contains("in a sequence"));
        ask(&one_client, "a").await.unwrap();
        assert_eq!(ask(&other_client, "a").await.unwrap(), "second");
        one.verify();
        assert!(catch_unwind(std::panic::AssertUnwindSafe(|| other.verify())).is_err(), "a call came too early");
    });
}

#[test]
fn a_mock_delays_cuts_and_never_answers() {
    in_virtual_time(async {
        let mock = MockTest::new();
        mock.expect_say().with(words("slow")).delayed(5 * SECOND).answering(words("late"));
        mock.expect_say().with(words("never")).never_answering();
        mock.expect_count().answering_all(["a", "b", "c"].map(words)).cut_after(2, Status::unavailable("cut"));
        let client = client(&mock);
        let start = tokio::time::Instant::now();
        assert_eq!(ask(&client, "slow").await.unwrap(), "late");
        assert_eq!(start.elapsed(), 5 * SECOND);
        let mut request = Request::new(words("never"));
        request.set_timeout(SECOND);
        assert_eq!(client.say(request).await.unwrap_err().code(), Code::DeadlineExceeded);
        let mut answers = client.count(words("")).await.unwrap().into_inner();
        assert_eq!(
            [answers.message().await.unwrap(), answers.message().await.unwrap()],
            [words("a"), words("b")].map(Some)
        );
        assert_eq!(answers.message().await.unwrap_err().message(), "cut");
    });
}

#[test]
fn a_server_in_memory_serves_services_with_layers() {
    in_virtual_time(async {
        let layer = frpc::interceptor(|call| match call.head().metadata().get("color") {
            Some("red") => Ok(()),
            _ => Err(Status::permission_denied("only red")),
        });
        let builder = Server::builder().layer(layer).add_service(TestServer::new(TestService::default()));
        let server = MemoryServer::start(builder).await.unwrap();
        let client = TestClient::new(server.channel().await.unwrap());
        assert_eq!(ask(&client, "a").await.unwrap_err().code(), Code::PermissionDenied);
        let red = frpc::interceptor(|call| Ok(call.head_mut().metadata_mut().insert("color", "red")?));
        let client = TestClient::new(server.channel().await.unwrap().layer(red));
        for answer in each_kind(&client, "a").await {
            answer.unwrap();
        }
        assert_eq!(server.shutdown(SECOND).await, 0);
    });
}

fn rates() -> FaultRates {
    FaultRates {
        delayed: 0.3,
        failed: 0.2,
        lost_requests: 0.1,
        lost_answers: 0.1,
        cut: 0.5,
        cut_after: 0..=1,
        ..FaultRates::default()
    }
}

/// Makes a call of one of the four kinds with a deadline: a lost call has no other end.
async fn in_time(client: &TestClient, kind: usize) -> Result<String, Status> {
    let (mut one, mut many) = (Request::new(words("a")), Request::new(stream_of("a")));
    one.set_timeout(7 * SECOND);
    many.set_timeout(7 * SECOND);
    let text = |answer: Response<Words>| answer.into_inner().text;
    match kind {
        0 => client.say(one).await.map(text),
        1 => joined(client.count(one).await).await,
        2 => client.gather(many).await.map(text),
        _ => joined(client.chat(many).await).await,
    }
}

/// Makes many calls, and returns their outcomes with the elapsed times.
async fn outcomes(client: &TestClient) -> Vec<(Result<String, Code>, Duration)> {
    let mut all = Vec::new();
    for number in 0..200_usize {
        let start = tokio::time::Instant::now();
        let outcome = in_time(client, number % 4).await.map_err(|status| status.code());
        all.push((outcome, start.elapsed()));
    }
    all
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let run = |seed: u64, is_on_server: bool| {
        let (sender, receiver) = std::sync::mpsc::channel();
        in_virtual_time(async move {
            let faults = FaultInjector::new(seed).rates(rates());
            let service = TestServer::new(TestService::default());
            let channel = match is_on_server {
                true => Channel::in_process(Layered::new(service, faults.clone())),
                false => Channel::in_process(service).layer(faults.clone()),
            };
            let client = TestClient::new(channel);
            let outcomes = outcomes(&client).await;
            sender.send((outcomes, faults.counts())).unwrap();
        });
        receiver.recv().unwrap()
    };
    for is_on_server in [true, false] {
        let (first, again, other) = (run(1, is_on_server), run(1, is_on_server), run(2, is_on_server));
        assert_eq!(first, again);
        assert_ne!(first, other);
        let FaultCounts { delayed, failed, lost_requests, lost_answers, cut, .. } = first.1;
        assert!([delayed, failed, lost_requests, lost_answers, cut].iter().all(|count| *count > 5), "{:?}", first.1);
    }
}

#[test]
fn rates_of_a_method_replace_the_others() {
    in_virtual_time(async {
        let faults = FaultInjector::new(1)
            .rates(FaultRates { failed: 1.0, code: Code::Aborted, ..FaultRates::default() })
            .rates_of("calls.Test/Count", FaultRates { cut: 1.0, cut_after: 2..=2, ..FaultRates::default() });
        let service = Layered::new(TestServer::new(TestService::default()), faults.clone());
        let client = TestClient::new(Channel::in_process(service));
        assert_eq!(ask(&client, "a").await.unwrap_err().code(), Code::Aborted);
        let mut answers = client.count(words("a, b, c")).await.unwrap().into_inner();
        assert_eq!(
            [answers.message().await.unwrap(), answers.message().await.unwrap()],
            [words("a"), words("b")].map(Some)
        );
        assert_eq!(answers.message().await.unwrap_err().message(), "an injected cut of the stream");
        assert_eq!((faults.counts().failed, faults.counts().cut), (1, 1));
    });
}

#[test]
fn a_cut_stream_of_requests_fails_in_the_handler() {
    in_virtual_time(async {
        let cut = FaultRates { cut: 1.0, cut_after: 1..=1, ..FaultRates::default() };
        let faults = FaultInjector::new(1).rates(cut);
        let mock = MockTest::new();
        mock.expect_gather().returning_async(|request: Request<Streaming<Words>>| async {
            let mut messages = request.into_inner();
            assert_eq!(messages.message().await?, Some(words("a")));
            Err(messages.message().await.unwrap_err())
        });
        let client = TestClient::new(mock.channel().layer(faults));
        let status = client.gather(stream_of("a b")).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "an injected cut of the stream"));
    });
}
