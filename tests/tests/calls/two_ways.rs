//! Handlers and their connection: the caller, calls in the reverse direction, and other packets on the same port.
//!
//! Only frisbee supports this.

use std::{sync::Arc, time::Duration};

use frisbee::{Arrivals, OutboxLimit, ServerLimits, WhenFull};
use frpc::{
    BoxService, CallSettings, Channel, ChannelCallSettings, Code, Config, ConnectError, Connection, Dispatch,
    HandlerTable, Packet, Request, Response, ServeError, Server, Services, Status, Streaming, Unimplemented,
};
use support::{
    EventLog, SECOND, assert_elapsed,
    calls::{
        CallbackClient, CallbackServer, OWN, SAY, TestClient, TestServer, TestService, all, ask, asking, connect,
        each_kind, encoded, may_have_executed, only_connection, own_packet, peer, quiet, quiet_channel, serve,
        serve_and_connect, stream_of, words,
    },
    frames::{frame, stream_frame},
    in_virtual_time,
    interop::{
        Service,
        schema::{
            Text,
            interop_server::InteropServer,
            second_client::SecondClient,
            second_server::{Second as SecondTrait, SecondServer},
        },
    },
    settle,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    sync::mpsc,
    time::{Instant, timeout},
};

/// Returns a server, a client with a service for the server, and that service.
async fn with_callback() -> (Server, TestClient, TestService) {
    let (server, callback) = (serve(&TestService::default()), TestService::default());
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    let channel = quiet_channel().add_service(CallbackServer::new(callback.clone())).attach(ours).await.unwrap();
    (server, TestClient::new(channel), callback)
}

#[test]
fn a_handler_calls_back_with_every_kind_of_call() {
    in_virtual_time(async {
        let (_server, client, callback) = with_callback().await;
        for (text, expected) in [
            ("back say hi", "hi"),
            ("back count one, two", "one two"),
            ("back gather one two", "one two"),
            ("back chat one two", "re: one re: two"),
        ] {
            assert_eq!(ask(&client, text).await.unwrap(), expected);
        }
        assert_eq!(callback.log.take(), ["say hi", "count one, two", "gather", "chat"]);
        let status = ask(&client, "back say fail 5 nobody here").await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "nobody here"));
        assert_eq!(ask(&client, "back say panic").await.unwrap_err().code(), Code::Internal);
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
    });
}

#[test]
fn calls_in_both_directions_do_not_interfere() {
    in_virtual_time(async {
        let (_server, client, _callback) = with_callback().await;
        let calls: Vec<_> = (0..200).map(|number| asking(&client, &format!("back say {number}"))).collect();
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), number.to_string());
        }
    });
}

#[test]
fn calls_to_locally_served_methods_are_rejected() {
    in_virtual_time(async {
        let (server, client, _callback) = with_callback().await;
        let status = ask(&client, "back test hi").await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("calls.Test/Say"), "{status}");
        assert!(status.message().contains("first_operation"), "{status}");
        let callback = CallbackClient::new(client.channel().clone());
        let channel = Channel::over(&only_connection(&server).await).unwrap();
        for status in [
            callback.say(words("hi")).await.unwrap_err(),
            callback.count(words("hi")).await.unwrap_err(),
            callback.gather(stream_of("hi")).await.unwrap_err(),
            callback.chat(stream_of("hi")).await.unwrap_err(),
            TestClient::new(channel).say(words("hi")).await.unwrap_err(),
        ] {
            assert_eq!(status.code(), Code::FailedPrecondition);
        }
    });
}

#[test]
fn a_server_calls_its_clients() {
    in_virtual_time(async {
        let (server, client, callback) = with_callback().await;
        // The connecting side has to send first.
        ask(&client, "hi").await.unwrap();
        let connection = only_connection(&server).await;
        // All channels over a connection share its ids.
        let callbacks = [(); 2].map(|()| CallbackClient::new(Channel::over(&connection).unwrap()));
        let calls = callbacks.clone().map(|callback| tokio::spawn(async move { callback.say(words("wait")).await }));
        settle().await;
        assert_eq!(all(callbacks[0].count(words("one, two")).await.unwrap()).await.unwrap(), ["one", "two"]);
        callback.gate.open(2);
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap().into_inner(), words("wait"));
        }
        // These calls have timeouts too, and they do not keep the connection open.
        let hasty = CallbackClient::new(Channel::over(&connection).unwrap().with_timeout(SECOND));
        let since = Instant::now();
        assert_eq!(hasty.say(words("wait")).await.unwrap_err().code(), Code::DeadlineExceeded);
        assert_elapsed(since, SECOND);
        let waiting = tokio::spawn({
            let callback = callbacks[0].clone();
            async move { callback.say(words("wait")).await }
        });
        settle().await;
        drop(client);
        assert!(may_have_executed(&waiting.await.unwrap().unwrap_err()));
        assert!(!may_have_executed(&callbacks[0].say(words("hi")).await.unwrap_err()));
        assert!(!may_have_executed(
            &CallbackClient::new(Channel::over(&connection).unwrap()).say(words("hi")).await.unwrap_err()
        ));
    });
}

#[test]
fn calls_without_a_possible_answer_are_rejected() {
    in_virtual_time(async {
        let server = frisbee::Server::builder(()).without_listener();
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let connection = frisbee::Client::new(()).attach(ours).await.unwrap();
        assert_eq!(Channel::over(&connection).unwrap_err().code(), Code::FailedPrecondition);
        let in_process = TestClient::new(Channel::in_process(TestServer::new(TestService::default())));
        assert_eq!(ask(&in_process, "back say hi").await.unwrap_err().code(), Code::FailedPrecondition);
    });
}

#[test]
fn calls_to_a_client_without_services_end() {
    in_virtual_time(async {
        let (_service, _server, client) = serve_and_connect().await;
        let call = timeout(60 * SECOND, ask(&client, "back say hi")).await;
        assert!(call.expect("it has its timeout at least").is_err());
        assert!(timeout(SECOND, ask(&client, "back count hi")).await.unwrap().is_err());
    });
}

#[test]
fn duplicate_services_are_detected_before_serving() {
    in_virtual_time(async {
        let check = |error: String| {
            assert!(error.contains("calls.Test/Chat was added twice"), "{error}");
        };
        let both = || {
            let server = Server::builder().add_service(TestServer::new(TestService::default()));
            server.add_service(TestServer::new(TestService::default()))
        };
        let error = both().without_listener().unwrap_err();
        assert!(matches!(error, ServeError::Collision(_)));
        check(error.to_string());
        check(both().bind("mem:calls-collision").await.unwrap_err().to_string());
        check(both().serve("mem:calls-collision").await.unwrap_err().to_string());
        let client = || {
            let client = Channel::builder().add_service(TestServer::new(TestService::default()));
            client.add_service(TestServer::new(TestService::default()))
        };
        check(client().attach(duplex(10).0).await.unwrap_err().to_string());
        check(client().connect("mem:calls-collision").await.unwrap_err().to_string());
        // The format of a returned error in `main`.
        check(format!("{:?}", both().without_listener().unwrap_err()));
        check(format!("{:?}", client().connect("mem:calls-collision").await.unwrap_err()));

        let services = || {
            let services = Services::new().add_service(TestServer::new(TestService::default()));
            services.add_services([BoxService::new(TestServer::new(TestService::default()))])
        };
        let bare =
            frisbee::Server::builder(HandlerTable::over(services())).bind("mem:calls-collision").await.unwrap_err();
        check(bare.to_string());
        check(format!("{bare:?}"));
        let bare = frisbee::Client::new(services()).connect("mem:calls-collision").await.unwrap_err();
        check(bare.to_string());
        let status = ask(&TestClient::new(Channel::in_process(services())), "hi").await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        check(status.message().to_owned());
    });
}

#[test]
fn optional_services_are_served_if_present() {
    in_virtual_time(async {
        for is_there in [true, false] {
            let service = TestService::default();
            let client = is_there.then(|| TestServer::new(service.clone()));
            let server = Server::builder().config(quiet()).add_service(CallbackServer::new(service.clone()));
            let server = server.add_optional_service(client).without_listener().unwrap();
            let channel = connect(&server).await.channel().clone();
            let callback = CallbackClient::new(channel.clone());
            assert_eq!(callback.say(words("hi")).await.unwrap().into_inner(), words("hi"));
            let asked = ask(&TestClient::new(channel), "hi").await;
            match is_there {
                true => assert_eq!(asked.unwrap(), "hi"),
                false => assert_eq!(asked.unwrap_err().code(), Code::Unimplemented),
            }
        }
    });
}

#[test]
fn services_of_several_types_can_be_in_a_list() {
    in_virtual_time(async {
        let service = TestService::default();
        let mut services = Vec::new();
        for name in ["test", "callback"] {
            services.push(match name {
                "test" => BoxService::new(TestServer::new(service.clone())),
                _ => CallbackServer::new(service.clone()).into(),
            });
        }
        let server = Server::builder().config(quiet()).add_services(services).without_listener().unwrap();
        let channel = connect(&server).await.channel().clone();
        let callback = CallbackClient::new(channel.clone());
        assert_eq!(callback.say(words("hi")).await.unwrap().into_inner(), words("hi"));
        assert_eq!(all(callback.count(words("one, two")).await.unwrap()).await.unwrap().len(), 2);
        assert_eq!(ask(&TestClient::new(channel), "hi").await.unwrap(), "hi");

        let boxed = BoxService::new(TestServer::new(service));
        assert_eq!(format!("{boxed:?}"), "BoxService(\"calls.Test\")");
        let within = TestClient::new(Channel::in_process(boxed));
        assert_eq!(ask(&within, "hi").await.unwrap(), "hi");
    });
}

#[test]
fn settings_excluding_all_calls_are_rejected_by_name() {
    in_virtual_time(async {
        let server = || Server::builder().add_service(TestServer::new(TestService::default()));
        let error = server()
            .limits(ServerLimits { handlers_max: 0, ..ServerLimits::default() })
            .bind("mem:calls-settings")
            .await
            .unwrap_err();
        assert!(matches!(&error, ServeError::Setting(setting) if setting.name() == "handlers_max"), "{error}");
        let error =
            server().config(Config { streams_max: 0, backlog_max: 0, ..quiet() }).without_listener().unwrap_err();
        assert!(matches!(&error, ServeError::Setting(setting) if setting.name() == "backlog_max"), "{error}");

        let channel = Channel::builder;
        for (name, channel) in [
            ("calls_max", channel().calls(ChannelCallSettings { calls_max: 0, ..ChannelCallSettings::default() })),
            ("timeout", channel().timeout(Duration::ZERO)),
            ("timeout", channel().connect_timeout(Duration::ZERO)),
            ("outbox_len_max", channel().config(Config { outbox_len_max: 0, ..quiet() })),
        ] {
            let error = channel.connect("mem:calls-settings").await.unwrap_err();
            assert!(matches!(&error, ConnectError::Setting(setting) if setting.name() == name), "{error}");
        }
    });
}

#[test]
fn several_services_share_a_server() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = Server::builder().config(quiet()).add_service(CallbackServer::new(service.clone()));
        let server = server.add_service(InteropServer::new(Service)).add_service(SecondServer::new(Service));
        let server = server.without_listener().unwrap();
        let channel = connect(&server).await.channel().clone();
        let callback = CallbackClient::new(channel.clone());
        assert_eq!(callback.say(words("hi")).await.unwrap().into_inner(), words("hi"));
        assert_eq!(all(callback.count(words("one, two")).await.unwrap()).await.unwrap().len(), 2);
        let second = support::interop::schema::second_client::SecondClient::new(channel.clone());
        let text = |text: &str| support::interop::schema::Text { text: text.into() };
        assert_eq!(second.greet(text("you")).await.unwrap().into_inner(), text("hello you"));
        let interop = support::interop::schema::interop_client::InteropClient::new(channel);
        let mut talk = interop.talk(Streaming::from_iter([text("a")])).await.unwrap().into_inner();
        assert_eq!(talk.message().await.unwrap(), Some(text("re: a")));
    });
}

#[test]
fn a_handler_knows_the_peer() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let (first, second) = (connect(&server).await, connect(&server).await);
        assert_eq!(ask(&first, "peer").await.unwrap(), frpc::Address::Unnamed.to_string());
        for (client, visits) in [(&first, "1"), (&first, "2"), (&second, "1"), (&first, "3")] {
            assert_eq!(ask(client, "visit").await.unwrap(), visits, "what is kept with a connection stays with it");
        }
        // Extensions stay on their side.
        let mut request = Request::new(words("extension"));
        request.extensions_mut().insert(7_u32);
        assert_eq!(first.say(request).await.unwrap().into_inner(), words("None"));
    });
}

#[test]
fn custom_packets_and_streams_share_the_port() {
    in_virtual_time(async {
        let table = || HandlerTable::over(Unimplemented).on(OWN, async |packet: Packet| packet);
        let services = || Services::new().add_service(TestServer::new(TestService::default())).over(table());
        let frisbee = frisbee::Server::builder(services()).config(quiet()).without_listener();
        let frpc =
            Server::builder().config(quiet()).add_service(TestServer::new(TestService::default())).router(table());
        let frpc = frpc.without_listener().unwrap();
        let router =
            Server::builder().config(quiet()).router(table()).add_service(TestServer::new(TestService::default()));
        let router = router.without_listener().unwrap();
        let serve: [&dyn Fn(_); 3] = [&|io| frisbee.attach(io), &|io| frpc.attach(io), &|io| router.attach(io)];
        for serve in serve {
            let (theirs, mut peer) = peer();
            serve(theirs);
            assert_eq!(peer.asks(frame(1, OWN.number(), encoded("mine"))).await, ["1000 1: mine"]);
            assert_eq!(peer.asks(frame(1, SAY, encoded("hi"))).await, ["10 1: hi"]);
            assert_eq!(peer.asks(frame(1, 99, encoded("hi"))).await, ["99 1: error 12 no method has operation 99"]);
            assert_eq!(peer.asks(stream_frame(1, encoded("no call"))).await, ["stream 1 closed"]);
        }
    });
}

/// Echoes everything, including streams.
struct Mirror;

impl frisbee::Router for Mirror {
    async fn route(&self, packet: Packet, _: &Connection) -> frisbee::Outcome {
        frisbee::Outcome::Reply(packet)
    }

    async fn stream(&self, mut stream: frisbee::Stream, _: Option<frisbee::RefusalReason>, _: &Connection) {
        while let Ok(content) = stream.read().await {
            stream.send(content).await.unwrap();
        }
    }
}

#[test]
fn an_inner_router_receives_whole_streams() {
    in_virtual_time(async {
        let server =
            Server::builder().config(quiet()).add_service(TestServer::new(TestService::default())).router(Mirror);
        let server = server.without_listener().unwrap();
        let client = connect(&server).await;
        let connection = client.channel().connection().unwrap();
        let mut stream = connection.open_stream().unwrap();
        for content in ["first of all", "and more"] {
            stream.send(content).await.unwrap();
            assert_eq!(stream.read().await.unwrap(), content);
        }
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
    });
}

#[test]
fn a_client_receives_custom_packets_of_the_server() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let (sender, mut news) = mpsc::unbounded_channel();
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let router = HandlerTable::new().on(OWN, move |packet: Packet| {
            sender.send(packet).unwrap();
            async {}
        });
        let client = TestClient::new(quiet_channel().router(router).attach(ours).await.unwrap());
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        only_connection(&server).await.send(own_packet(7, "news")).await.unwrap();
        assert_eq!(news.recv().await.unwrap(), own_packet(7, "news"));
    });
}

/// Logs the hooks around reads and writes.
struct Hooked(EventLog);

impl frisbee::Router for Hooked {
    async fn route(&self, packet: Packet, connection: &Connection) -> frisbee::Outcome {
        self.0.add("routed");
        connection.set_outbox(OutboxLimit { len_max: 1, when_full: WhenFull::Refuse });
        connection.try_send(packet.clone()).unwrap();
        connection.try_send(packet).unwrap_err();
        frisbee::Outcome::Nothing
    }

    fn event(&self, _: &Connection, event: frisbee::Event<'_>) {
        match event {
            frisbee::Event::Received => self.0.add("received"),
            frisbee::Event::Writable => self.0.add("writable"),
            _ => {}
        }
    }
}

#[test]
fn inner_routers_get_received_and_writable_events() {
    in_virtual_time(async {
        let hears = ["routed", "received", "writable"].map(str::to_owned);
        let log = EventLog::default();
        let services = Services::new().add_service(TestServer::new(TestService::default()));
        let router = Arc::new(services.over(HandlerTable::over(Hooked(log.clone()))));
        let server = frisbee::Server::builder(router).config(quiet()).without_listener();
        let (theirs, mut client) = peer();
        server.attach(theirs);
        assert_eq!(client.asks(frame(7, OWN.number(), encoded("mine"))).await, ["1000 7: mine"]);
        settle().await;
        assert_eq!(log.take()[..3], hears);

        let (ours, mut peer) = peer();
        let builder = quiet_channel().router(Hooked(log.clone()));
        let (_channel, ()) = tokio::join!(builder.attach(ours), peer.answer_opening());
        settle().await;
        log.take();
        assert_eq!(peer.asks(frame(7, OWN.number(), encoded("mine"))).await, ["1000 7: mine"]);
        settle().await;
        assert_eq!(log.take()[..3], hears);
    });
}

/// Takes all packets as they arrive, and notes how many it is given together.
struct Gatherer(EventLog);

impl frisbee::Router for Gatherer {
    fn intercept(&self, packets: &mut Arrivals<'_>, _: &Connection) {
        self.0.add(format!("took {}", packets.count()));
    }

    async fn route(&self, _: Packet, _: &Connection) -> frisbee::Outcome {
        frisbee::Outcome::Nothing
    }
}

#[test]
fn inner_routers_get_batched_packets_together() {
    in_virtual_time(async {
        let frames = || (0..8).map(|id| frame(id, OWN.number(), encoded("mine")));
        let took = ["took 8"].map(str::to_owned);
        let log = EventLog::default();
        let services = Services::new().add_service(TestServer::new(TestService::default()));
        let router = services.over(HandlerTable::over(Gatherer(log.clone())));
        let server = frisbee::Server::builder(router).config(quiet()).without_listener();
        let (theirs, mut client) = peer();
        server.attach(theirs);
        client.say_all(frames()).await;
        settle().await;
        assert_eq!(log.take(), took);
        let call = || [frame(1, SAY, encoded("hi"))];
        client.say_all(frames().take(3).chain(call()).chain(call()).chain(frames().take(2)).chain(call())).await;
        assert_eq!(client.hear_times(3).await, ["10 1: hi"; 3]);
        assert_eq!(log.take(), ["took 3", "took 2"], "a call is not the router's to take");

        let (ours, mut peer) = peer();
        let builder = quiet_channel().router(Gatherer(log.clone()));
        let (_channel, ()) = tokio::join!(builder.attach(ours), peer.answer_opening());
        peer.say_all(frames()).await;
        settle().await;
        assert_eq!(log.take(), took);
    });
}

/// Takes over its connection on command.
struct Taker(mpsc::UnboundedSender<frpc::Raw>);

impl frisbee::Router for Taker {
    async fn route(&self, packet: Packet, connection: &Connection) -> frisbee::Outcome {
        connection.send(packet).await.unwrap();
        self.0.send(connection.takeover().await.unwrap()).unwrap();
        frisbee::Outcome::Nothing
    }
}

#[test]
fn a_connection_becomes_a_byte_stream_after_some_calls() {
    in_virtual_time(async {
        let (sender, mut raws) = mpsc::unbounded_channel();
        let server = Server::builder().add_service(TestServer::new(TestService::default())).router(Taker(sender));
        let server = server.without_listener().unwrap();
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let (agreed, mut agreement) = mpsc::unbounded_channel();
        let router = HandlerTable::new().on(OWN, move |packet: Packet| {
            agreed.send(packet).unwrap();
            async {}
        });
        let client = TestClient::new(Channel::builder().router(router).attach(ours).await.unwrap());
        for result in each_kind(&client, "hi").await {
            result.unwrap();
        }
        let waiting = asking(&client, "wait");
        settle().await;
        let connection = client.channel().connection().unwrap();
        connection.send(own_packet(1, "shall we?")).await.unwrap();
        assert_eq!(agreement.recv().await.unwrap(), own_packet(1, "shall we?"));
        let mut ours = client.into_raw().await.unwrap();
        let mut theirs = raws.recv().await.unwrap();
        ours.skip_heartbeats();
        theirs.skip_heartbeats();
        assert!(may_have_executed(&waiting.await.unwrap().unwrap_err()), "calls under way fail");
        for (from, to) in [(0, 1), (1, 0)] {
            let sides = [&mut ours, &mut theirs];
            sides[from].write_all(b"raw bytes").await.unwrap();
            let mut bytes = [0; 9];
            sides[to].read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"raw bytes");
        }
        let in_process = Channel::in_process(TestServer::new(TestService::default()));
        assert_eq!(in_process.into_raw().await.unwrap_err().code(), Code::FailedPrecondition);
    });
}

/// Takes over its connection after its answer to "open up".
struct Host(mpsc::UnboundedSender<frpc::Raw>);

impl SecondTrait for Host {
    async fn greet(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        let (response, raw) = Response::new(request.into_inner()).then_take_over();
        let raws = self.0.clone();
        tokio::spawn(async move { raws.send(raw.await.unwrap()) });
        Ok(response)
    }

    async fn tail(&self, _: Request<Text>) -> Result<Response<Streaming<Text>>, Status> {
        Err(Status::unimplemented("it only opens up"))
    }
}

#[test]
fn a_handler_takes_over_the_connection_after_its_answer() {
    for dispatch in [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned] {
        in_virtual_time(async move {
            let (sender, mut raws) = mpsc::unbounded_channel();
            let server = Server::builder()
                .add_service(SecondServer::new(Host(sender)))
                .calls(CallSettings { dispatch, ..CallSettings::default() });
            let server = server.without_listener().unwrap();
            let (ours, theirs) = duplex(1000);
            server.attach(theirs);
            let client = SecondClient::new(Channel::builder().attach(ours).await.unwrap());
            let answer = client.greet(Text { text: "open up".into() }).await.unwrap();
            assert_eq!(answer.get_ref().text, "open up");
            let mut ours = client.into_raw().await.unwrap();
            ours.write_all(b"raw").await.unwrap();
            let mut theirs = raws.recv().await.unwrap();
            theirs.skip_heartbeats();
            let mut bytes = [0; 3];
            theirs.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"raw");
        });
    }
}
