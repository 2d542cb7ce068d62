//! Features of extended peers over sockets, on every engine: metadata, deadlines, cancellation and inherited metadata.

use std::{future::pending, time::Duration};

use frpc::{
    CallSettings, Channel, Code, Engine, MessageSettings, Metadata, Request, Response, Server, Status, Streaming,
    TimeLimits,
};
use support::{
    SECOND,
    calls::{TestClient, TestServer, Words, schema::test_server::Test, stream_of, words},
    engines, in_real_time,
};
use tokio::sync::mpsc;

/// Answers calls with their metadata, forwards them to another server, or never answers.
struct Tell {
    onward: Option<TestClient>,
    events: mpsc::UnboundedSender<&'static str>,
}

struct Held(mpsc::UnboundedSender<&'static str>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.send("dropped").unwrap();
    }
}

/// The head of a received call.
struct Head {
    metadata: Metadata,
    has_time: bool,
}

impl Head {
    fn of<T>(request: &Request<T>) -> Self {
        let has_time = request.timeout().is_some_and(|left| left <= 60 * SECOND);
        Self { metadata: request.metadata().clone(), has_time }
    }
}

impl Tell {
    async fn told(&self, head: Head) -> Result<Response<Words>, Status> {
        let text = match (&self.onward, head.metadata.get("ask")) {
            (_, Some("hold")) => {
                let _held = Held(self.events.clone());
                self.events.send("began").unwrap();
                pending().await
            }
            (_, Some("fail")) => {
                let mut metadata = Metadata::new();
                metadata.insert("why", "asked to").unwrap();
                return Err(Status::with_details_and_metadata(Code::NotFound, "no", vec![1, 2, 3], metadata));
            }
            (Some(onward), _) => onward.say(words("hi")).await?.into_inner().text,
            (None, _) => format!("{:?} {}", head.metadata.get("x-tenant"), head.has_time),
        };
        let mut response = Response::new(words(text));
        response.metadata_mut().insert("in-front", "1").unwrap();
        response.trailers_mut().insert_bin("behind-bin", vec![0xff]).unwrap();
        Ok(response)
    }

    async fn told_as_stream(&self, head: Head) -> Result<Response<Streaming<Words>>, Status> {
        let one = self.told(head).await?;
        let (metadata, trailers) = (one.metadata().clone(), one.trailers().clone());
        let mut response = Response::new(Streaming::from_iter([one.into_inner()]).with_trailers(trailers));
        *response.metadata_mut() = metadata;
        Ok(response)
    }
}

impl Test for Tell {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        self.told(Head::of(&request)).await
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        self.told_as_stream(Head::of(&request)).await
    }

    async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        self.told(Head::of(&request)).await
    }

    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        self.told_as_stream(Head::of(&request)).await
    }
}

/// Serves and connects on an engine. `onward` is the server for forwarded calls.
async fn serve(
    engine: Engine,
    onward: Option<TestClient>,
) -> (Server, TestClient, mpsc::UnboundedReceiver<&'static str>) {
    serve_for(
        TimeLimits { max: Some(60 * SECOND), stream_default: Some(60 * SECOND), ..TimeLimits::default() },
        engine,
        onward,
    )
    .await
}

/// Serves with these limits on the time of calls.
async fn serve_for(
    times: TimeLimits,
    engine: Engine,
    onward: Option<TestClient>,
) -> (Server, TestClient, mpsc::UnboundedReceiver<&'static str>) {
    let (events, seen) = mpsc::unbounded_channel();
    let server = Server::builder()
        .engine(engine)
        .messages(MessageSettings { metadata_len_max: LIMIT, ..MessageSettings::default() })
        .calls(CallSettings { inherit_metadata: vec!["x-tenant".to_owned()], times, ..CallSettings::default() })
        .add_service(TestServer::new(Tell { onward, events }))
        .bind("127.0.0.1:0")
        .await
        .unwrap();
    let channel = Channel::builder().engine(engine).connect(server.local_addr()).await.unwrap();
    (server, TestClient::new(channel), seen)
}

/// Makes a call of a kind with metadata. Returns the answer with the values of its metadata and trailers.
async fn call(
    client: &TestClient,
    kind: usize,
    name: &'static str,
    value: &str,
    timeout: Option<Duration>,
) -> Result<(String, Metadata, Metadata), Status> {
    let (mut one, mut many) = (Request::new(words("hi")), Request::new(stream_of("hi")));
    for metadata in [one.metadata_mut(), many.metadata_mut()] {
        metadata.insert(name, value).unwrap();
    }
    if let Some(timeout) = timeout {
        one.set_timeout(timeout);
        many.set_timeout(timeout);
    }
    let mut stream = match kind {
        0 | 2 => {
            let response = if kind == 0 { client.say(one).await? } else { client.gather(many).await? };
            let (metadata, trailers) = (response.metadata().clone(), response.trailers().clone());
            return Ok((response.into_inner().text, metadata, trailers));
        }
        1 => client.count(one).await?.into_inner(),
        _ => client.chat(many).await?.into_inner(),
    };
    let text = stream.message().await?.unwrap().text;
    let metadata = stream.metadata().cloned().unwrap_or_default();
    Ok((text, metadata, stream.trailers().await?.unwrap_or_default()))
}

#[test]
fn metadata_arrives_both_ways_up_to_the_limit() {
    for engine in engines() {
        in_real_time(async {
            let (_server, client, _seen) = serve(engine, None).await;
            for kind in 0..4 {
                let (text, metadata, trailers) = call(&client, kind, "x-tenant", "00-1", None).await.unwrap();
                assert_eq!(text, "Some(\"00-1\") true", "{engine} {kind}");
                assert_eq!(metadata.get("in-front"), Some("1"), "{engine} {kind}");
                assert_eq!(trailers.get_bin("behind-bin").unwrap()[..], [0xff], "{engine} {kind}");

                let status = call(&client, kind, "ask", "fail", None).await.unwrap_err();
                assert_eq!((status.code(), status.message()), (Code::NotFound, "no"), "{engine} {kind}");
                assert_eq!((status.details(), status.metadata().get("why")), (&[1, 2, 3][..], Some("asked to")));

                let room = LIMIT - "a".len() - 34;
                assert!(call(&client, kind, "a", &"x".repeat(room), None).await.is_ok(), "{engine} {kind}");
                let status = call(&client, kind, "a", &"x".repeat(room + 1), None).await.unwrap_err();
                assert_eq!(status.code(), Code::ResourceExhausted, "{engine} {kind}: {status}");
            }
        });
    }
}

#[test]
fn handlers_are_dropped_on_timeout_and_cancellation() {
    for engine in engines() {
        in_real_time(async {
            let (_server, client, mut seen) = serve(engine, None).await;
            for kind in 0..4 {
                // Repeat until the handler has started in time. On a busy machine it may not.
                loop {
                    let status = call(&client, kind, "ask", "hold", Some(SECOND / 20)).await.unwrap_err();
                    assert_eq!(status.code(), Code::DeadlineExceeded, "{engine} {kind}: {status}");
                    if seen.try_recv().is_ok() {
                        break assert_eq!(seen.recv().await, Some("dropped"));
                    }
                }

                tokio::select! {
                    answer = call(&client, kind, "ask", "hold", None) => panic!("{engine} {kind}: {answer:?}"),
                    began = seen.recv() => assert_eq!(began, Some("began")),
                }
                assert_eq!(seen.recv().await, Some("dropped"), "{engine} {kind}");
            }
            assert!(call(&client, 0, "ask", "nothing", None).await.is_ok());
        });
    }
}

#[test]
fn calls_of_handlers_inherit_deadline_and_metadata() {
    for engine in engines() {
        in_real_time(async {
            let (_behind, onward, _seen) = serve(engine, None).await;
            let (_front, client, _seen) = serve(engine, Some(onward)).await;
            for kind in 0..4 {
                let (text, ..) = call(&client, kind, "x-tenant", "00-1", Some(5 * SECOND)).await.unwrap();
                assert_eq!(text, "Some(\"00-1\") true", "{engine} {kind}");
                let (text, ..) = call(&client, kind, "not-named", "00-1", Some(5 * SECOND)).await.unwrap();
                assert_eq!(text, "None true", "{engine} {kind}");
            }
        });
    }
}

#[test]
fn calls_of_plain_handlers_inherit_the_channel_timeout() {
    for engine in engines() {
        in_real_time(async {
            let (_behind, onward, _seen) = serve_for(TimeLimits::default(), engine, None).await;
            assert_eq!(onward.say(words("hi")).await.unwrap().get_ref().text, "None true", "{engine}");
            let onward = TestClient::new(onward.channel().clone().with_timeout(Duration::MAX));
            let (_front, client, _seen) = serve_for(TimeLimits::default(), engine, Some(onward)).await;
            assert_eq!(client.say(words("hi")).await.unwrap().get_ref().text, "None true", "{engine}");
        });
    }
}

const LIMIT: usize = 200;
