//! Building blocks for wires other than frisbee: endpoints, heads, services informed of each other, and transports by
//! the scheme of their addresses.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use frpc::{
    Address, Answer, Body, Call, CallSettings, Caller, Channel, Code, ConnectError, ConnectRetry, ConnectSettings,
    Connected, Endpoint, Head, Layered, MessageSettings, Method, Server, Service, Services, Status, TimeLimits,
    Transport, WirePeer, codec::Format, interceptor, prost::Message,
};
use futures_util::{FutureExt, future::BoxFuture};
use support::{
    SECOND,
    calls::{TestClient, TestServer, TestService, Words, ask, quiet, quiet_channel, words},
    in_virtual_time, settle,
};
use tokio::{io::duplex, time::Instant};

/// Calls a method of an endpoint with one message. Returns the texts of its answer.
async fn call(endpoint: &Endpoint, method: &str, text: &str, head: Head) -> Result<Vec<String>, Status> {
    let found = endpoint.find(&format!("calls.Test/{method}")).unwrap();
    let body = Body::from(words(text).encode_to_vec());
    let answer = endpoint.call(found, Format::Proto, head, body).await?;
    let text = |content: &[u8]| Words::decode(content).unwrap().text;
    match answer.into_body() {
        Body::One(content) => Ok(vec![text(&content.into_bytes())]),
        Body::Many(mut contents) => {
            let mut texts = Vec::new();
            while let Some(content) = contents.message().await? {
                texts.push(text(&content));
            }
            Ok(texts)
        }
        body => panic!("no text in {body:?}"),
    }
}

fn until(seconds: u32) -> Head {
    let mut head = Head::default();
    head.set_deadline((Instant::now() + seconds * SECOND).into_std());
    head
}

#[test]
fn an_endpoint_drops_handlers_at_their_deadline() {
    in_virtual_time(async {
        let service = TestService::default();
        let endpoint = Endpoint::new(TestServer::new(service.clone())).unwrap();
        assert_eq!(call(&endpoint, "Say", "sleep 2", until(3)).await.unwrap(), ["sleep 2"]);
        let status = call(&endpoint, "Say", "sleep 3", until(2)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        let status = call(&endpoint, "Count", "a, sleep 3, b", until(2)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(
            service.log.take(),
            ["say sleep 2", "say sleep 3", "dropped say sleep 3", "count a, sleep 3, b", "dropped count a, sleep 3, b"]
        );
        let status = call(&endpoint, "Count", "endless a", until(0)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "even with more to read");
    });
}

#[test]
fn an_endpoint_applies_the_timeouts_of_its_services() {
    in_virtual_time(async {
        let times = TimeLimits { max: Some(2 * SECOND), default: Some(SECOND), ..TimeLimits::default() };
        let services = Services::new()
            .add_service(TestServer::new(TestService::default()))
            .calls(CallSettings { times, ..CallSettings::default() })
            .messages(MessageSettings { metadata_len_max: 77, ..MessageSettings::default() });
        let endpoint = Endpoint::new(services).unwrap();
        assert_eq!(endpoint.metadata_len_max(), 77);
        let start = Instant::now();
        let status = call(&endpoint, "Say", "sleep 9", Head::default()).await.unwrap_err();
        assert_eq!((status.code(), start.elapsed()), (Code::DeadlineExceeded, SECOND));
        let start = Instant::now();
        let status = call(&endpoint, "Say", "sleep 9", until(8)).await.unwrap_err();
        assert_eq!((status.code(), start.elapsed()), (Code::DeadlineExceeded, 2 * SECOND));
    });
}

#[test]
fn a_head_contains_the_peer_of_the_call() {
    in_virtual_time(async {
        let endpoint = Endpoint::new(TestServer::new(TestService::default())).unwrap();
        let mut head = Head::default();
        head.set_peer(&WirePeer::at(Address::Unix("/run/app.sock".into())));
        assert_eq!(call(&endpoint, "Say", "peer", head).await.unwrap(), ["unix:/run/app.sock"]);
        assert_eq!(call(&endpoint, "Say", "peer", Head::default()).await.unwrap(), ["nobody"]);
    });
}

#[test]
fn dropping_a_guard_cancels_tasks_of_the_handler() {
    in_virtual_time(async {
        let mut head = Head::default();
        let guard = head.cancel_on_drop();
        let cancelled = tokio::spawn(head.cancelled());
        settle().await;
        assert!(!cancelled.is_finished());
        drop(guard);
        cancelled.await.unwrap();

        let mut head = Head::default();
        head.cancel_on_drop().disarm();
        assert!(head.cancelled().now_or_never().is_none(), "the call ended well");
    });
}

/// Records the paths of the other services, and the shutdown.
#[derive(Clone, Default)]
struct Curious(Arc<Mutex<Vec<String>>>);

impl Service for Curious {
    const NAME: &'static str = "calls.Curious";
    const METHODS: &'static [Method] = &[Method::unary("calls.Curious", "Look", 900)];

    fn served_with(&self, methods: &[&'static Method]) {
        *self.0.lock().unwrap() = methods.iter().map(|method| method.path()).collect();
    }

    fn shutting_down(&self) {
        self.0.lock().unwrap().push("the end".to_owned());
    }

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        call.unknown()
    }
}

#[tokio::test]
async fn services_learn_of_the_methods_served_next_to_them() {
    let expected = ["calls.Test/Say", "calls.Test/Count", "calls.Test/Gather", "calls.Test/Chat", "calls.Curious/Look"];
    let test = || TestServer::new(TestService::default());
    let (one, two, three) = (Curious::default(), Curious::default(), Curious::default());
    let seen = |curious: &Curious| curious.0.lock().unwrap().clone();
    let services = Services::new().add_optional_service(Some(one.clone())).add_service(test());
    assert!(seen(&one).is_empty(), "more may follow");
    Endpoint::new(services).unwrap();
    assert_eq!(seen(&one), expected);
    let server = frpc::Server::builder().add_services([test().into(), two.clone().into()]).without_listener().unwrap();
    assert_eq!(seen(&two), expected);
    drop(server);
    let services = Services::new().add_service(three.clone()).add_service(test());
    let _server = frisbee::Server::builder(services).without_listener();
    assert_eq!(seen(&three), expected);
}

#[tokio::test]
async fn services_learn_of_a_server_shutdown() {
    let (one, two, three) = (Curious::default(), Curious::default(), Curious::default());
    let expected = ["calls.Curious/Look", "the end"];
    let layered = Layered::new(one.clone(), interceptor(|_| Ok(())));
    frpc::Server::builder().add_service(layered).without_listener().unwrap().shutdown(SECOND).await;
    assert_eq!(*one.0.lock().unwrap(), expected);
    frpc::Server::builder().add_optional_service(Some(two.clone())).without_listener().unwrap().shutdown(SECOND).await;
    assert_eq!(*two.0.lock().unwrap(), expected);
    frpc::Server::builder().add_services([three.clone().into()]).without_listener().unwrap().shutdown(SECOND).await;
    assert_eq!(*three.0.lock().unwrap(), expected);
}

/// Answers every call with the address it was connected to.
struct Oracle;

struct Answering(String);

impl Transport for Oracle {
    fn schemes(&self) -> &[&str] {
        &["oracle"]
    }

    fn connect(&self, url: String, settings: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let heard = format!("{url}, {} attempts, {:?}", settings.retry.attempts, settings.timeout);
        async move { Ok(Connected::Calls(Arc::new(Answering(heard)))) }.boxed()
    }
}

impl Caller for Answering {
    fn format(&self) -> Format {
        Format::Proto
    }

    fn call(&self, _: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        let body = Body::from(words(&*self.0).encode_to_vec());
        async { Ok(Answer::new(body)) }.boxed()
    }
}

#[tokio::test]
async fn a_channel_connects_with_the_transport_of_the_scheme() {
    let builder = Channel::builder()
        .transport(Oracle)
        .retry(ConnectRetry { attempts: 3, ..ConnectRetry::default() })
        .timeout(SECOND);
    let client = TestClient::new(builder.connect("oracle://delphi").await.unwrap());
    assert_eq!(ask(&client, "who?").await.unwrap(), "oracle://delphi, 3 attempts, 1s");

    let offering = Channel::builder().transport(Oracle).add_service(TestServer::new(TestService::default()));
    let error = offering.connect("oracle://delphi").await.unwrap_err().to_string();
    assert!(error.contains("need frisbee"), "{error}");
    let error = quiet_channel().connect("gopher://localhost").await.unwrap_err().to_string();
    assert!(error.contains("gopher://"), "{error}");
    let error = frpc::Server::builder().bind("grpc://localhost:0").await.unwrap_err().to_string();
    assert!(error.contains("another protocol"), "{error}");
}

/// Connects frisbee to a server in this process.
struct Tunnel {
    server: Server,
    /// Number of connection attempts.
    connects: Arc<AtomicUsize>,
}

impl Transport for Tunnel {
    fn schemes(&self) -> &[&str] {
        &["tunnel"]
    }

    fn connect(&self, _: String, _: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        self.connects.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = duplex(64 * 1024);
        self.server.attach(theirs);
        async { Ok(Connected::Frisbee(Box::new(ours))) }.boxed()
    }
}

#[test]
fn a_transport_of_frisbee_reconnects_after_a_loss() {
    in_virtual_time(async {
        let server = Server::builder().config(quiet()).add_service(TestServer::new(TestService::default()));
        let server = server.without_listener().unwrap();
        let connects = Arc::default();
        let builder = quiet_channel().transport(Tunnel { server, connects: Arc::clone(&connects) });
        let builder = builder.add_service(TestServer::new(TestService::default()));
        let channel = builder.connect("tunnel://down").await.unwrap();
        let client = TestClient::new(channel.clone());
        assert_eq!(ask(&client, "hello").await.unwrap(), "hello");
        assert_eq!(connects.load(Ordering::Relaxed), 1);

        channel.connection().unwrap().close();
        settle().await;
        assert_eq!(ask(&client, "hello again").await.unwrap(), "hello again");
        assert_eq!(connects.load(Ordering::Relaxed), 2);
    });
}
