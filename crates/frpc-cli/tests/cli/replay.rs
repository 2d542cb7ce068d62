//! `frpc replay`: recordings of one wire, replayed on others.

use std::path::Path;

use frpc::{Channel, Code, Layer, Layered, Request, Response, Server, Service, Status, Streaming};
use frpc_http::Http;
#[cfg(feature = "jsonrpc")]
use frpc_jsonrpc::JsonRpc;
use frpc_record::{Recorder, Recording};
use serde_json::json;
#[cfg(feature = "proto")]
use support::interop::{
    Service as Interop,
    schema::{
        Number, Rich, Series, Text as GoText, interop_client::InteropClient, interop_server::InteropServer,
        second_client::SecondClient, second_server::SecondServer,
    },
};
use support::{
    calls::{
        CallbackClient, CallbackServer, TestClient, TestServer, TestService, each_kind, of_kind,
        schema::test_server::Test, stream_of, words,
    },
    echo::{
        Text,
        echo_client::EchoClient,
        echo_server::{Echo, EchoServer},
    },
};
use tokio::runtime::Runtime;

#[cfg(feature = "proto")]
use crate::plain_go::GoServer;
use crate::program::{Directory, frpc};

type Words = support::calls::Words;

/// Answers from two other services.
struct Front {
    letters: CallbackClient,
    echo: EchoClient,
}

impl Test for Front {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let text = request.into_inner().text;
        let letters = self.letters.say(words(&*text)).await?.into_inner().text;
        let echo = self.echo.echo(Text { text }).await?.into_inner().text;
        Ok(words(format!("{letters}, {echo}")).into())
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        self.letters.count(request.into_inner()).await
    }

    async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        self.letters.gather(request.into_inner()).await
    }

    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        self.letters.chat(request.into_inner()).await
    }
}

/// Adds its word to each text.
struct Parrot(&'static str);

impl Echo for Parrot {
    async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        Ok(Text { text: format!("{}{}", request.into_inner().text, self.0) }.into())
    }
}

async fn serve(service: impl Service, layer: impl Layer) -> Server {
    let server = Server::builder().layer(layer).wire(Http::new()).add_service(service);
    server.bind("tcp://127.0.0.1:0").await.unwrap()
}

async fn connect(server: &Server, scheme: &str) -> Channel {
    let channel = Channel::builder().transport(frpc_http::transport());
    channel.connect(&*at(server, scheme)).await.unwrap()
}

fn at(server: &Server, scheme: &str) -> String {
    server.local_addr().to_string().replacen("tcp", scheme, 1)
}

/// Three services in three servers, which call each other over one wire.
struct System {
    servers: [Server; 3],
}

impl System {
    async fn start(scheme: &str, word: &'static str, layers: [impl Layer; 3]) -> Self {
        let [front, letters, echo] = layers;
        let letters = serve(CallbackServer::new(TestService::default()), letters).await;
        let echo = serve(EchoServer::new(Parrot(word)), echo).await;
        let service = Front {
            letters: CallbackClient::new(connect(&letters, scheme).await),
            echo: EchoClient::new(connect(&echo, scheme).await),
        };
        let front = serve(TestServer::new(service), front).await;
        Self { servers: [front, letters, echo] }
    }
}

/// A layer without effect.
#[derive(Clone)]
struct Bare;

impl Layer for Bare {
    async fn call(&self, call: frpc::Call, next: frpc::Next<'_>) -> Result<frpc::Answer, Status> {
        next.run(call).await
    }
}

/// Records each kind of call, failures among them, in a file.
async fn record_one(directory: &Directory, scheme: &str) -> String {
    let path = directory.path("calls.frec");
    let recorder = Recorder::create(&path).unwrap();
    let server = serve(TestServer::new(TestService::default()), recorder.clone()).await;
    let client = TestClient::new(connect(&server, scheme).await);
    for text in ["hello", "fail 5 no such letter"] {
        // Failures are recorded, too.
        let _ = each_kind(&client, text).await;
    }
    client.gather(stream_of("a b c")).await.unwrap();
    of_kind(&client, 1, "a, b, c").await.unwrap();
    recorder.close();
    path
}

#[test]
fn a_system_of_three_services_recorded_on_grpc_replays_on_frisbee() {
    let (directory, runtime) = (Directory::new("replay-system"), Runtime::new().unwrap());
    let paths = ["front", "letters", "echo"].map(|name| directory.path(&format!("{name}.frec")));
    runtime.block_on(async {
        let recorders = paths.each_ref().map(|path| Recorder::create(path).unwrap());
        let system = System::start("grpc", "!", recorders.clone()).await;
        let client = TestClient::new(connect(&system.servers[0], "grpc").await);
        for text in ["hello", "fail 3 too short"] {
            // Failures are recorded, too.
            let _ = each_kind(&client, text).await;
        }
        // The requests of a conversation depend on the answers.
        let (sender, requests) = Streaming::channel(1);
        let mut answers = client.chat(requests).await.unwrap().into_inner();
        for text in ["one", "two"] {
            sender.send(words(text)).await.unwrap();
            assert_eq!(answers.message().await.unwrap().unwrap().text, format!("re: {text}"));
        }
        drop(sender);
        assert!(answers.message().await.unwrap().is_none());
        recorders.iter().for_each(|recorder| assert_eq!(recorder.close().dropped_calls, 0));
    });
    assert!(Recording::open(&paths[0]).unwrap().calls().iter().all(|call| call.format == frpc::codec::Format::Proto));

    let system = runtime.block_on(System::start("tcp", "!", [Bare, Bare, Bare]));
    for ((path, server), calls) in paths.iter().zip(&system.servers).zip([9, 9, 1]) {
        let ran = frpc(&["replay", path, "--to", &at(server, "tcp"), "--speed", "max", "--diff", "--json"]);
        let expected = json!({
            "replayed": calls, "equal": calls, "different": 0, "skipped": 0, "dropped": 0, "cut_at": null
        });
        assert_eq!(ran.json(), [expected], "{path}: {ran:?}");
    }

    // One service answers otherwise now.
    let changed = runtime.block_on(System::start("tcp", "?", [Bare, Bare, Bare]));
    let to = at(&changed.servers[0], "tcp");
    let ran = frpc(&["replay", &paths[0], "--to", &to, "--speed", "max", "--diff"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.contains("calls.Test/Say"), "{ran:?}");
    assert!(ran.out.contains("  text: \"hello, hello!\" → \"hello, hello?\"\n"), "{ran:?}");
    assert!(ran.out.contains("9 calls replayed: 8 equal, 1 different"), "{ran:?}");
    let ran = frpc(&["replay", &paths[0], "--to", &to, "--speed", "max", "--ignore", "text"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn a_recording_replays_on_every_wire() {
    let (directory, runtime) = (Directory::new("replay-wires"), Runtime::new().unwrap());
    let server = runtime.block_on(serve(TestServer::new(TestService::default()), Bare));
    for recorded in ["tcp", "grpc", "http"] {
        let path = runtime.block_on(record_one(&directory, recorded));
        for scheme in ["tcp", "grpc", "grpc-web+http", "http", "ws"] {
            let ran = frpc(&["replay", &path, "--to", &at(&server, scheme), "--speed", "max", "--diff"]);
            assert_eq!(ran.code, 0, "{recorded} on {scheme}: {ran:?}");
            assert!(ran.out.contains("10 calls replayed: 10 equal"), "{recorded} on {scheme}: {ran:?}");
        }
        // Twirp has no streams.
        let only = ["--only", "calls.Test/Say"];
        let to = at(&server, "twirp+http");
        let ran = frpc(&[&["replay", &path, "--to", &to, "--speed", "max", "--diff"][..], &only].concat());
        assert!(ran.code == 0 && ran.out.contains("2 calls replayed: 2 equal"), "{recorded}: {ran:?}");
    }
}

#[cfg(feature = "jsonrpc")]
#[test]
fn a_recording_replays_on_json_rpc() {
    let (directory, runtime) = (Directory::new("replay-json-rpc"), Runtime::new().unwrap());
    let server = runtime.block_on(async {
        let server = Server::builder().wire(JsonRpc::new()).add_service(TestServer::new(TestService::default()));
        server.bind("tcp://127.0.0.1:0").await.unwrap()
    });
    for recorded in ["tcp", "grpc", "http"] {
        let path = runtime.block_on(record_one(&directory, recorded));
        let to = at(&server, "jsonrpc+tcp");
        // JSON-RPC has no streams of requests.
        let only = ["--only", "calls.Test/Say", "--only", "calls.Test/Count"];
        let ran = frpc(&[&["replay", &path, "--to", &to, "--speed", "max", "--diff"][..], &only].concat());
        assert!(ran.code == 0 && ran.out.contains("5 calls replayed: 5 equal"), "{recorded}: {ran:?}");
    }
}

/// Makes calls of all kinds to a service of the peers in Go.
#[cfg(feature = "proto")]
async fn call_interop(channel: Channel) {
    let interop = InteropClient::new(channel.clone());
    let rich = Rich { title: "hello".to_owned(), i64: -6, tags: vec!["x".to_owned()], ..Rich::default() };
    interop.echo(rich).await.unwrap();
    interop.fail(GoText { text: "not today".to_owned() }).await.unwrap_err();
    let series = Series { start: 3, count: 3, fail_with: "enough".to_owned() };
    let mut numbers = interop.numbers(series).await.unwrap().into_inner();
    while let Ok(Some(_)) = numbers.message().await {}
    interop.total(Streaming::from_iter([1, 2, 39].map(|value| Number { value }))).await.unwrap();
    let texts = ["one", "two"].map(|text| GoText { text: text.to_owned() });
    let mut answers = interop.talk(Streaming::from_iter(texts)).await.unwrap().into_inner();
    while answers.message().await.unwrap().is_some() {}
    SecondClient::new(channel).greet(GoText { text: "Go".to_owned() }).await.unwrap();
}

#[cfg(feature = "proto")]
#[test]
fn recordings_replay_on_go_servers() {
    let Some(go) = GoServer::start() else { return };
    let (directory, runtime) = (Directory::new("replay-go"), Runtime::new().unwrap());
    let paths = ["grpc", "plain"].map(|name| directory.path(&format!("{name}.frec")));
    runtime.block_on(async {
        // A server in Rust, on another wire.
        let recorder = Recorder::create(&paths[0]).unwrap();
        let server = Server::builder().layer(recorder.clone()).wire(Http::new());
        let server = server.add_service(InteropServer::new(Interop)).add_service(SecondServer::new(Interop));
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        call_interop(connect(&server, "grpc").await).await;
        recorder.close();
        // The server in Go, as seen by its caller.
        let recorder = Recorder::create(&paths[1]).unwrap();
        call_interop(Channel::connect(&*go.address).await.unwrap().layer(recorder.clone())).await;
        recorder.close();
    });
    for path in &paths {
        let ran = frpc(&["replay", path, "--to", &go.address, "--speed", "max", "--diff"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.out.contains("6 calls replayed: 6 equal"), "{ran:?}");
    }
}

#[test]
fn a_changed_status_and_a_shorter_stream_are_differences() {
    /// Answers less than before.
    struct Changed;

    impl Test for Changed {
        async fn say(&self, _: Request<Words>) -> Result<Response<Words>, Status> {
            Err(Status::not_found("moved"))
        }

        async fn count(&self, _: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
            Ok(Streaming::from_iter([words("a"), words("x")]).into())
        }

        async fn gather(&self, _: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
            Err(Status::new(Code::Unimplemented, "gone"))
        }

        async fn chat(&self, _: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
            Ok(Streaming::from_iter([]).into())
        }
    }

    let (directory, runtime) = (Directory::new("replay-changed"), Runtime::new().unwrap());
    let path = runtime.block_on(record_one(&directory, "grpc"));
    let server = runtime.block_on(serve(TestServer::new(Changed), Bare));
    let ran = frpc(&["replay", &path, "--to", &at(&server, "grpc"), "--speed", "max", "--diff"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    for part in [
        "  @status.code: \"ok\" → \"not_found\"\n",
        "  @status.message: \"no such letter\" → \"moved\"\n",
        "  message 2, text: \"b\" → \"x\"\n",
        "  @messages: 3 → 2\n",
        "0 equal, 10 different",
    ] {
        assert!(ran.out.contains(part), "{part} is not in {}", ran.out);
    }
    let ran = frpc(&["replay", &path, "--to", &at(&server, "grpc"), "--speed", "max", "--json"]);
    let first: serde_json::Value = serde_json::from_str(ran.out.lines().next().unwrap()).unwrap();
    assert!(first["differences"][0]["path"].is_string(), "{ran:?}");
}

#[test]
fn secrets_are_given_again_with_headers() {
    let (directory, runtime) = (Directory::new("replay-secrets"), Runtime::new().unwrap());
    let path = directory.path("calls.frec");
    let recorder = Recorder::create(&path).unwrap();
    let guard = frpc::interceptor(|call| match call.head().metadata().get("authorization") {
        Some("Bearer s3cret") => Ok(()),
        _ => Err(Status::unauthenticated("no valid token")),
    });
    let guarded = || Layered::new(TestServer::new(TestService::default()), guard);
    let server = runtime.block_on(serve(guarded(), recorder.clone()));
    runtime.block_on(async {
        let mut request = Request::new(words("hello"));
        request.metadata_mut().insert("authorization", "Bearer s3cret").unwrap();
        TestClient::new(connect(&server, "grpc").await).say(request).await.unwrap();
        recorder.close();
    });
    let to = at(&server, "grpc");
    let ran = frpc(&["replay", &path, "--to", &to, "--diff"]);
    assert!(ran.code == 3 && ran.err.contains("secret metadata: authorization"), "{ran:?}");
    assert!(ran.out.contains("\"ok\" → \"unauthenticated\""), "{ran:?}");
    let ran = frpc(&["replay", &path, "--to", &to, "-H", "authorization: Bearer s3cret"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn cut_damaged_and_foreign_files_are_reported() {
    let (directory, runtime) = (Directory::new("replay-damage"), Runtime::new().unwrap());
    let path = runtime.block_on(record_one(&directory, "grpc"));
    let server = runtime.block_on(serve(TestServer::new(TestService::default()), Bare));
    let (to, whole) = (at(&server, "tcp"), std::fs::read(Path::new(&path)).unwrap());
    let cut = directory.write("cut.frec", &whole[..whole.len() / 2]);
    let ran = frpc(&["replay", &cut, "--to", &to, "--speed", "max"]);
    assert!(ran.code == 0 && ran.err.contains("the recording is cut at byte"), "{ran:?}");
    let mut bytes = whole.clone();
    bytes[whole.len() / 2] ^= 1;
    let damaged = directory.write("damaged.frec", bytes);
    let ran = frpc(&["replay", &damaged, "--to", &to]);
    assert!(ran.code == 1 && ran.err.contains("does not match its checksum"), "{ran:?}");
    let foreign = directory.write("foreign.frec", "{}");
    let ran = frpc(&["replay", &foreign, "--to", &to]);
    assert!(ran.code == 1 && ran.err.contains("not a recording"), "{ran:?}");
    let ran = frpc(&["replay", &path, "--to", &to, "--only", "calls.Test/Absent"]);
    assert!(ran.code == 1 && ran.err.contains("try: calls.Test/Chat or"), "{ran:?}");
}
