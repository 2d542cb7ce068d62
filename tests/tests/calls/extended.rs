//! Calls between extended peers, with features plain peers lack: paths, cancellation, deadlines and limits.

use std::future::pending;

use frpc::{
    CallError, CallSettings, Channel, Code, Config, MessageSettings, Metadata, Request, Response, Server, Services,
    Status, Streaming, TimeLimits,
    generated::{Answer, Call, Method, Service},
    interceptor,
};
use support::{
    EventLog, MILLI, SECOND,
    calls::{
        TestClient, TestServer, TestService, Words, each_kind, plain, quiet, quiet_channel, schema::test_server::Test,
        stream_of, words,
    },
    in_virtual_time, settle,
};
use tokio::io::duplex;

/// Has handlers that never complete. Logs the start and the drop of each.
#[derive(Clone, Default)]
struct Holding(EventLog);

struct Held(EventLog, &'static str);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.add(format!("{} dropped", self.1));
    }
}

impl Holding {
    async fn hold<T>(&self, kind: &'static str) -> T {
        self.0.add(format!("{kind} began"));
        let _held = Held(self.0.clone(), kind);
        pending().await
    }
}

impl Test for Holding {
    async fn say(&self, _: Request<Words>) -> Result<Response<Words>, Status> {
        self.hold("say").await
    }

    async fn count(&self, _: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        self.hold("count").await
    }

    async fn gather(&self, _: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        self.hold("gather").await
    }

    async fn chat(&self, _: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        self.hold("chat").await
    }
}

async fn attached(server: &Server) -> Channel {
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    quiet_channel().attach(ours).await.unwrap()
}

fn serve<T: Test>(service: T) -> Server {
    Server::builder().config(quiet()).add_service(TestServer::new(service)).without_listener().unwrap()
}

/// Makes a call of a kind and reads its answer to the end.
async fn call(client: &TestClient, kind: usize, timeout: Option<std::time::Duration>) -> Result<(), Status> {
    let mut one = Request::new(words("hi"));
    let mut many = Request::new(stream_of("hi"));
    if let Some(timeout) = timeout {
        one.set_timeout(timeout);
        many.set_timeout(timeout);
    }
    match kind {
        0 => client.say(one).await.map(drop),
        1 => client.count(one).await?.into_inner().trailers().await.map(drop),
        2 => client.gather(many).await.map(drop),
        _ => client.chat(many).await?.into_inner().trailers().await.map(drop),
    }
}

const KINDS: [&str; 4] = ["say", "count", "gather", "chat"];

#[test]
fn dropping_a_call_drops_its_handler() {
    in_virtual_time(async {
        let holding = Holding::default();
        let server = serve(holding.clone());
        let client = TestClient::new(attached(&server).await);
        for (kind, name) in KINDS.iter().enumerate() {
            for timeout in [None, Some(60 * SECOND)] {
                let calling = tokio::spawn({
                    let client = client.clone();
                    async move { call(&client, kind, timeout).await }
                });
                settle().await;
                assert_eq!(holding.0.take(), [format!("{name} began")]);
                calling.abort();
                settle().await;
                assert_eq!(holding.0.take(), [format!("{name} dropped")], "{timeout:?}");
            }
        }
        settle().await;
        assert_eq!(server.metrics().handlers, 0);
    });
}

#[test]
fn a_timed_out_call_drops_its_handler() {
    in_virtual_time(async {
        let holding = Holding::default();
        let server = serve(holding.clone());
        let client = TestClient::new(attached(&server).await);
        for (kind, name) in KINDS.iter().enumerate() {
            let status = call(&client, kind, Some(SECOND)).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
            assert!(status.call_error().is_some(), "it is the time of the caller: {status:?}");
            settle().await;
            assert_eq!(holding.0.take(), [format!("{name} began"), format!("{name} dropped")]);
        }
    });
}

#[test]
fn ids_of_cancelled_calls_are_reused() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(service.clone());
        let client = TestClient::new(attached(&server).await);
        // More calls than there are ids, in batches within the limits of the server.
        for _ in 0..200 {
            let mut calls = tokio::task::JoinSet::new();
            for _ in 0..400 {
                let client = client.clone();
                calls.spawn(async move { client.say(words("wait")).await });
            }
            settle().await;
            drop(calls);
            tokio::time::sleep(10 * SECOND).await;
        }
        assert_eq!(client.say(words("hi")).await.unwrap().into_inner(), words("hi"));
        assert_eq!(server.metrics().accepted, 1, "the connection never ran out of ids");
    });
}

#[test]
fn metadata_is_accepted_up_to_the_limit() {
    in_virtual_time(async {
        let server = Server::builder()
            .config(quiet())
            .messages(MessageSettings { metadata_len_max: 100, ..MessageSettings::default() })
            .add_service(TestServer::new(TestService::default()))
            .without_listener()
            .unwrap();
        let client = TestClient::new(attached(&server).await);
        settle().await;
        let before = server.metrics().counters.packets_in;
        for (len, fits) in [(100 - 32 - 2 - 4, true), (100 - 32 - 2 - 4 + 1, false)] {
            for kind in 0..4 {
                let mut metadata = Metadata::new();
                metadata.insert("note", "x".repeat(len)).unwrap();
                let mut one = Request::new(words("hi"));
                let mut many = Request::new(stream_of("hi"));
                *one.metadata_mut() = metadata.clone();
                *many.metadata_mut() = metadata;
                let result = match kind {
                    0 => client.say(one).await.map(drop),
                    1 => client.count(one).await.map(drop),
                    2 => client.gather(many).await.map(drop),
                    _ => client.chat(many).await.map(drop),
                };
                if fits {
                    result.unwrap();
                    continue;
                }
                let status = result.unwrap_err();
                assert_eq!(status.code(), Code::ResourceExhausted);
                assert!(status.message().contains("accepts at most 100 (metadata_len_max)"), "{status}");
            }
            settle().await;
            if !fits {
                continue;
            }
            assert!(server.metrics().counters.packets_in > before);
        }
    });
}

#[test]
fn metadata_is_never_lost_without_a_service() {
    in_virtual_time(async {
        let server = ::frisbee::Server::builder(Services::new()).config(quiet()).without_listener();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let client = TestClient::new(quiet_channel().attach(ours).await.unwrap());
        for kind in 0..4 {
            let (mut one, mut many) = (Request::new(words("hi")), Request::new(stream_of("hi")));
            one.metadata_mut().insert("authorization", "secret").unwrap();
            many.metadata_mut().insert("authorization", "secret").unwrap();
            let status = match kind {
                0 => client.say(one).await.map(drop),
                1 => client.count(one).await.map(drop),
                2 => client.gather(many).await.map(drop),
                _ => client.chat(many).await.map(drop),
            };
            let status = status.unwrap_err();
            let is_told = matches!(status.call_error(), Some(CallError::MetadataNotCarried { .. }));
            assert!(is_told, "{kind}: {status}");
        }
    });
}

#[test]
fn responses_with_excessive_metadata_become_a_status() {
    in_virtual_time(async {
        let echo = interceptor(|_: &mut Call| {
            let mut metadata = Metadata::new();
            metadata.insert("note", "x".repeat(200))?;
            Err(Status::with_metadata(Code::Aborted, "see the note", metadata))
        });
        let server = Server::builder()
            .config(quiet())
            .layer(echo)
            .add_service(TestServer::new(TestService::default()))
            .without_listener()
            .unwrap();
        for (max, arrives) in [(100, false), (1000, true)] {
            let (ours, theirs) = duplex(64 * 1024);
            server.attach(theirs);
            let client = TestClient::new(
                quiet_channel()
                    .messages(MessageSettings { metadata_len_max: max, ..MessageSettings::default() })
                    .attach(ours)
                    .await
                    .unwrap(),
            );
            for kind in 0..4 {
                let status = call(&client, kind, None).await.unwrap_err();
                assert_eq!((status.code(), status.message()), (Code::Aborted, "see the note"));
                assert_eq!(status.metadata().contains_key("note"), arrives, "{kind}");
            }
        }
    });
}

/// The methods of the test service as in another version of its proto file: in another order, with an additional one.
struct Reordered(TestServer<TestService>);

impl Service for Reordered {
    const NAME: &'static str = "calls.Test";
    const METHODS: &'static [Method] = &[
        Method::unary("calls.Test", "New", 10),
        Method::bidirectional("calls.Test", "Chat", 11),
        Method::client_streaming("calls.Test", "Gather", 12),
        Method::server_streaming("calls.Test", "Count", 13),
        Method::unary("calls.Test", "Say", 14),
    ];

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        match method {
            0 => Err(Status::internal("the new method was called")),
            other => self.0.call(4 - other, call).await,
        }
    }
}

#[test]
fn methods_are_found_by_path_despite_different_numbers() {
    in_virtual_time(async {
        let services = Services::new().add_service(Reordered(TestServer::new(TestService::default())));
        let server = ::frisbee::Server::builder(services).config(quiet()).without_listener();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let client = TestClient::new(quiet_channel().attach(ours).await.unwrap());
        for result in each_kind(&client, "hi").await {
            assert!(result.unwrap().ends_with("hi"));
        }
    });
}

#[test]
fn early_calls_never_succeed_in_another_method() {
    in_virtual_time(async {
        let services = Services::new().add_service(Reordered(TestServer::new(TestService::default())));
        let server = ::frisbee::Server::builder(services).config(quiet()).without_listener();
        let (ours, theirs) = duplex(64 * 1024);
        // `attach` gives up waiting for the server's opening, because the server is attached only later.
        let connecting = quiet_channel().attach(ours);
        let client = TestClient::new(connecting.await.unwrap());
        let calling = tokio::spawn({
            let client = client.clone();
            async move { client.say(words("hi")).await }
        });
        settle().await;
        server.attach(theirs);
        let status = calling.await.unwrap().unwrap_err();
        assert!(status.code() != Code::Ok, "{status}");
        tokio::time::sleep(MILLI).await;
        assert_eq!(client.say(words("hi")).await.unwrap().into_inner(), words("hi"), "now it is known");
    });
}

#[test]
fn calls_work_with_the_extension_off_on_either_side() {
    in_virtual_time(async {
        let plain = Config { extended: false, ..quiet() };
        for (client, server) in [(plain.clone(), quiet()), (quiet(), plain)] {
            let service = TestServer::new(TestService::default());
            let server = Server::builder().config(server).add_service(service).without_listener().unwrap();
            let (ours, theirs) = duplex(64 * 1024);
            server.attach(theirs);
            let client = TestClient::new(Channel::builder().config(client).attach(ours).await.unwrap());
            for result in each_kind(&client, "hi").await {
                assert!(result.unwrap().ends_with("hi"));
            }
        }
    });
}

/// Forwards each call to another server and returns its answer.
struct Relay(TestClient);

impl Test for Relay {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let text = request.into_inner().text;
        let mut onward = Request::new(words(&text));
        if text == "hurry" {
            onward.set_timeout(MILLI);
        }
        if text == "own" {
            onward.metadata_mut().insert("x-tenant", "own").unwrap();
        }
        self.0.say(onward).await
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        self.0.count(request.into_inner()).await
    }

    async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        self.0.gather(request.into_inner()).await
    }

    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        self.0.chat(request.into_inner()).await
    }
}

/// Answers with the remaining time of a call and its trace.
struct Tell;

impl Tell {
    fn told<T>(request: &Request<T>) -> Words {
        let millis = request.timeout().map(|left| left.as_millis());
        words(format!("{millis:?} {:?} {:?}", request.metadata().get("x-tenant"), request.metadata().get("secret")))
    }
}

impl Test for Tell {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        Ok(Self::told(&request).into())
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        Ok(Streaming::from_iter([Self::told(&request)]).into())
    }

    async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        Ok(Self::told(&request).into())
    }

    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        Ok(Streaming::from_iter([Self::told(&request)]).into())
    }
}

/// Makes a call of a kind with metadata. Returns the text of its last answer.
async fn told(client: &TestClient, kind: usize, text: &str, timeout: Option<std::time::Duration>) -> String {
    let mut metadata = Metadata::new();
    metadata.insert("x-tenant", "00-1").unwrap();
    metadata.insert("secret", "s").unwrap();
    let (mut one, mut many) = (Request::new(words(text)), Request::new(stream_of(text)));
    if let Some(timeout) = timeout {
        one.set_timeout(timeout);
        many.set_timeout(timeout);
    }
    *one.metadata_mut() = metadata.clone();
    *many.metadata_mut() = metadata;
    let mut answers = match kind {
        0 => return client.say(one).await.unwrap().into_inner().text,
        1 => client.count(one).await.unwrap().into_inner(),
        2 => return client.gather(many).await.unwrap().into_inner().text,
        _ => client.chat(many).await.unwrap().into_inner(),
    };
    answers.message().await.unwrap().unwrap().text
}

#[test]
fn calls_of_a_handler_inherit_deadline_and_metadata() {
    in_virtual_time(async {
        let behind = serve(Tell);
        let relay = Relay(TestClient::new(attached(&behind).await));
        let front = Server::builder()
            .config(quiet())
            .calls(CallSettings { inherit_metadata: vec!["x-tenant".to_owned()], ..CallSettings::default() })
            .add_service(TestServer::new(relay))
            .without_listener()
            .unwrap();
        let client = TestClient::new(attached(&front).await);
        for kind in 0..4 {
            let text = told(&client, kind, "hi", Some(5 * SECOND)).await;
            assert_eq!(text, "Some(5000) Some(\"00-1\") None", "{kind}");
        }
        assert_eq!(told(&client, 0, "hurry", Some(5 * SECOND)).await, "Some(1) Some(\"00-1\") None");
        assert_eq!(told(&client, 0, "own", Some(5 * SECOND)).await, "Some(5000) Some(\"own\") None");
        assert_eq!(told(&client, 0, "hi", None).await, "Some(30000) Some(\"00-1\") None", "the channel said so before");
        assert_eq!(told(&client, 1, "hi", None).await, "None Some(\"00-1\") None", "streams may take longer");
    });
}

#[test]
fn calls_of_a_plain_handler_inherit_the_channel_timeout() {
    in_virtual_time(async {
        let behind = serve(Tell);
        let relay = Relay(TestClient::new(attached(&behind).await));
        for front in [serve(relay), serve(Tell)] {
            let (ours, theirs) = duplex(64 * 1024);
            front.attach(theirs);
            let channel = Channel::builder().config(quiet()).timeout(5 * SECOND).attach(ours).await.unwrap();
            let client = TestClient::new(channel);
            for later in [0, 7] {
                tokio::time::advance(later * SECOND).await;
                let answer = client.say(words("hi")).await.unwrap();
                assert_eq!(answer.get_ref().text, "Some(5000) None None", "{later:?}");
            }
        }
    });
}

#[test]
fn the_server_limits_override_caller_timeouts() {
    in_virtual_time(async {
        let times = TimeLimits {
            min: Some(SECOND),
            max: Some(60 * SECOND),
            default: Some(10 * SECOND),
            stream_default: Some(10 * SECOND),
        };
        let server = |service| {
            Server::builder()
                .config(quiet())
                .calls(CallSettings { times, ..CallSettings::default() })
                .add_service(service)
        };
        let tell = server(TestServer::new(Tell)).without_listener().unwrap();
        let client = TestClient::new(attached(&tell).await);
        for kind in 0..4 {
            // A channel sends its default timeout with unary calls.
            let unsaid = if kind == 0 { 30_000 } else { 10_000 };
            for (given, left) in
                [(Some(MILLI), 1000), (Some(3600 * SECOND), 60_000), (Some(5 * SECOND), 5000), (None, unsaid)]
            {
                let text = told(&client, kind, "hi", given).await;
                assert!(text.starts_with(&format!("Some({left})")), "{kind} {given:?}: {text}");
            }
        }

        let holding = Holding::default();
        let hold = Server::builder()
            .config(quiet())
            .calls(CallSettings { times, ..CallSettings::default() })
            .add_service(TestServer::new(holding.clone()))
            .without_listener()
            .unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        hold.attach(theirs);
        let client = TestClient::new(Channel::builder().config(plain()).attach(ours).await.unwrap());
        for (kind, name) in KINDS.iter().enumerate() {
            let since = tokio::time::Instant::now();
            let status = call(&client, kind, None).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
            assert_eq!(since.elapsed(), 10 * SECOND, "plain callers say nothing");
            settle().await;
            assert_eq!(holding.0.take(), [format!("{name} began"), format!("{name} dropped")]);
        }
    });
}
