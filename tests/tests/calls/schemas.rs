//! Two extended peers with different versions of a proto file. Compatible messages arrive; incompatible ones fail with
//! a status that names the field. Each check runs with the old client and the new server, and vice versa.

use std::future::pending;

use frpc::{
    CallError, Channel, Code, Config, MessageSettings, Request, Response, Server, Status, Streaming,
    generated::{Answer, Call, MessageType, Method, Service},
    interceptor,
};
use futures_util::StreamExt;
use support::{
    EventLog, SECOND, ThreadLog, assert_elapsed,
    calls::{only_connection, quiet, quiet_channel, unused_address},
    in_virtual_time,
    schemas::{new, old},
    settle,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy_bidirectional, duplex},
    time::Instant,
};
use tracing::Level;

/// Echoes every message, or answers with the name of the method.
#[derive(Clone, Copy)]
struct Echo;

/// Implements services of a version. Their methods convert each request to a response.
macro_rules! echoes {
    ($version:ident: $($server:ident::$service:ident($request:ident) -> $response:ident = $make:expr;)*) => {$(
        impl $version::$server::$service for Echo {
            async fn one(
                &self,
                request: Request<$version::$request>,
            ) -> Result<Response<$version::$response>, Status> {
                Ok(Response::new($make(request.into_inner())))
            }

            async fn many(
                &self,
                request: Request<$version::$request>,
            ) -> Result<Response<Streaming<$version::$response>>, Status> {
                Ok(Streaming::from_iter([$make(request.into_inner())]).into())
            }

            async fn gather(
                &self,
                request: Request<Streaming<$version::$request>>,
            ) -> Result<Response<$version::$response>, Status> {
                let message = request.into_inner().message().await?.expect("a caller sends one");
                Ok(Response::new($make(message)))
            }

            async fn chat(
                &self,
                request: Request<Streaming<$version::$request>>,
            ) -> Result<Response<Streaming<$version::$response>>, Status> {
                Ok(Streaming::new(request.into_inner().map(|message| Ok($make(message?)))).into())
            }
        }
    )*};
}

macro_rules! echoes_of_both {
    ($($version:ident $what:expr;)*) => {$(
        echoes! {
            $version:
            added_server::Added(AddedItem) -> AddedItem = |item| item;
            reordered_server::Reordered(ReorderedItem) -> ReorderedItem = |item| item;
            renamed_server::Renamed(RenamedItem) -> RenamedItem = |item| item;
            widened_server::Widened(WidenedItem) -> WidenedItem = |item| item;
            retyped_server::Retyped(RetypedItem) -> RetypedItem = |item| item;
            grown_server::Grown(GrownItem) -> GrownItem = |item| item;
            armed_server::Armed(ArmedItem) -> ArmedItem = |item| item;
            answered_server::Answered(Note) -> RetypedItem = |_| $version::RetypedItem { what: $what };
        }
    )*};
}

echoes_of_both! {
    old "text".into();
    new 7;
}

/// Implements methods that answer with their names.
macro_rules! named_methods {
    ($version:ident: $($method:ident $stream:ident)*) => {
        impl $version::methods_server::Methods for Echo {
            $(
                async fn $method(&self, _: Request<$version::Note>) -> Result<Response<$version::Note>, Status> {
                    Ok(Response::new($version::Note { text: stringify!($method).into() }))
                }

                async fn $stream(
                    &self,
                    _: Request<Streaming<$version::Note>>,
                ) -> Result<Response<Streaming<$version::Note>>, Status> {
                    Ok(Streaming::from_iter([$version::Note { text: stringify!($stream).into() }]).into())
                }
            )*
        }
    };
}

named_methods!(old: first first_stream second second_stream gone gone_stream before before_stream);
named_methods!(new: inserted inserted_stream second second_stream first first_stream after after_stream);

/// Creates a channel to a server of a version and waits until it knows the server.
macro_rules! channel_to {
    ($version:ident, $($server:ident::$service:ident)*) => {{
        let server = Server::builder().config(quiet())$(.add_service($version::$server::$service::new(Echo)))*;
        connected(server.without_listener().unwrap()).await
    }};
}

async fn connected(server: Server) -> (Channel, Server) {
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    let channel = quiet_channel().attach(ours).await.unwrap();
    settle().await;
    (channel, server)
}

async fn to_old() -> (Channel, Server) {
    channel_to!(old, methods_server::MethodsServer added_server::AddedServer reordered_server::ReorderedServer
        renamed_server::RenamedServer widened_server::WidenedServer retyped_server::RetypedServer
        grown_server::GrownServer armed_server::ArmedServer answered_server::AnsweredServer)
}

/// Serves in a different order than [`to_old`], so that most operations differ.
async fn to_new() -> (Channel, Server) {
    channel_to!(new, answered_server::AnsweredServer armed_server::ArmedServer grown_server::GrownServer
        retyped_server::RetypedServer widened_server::WidenedServer renamed_server::RenamedServer
        reordered_server::ReorderedServer added_server::AddedServer methods_server::MethodsServer)
}

/// Makes a call of each kind with a message. Returns the first message of each answer.
macro_rules! each_kind {
    ($client:expr, $item:expr) => {{
        let (client, item) = ($client, $item);
        let stream = || Streaming::from_iter([item.clone()]);
        [
            client.one(item.clone()).await.map(Response::into_inner),
            first(client.many(item.clone()).await).await,
            client.gather(stream()).await.map(Response::into_inner),
            first(client.chat(stream()).await).await,
        ]
    }};
}

async fn first<M>(answer: Result<Response<Streaming<M>>, Status>) -> Result<M, Status> {
    answer?.into_inner().message().await.map(|message| message.expect("an answer has a message"))
}

/// Checks the answers to messages from a client of one version to a server of the other.
macro_rules! comes_back {
    ($version:ident to $channel:expr, $module:ident::$client:ident: $($sent:expr => $back:expr),*) => {$(
        for answer in each_kind!($version::$module::$client::new($channel.clone()), $sent) {
            assert_eq!(answer.unwrap(), $back);
        }
    )*};
}

#[test]
fn only_the_field_unknown_to_one_side_is_lost() {
    in_virtual_time(async {
        let ((to_old, _one), (to_new, _other)) = (to_old().await, to_new().await);
        let name = || "Ada".to_owned();
        let item = old::AddedItem { name: name() };
        comes_back!(old to to_new, added_client::AddedClient: item.clone() => item);
        comes_back!(new to to_old, added_client::AddedClient:
            new::AddedItem { name: name(), count: 3 } => new::AddedItem { name: name(), count: 0 });
    });
}

#[test]
fn reordered_and_renamed_fields_arrive() {
    in_virtual_time(async {
        let ((to_old, _one), (to_new, _other)) = (to_old().await, to_new().await);
        let (first, second) = (|| "first".to_owned(), || "second".to_owned());
        let item = old::ReorderedItem { first: first(), second: second() };
        comes_back!(old to to_new, reordered_client::ReorderedClient: item.clone() => item);
        let item = new::ReorderedItem { first: first(), second: second() };
        comes_back!(new to to_old, reordered_client::ReorderedClient: item.clone() => item);
        let item = old::RenamedItem { name: first() };
        comes_back!(old to to_new, renamed_client::RenamedClient: item.clone() => item);
        let item = new::RenamedItem { title: first() };
        comes_back!(new to to_old, renamed_client::RenamedClient: item.clone() => item);
    });
}

/// Creates a channel between two versions of `Widened`, with settings for the loss of values on each side.
macro_rules! widened {
    ($version:ident, server: $server_accepts:expr, channel: $channel_accepts:expr) => {{
        let server = Server::builder()
            .config(quiet())
            .messages(MessageSettings { accept_narrowing: $server_accepts, ..MessageSettings::default() });
        let server = server.add_service($version::widened_server::WidenedServer::new(Echo)).without_listener().unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let channel = quiet_channel()
            .messages(MessageSettings { accept_narrowing: $channel_accepts, ..MessageSettings::default() })
            .attach(ours)
            .await
            .unwrap();
        settle().await;
        (channel, server)
    }};
}

#[test]
fn wider_numbers_are_truncated_if_the_reader_allows() {
    in_virtual_time(async {
        let log = ThreadLog::hear(Level::WARN);
        let (to_new, _one) = widened!(new, server: false, channel: true);
        let (to_old, _other) = widened!(old, server: true, channel: false);
        let item = old::WidenedItem { number: -7 };
        comes_back!(old to to_new, widened_client::WidenedClient: item => item);
        let item = |number| new::WidenedItem { number };
        comes_back!(new to to_old, widened_client::WidenedClient: item(-7) => item(-7), item((1 << 32) + 5) => item(5));
        let told = log.take();
        assert_eq!(told.len(), 2 * KINDS.len(), "each method is told of once for each connection: {told:#?}");
        assert!(told.iter().all(|line| line.starts_with("WARN calls may lose values: the re")), "{told:#?}");
    });
}

#[test]
fn wider_numbers_are_rejected_by_default() {
    in_virtual_time(async {
        let log = ThreadLog::hear(Level::WARN);
        let (number, here_old) =
            (7, "is int32 here and int64 on the server, and values would get lost, unless this side sets");
        let here_new = "is int64 here and int32 on the server, and values would get lost, unless the server sets";
        for (is_old, server_accepts, channel_accepts) in
            [(true, false, false), (true, true, false), (false, false, false), (false, false, true)]
        {
            let (which, expected) = if is_old { ("response", here_old) } else { ("request", here_new) };
            let answers = if is_old {
                let (channel, _server) = widened!(new, server: server_accepts, channel: channel_accepts);
                let client = old::widened_client::WidenedClient::new(channel);
                each_kind!(client, old::WidenedItem { number }).map(|answer| answer.map(drop))
            } else {
                let (channel, _server) = widened!(old, server: server_accepts, channel: channel_accepts);
                let client = new::widened_client::WidenedClient::new(channel);
                each_kind!(client, new::WidenedItem { number: number.into() }).map(|answer| answer.map(drop))
            };
            for (answer, method) in answers.into_iter().zip(KINDS) {
                let status = answer.unwrap_err();
                assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
                let message = status.message();
                assert!(message.contains(&format!("the {which} of schemas.Widened/{method} ")), "{message}");
                assert!(
                    message.contains("WidenedItem.number: field `number` (1)") && message.contains(expected),
                    "{message}"
                );
            }
        }
        let told = log.take();
        assert_eq!(told.len(), 4 * KINDS.len(), "{told:#?}");
        assert!(told.iter().all(|line| line.starts_with("WARN every call will fail: the re")), "{told:#?}");
    });
}

#[test]
fn narrowing_settings_apply_to_callbacks() {
    in_virtual_time(async {
        for accepts in [false, true] {
            let server = Server::builder().config(quiet()).without_listener().unwrap();
            let (ours, theirs) = duplex(64 * 1024);
            server.attach(theirs);
            let channel =
                quiet_channel().messages(MessageSettings { accept_narrowing: accepts, ..MessageSettings::default() });
            let channel =
                channel.add_service(old::widened_server::WidenedServer::new(Echo)).attach(ours).await.unwrap();
            let back = Channel::over(&only_connection(&server).await).unwrap();
            for answer in
                each_kind!(new::widened_client::WidenedClient::new(back), new::WidenedItem { number: 1 << 40 })
            {
                assert_eq!(
                    answer.map_err(|status| status.code()),
                    if accepts { Ok(new::WidenedItem { number: 0 }) } else { Err(Code::FailedPrecondition) }
                );
            }
            drop(channel);
        }
    });
}

#[test]
fn unknown_values_and_oneof_members_change_no_others() {
    in_virtual_time(async {
        let ((to_old, _one), (to_new, _other)) = (to_old().await, to_new().await);
        let item = |mood: old::Mood| old::GrownItem { mood: mood.into() };
        comes_back!(old to to_new, grown_client::GrownClient:
            item(old::Mood::Stormy) => item(old::Mood::Stormy), item(old::Mood::Calm) => item(old::Mood::Calm));
        let item = |mood: new::Mood| new::GrownItem { mood: mood.into() };
        comes_back!(new to to_old, grown_client::GrownClient:
            item(new::Mood::Stormy) => item(new::Mood::Stormy), item(new::Mood::Foggy) => item(new::Mood::Foggy));

        use new::armed_item::Arm as NewArm;
        use old::armed_item::Arm as OldArm;
        let item = |arm| old::ArmedItem { arm };
        comes_back!(old to to_new, armed_client::ArmedClient: item(Some(OldArm::Right(5))) => item(Some(OldArm::Right(5))));
        let item = |arm| new::ArmedItem { arm };
        comes_back!(new to to_old, armed_client::ArmedClient:
            item(Some(NewArm::Left("a".into()))) => item(Some(NewArm::Left("a".into()))),
            item(Some(NewArm::Third("a".into()))) => item(None));
    });
}

#[test]
fn incompatible_types_fail_with_method_and_field() {
    in_virtual_time(async {
        let ((to_old, _one), (to_new, _other)) = (to_old().await, to_new().await);
        let item = old::RetypedItem { what: "text".into() };
        for item in [item, old::RetypedItem::default()] {
            check_misfits(
                each_kind!(old::retyped_client::RetypedClient::new(to_new.clone()), item),
                "Retyped",
                "request",
            );
        }
        for item in [new::RetypedItem { what: 7 }, new::RetypedItem::default()] {
            check_misfits(
                each_kind!(new::retyped_client::RetypedClient::new(to_old.clone()), item),
                "Retyped",
                "request",
            );
        }
        let note = old::Note { text: "hi".into() };
        check_misfits(each_kind!(old::answered_client::AnsweredClient::new(to_new), note), "Answered", "response");
        let note = new::Note { text: "hi".into() };
        check_misfits(each_kind!(new::answered_client::AnsweredClient::new(to_old), note), "Answered", "response");
    });
}

#[track_caller]
fn check_misfits<M: std::fmt::Debug>(answers: [Result<M, Status>; 4], service: &str, which: &str) {
    for (answer, method) in answers.into_iter().zip(KINDS) {
        let status = answer.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        let message = status.message();
        assert!(message.contains(&format!("the {which} of schemas.{service}/{method} ")), "{message}");
        assert!(message.contains("RetypedItem.what: field `what` (1) of schemas.RetypedItem is"), "{message}");
    }
}

const KINDS: [&str; 4] = ["One", "Many", "Gather", "Chat"];

#[test]
fn nothing_is_sent_if_any_type_is_incompatible() {
    in_virtual_time(async {
        let calls = EventLog::default();
        let server = Server::builder().config(quiet()).layer(interceptor({
            let calls = calls.clone();
            move |call: &mut Call| {
                calls.add(call.method().path());
                Ok(())
            }
        }));
        let server = server.add_service(new::answered_server::AnsweredServer::new(Echo));
        let server = server.add_service(new::added_server::AddedServer::new(Echo)).without_listener().unwrap();
        let (channel, server) = connected(server).await;
        let note = old::Note { text: "hi".into() };
        let client = old::answered_client::AnsweredClient::new(channel.clone());
        check_misfits(each_kind!(client.clone(), note.clone()), "Answered", "response");
        let packets = || server.metrics().counters.packets_in;
        let before = packets();
        check_misfits(each_kind!(client, note), "Answered", "response");
        assert_eq!(packets(), before, "the peer is asked once for each method");
        assert!(calls.take().is_empty());
        let added = old::added_client::AddedClient::new(channel);
        added.one(old::AddedItem::default()).await.unwrap();
        assert_eq!(calls.take(), ["schemas.Added/One"]);
    });
}

/// Returns the methods of `Retyped` reported as failing in the log.
fn told_of_retyped(log: &ThreadLog) -> Vec<&'static str> {
    let lines = log.take();
    let told = KINDS.into_iter().filter(|kind| {
        let method = format!("the request of schemas.Retyped/{kind} does not fit");
        lines.iter().any(|line| line.starts_with("WARN every call will fail: ") && line.contains(&method))
    });
    let told: Vec<_> = told.collect();
    assert_eq!(lines.len(), told.len(), "{lines:#?}");
    told
}

#[test]
fn incompatible_methods_are_logged_once_at_connect() {
    in_virtual_time(async {
        let log = ThreadLog::hear(Level::WARN);
        let (to_new, _server) = to_new().await;
        let fits = old::added_client::AddedClient::new(to_new.clone());
        settle().await;
        assert_eq!(told_of_retyped(&log), [""; 0], "nobody is going to call them");
        let client = old::retyped_client::RetypedClient::new(to_new.clone());
        settle().await;
        assert_eq!(told_of_retyped(&log), KINDS);
        client.one(old::RetypedItem::default()).await.unwrap_err();
        old::retyped_client::RetypedClient::new(to_new).one(old::RetypedItem::default()).await.unwrap_err();
        fits.one(old::AddedItem::default()).await.unwrap();
        settle().await;
        assert_eq!(told_of_retyped(&log), [""; 0]);
    });
}

#[test]
fn methods_are_compared_again_after_a_reconnect() {
    in_virtual_time(async {
        let log = ThreadLog::hear(Level::WARN);
        let address = unused_address();
        let serve = || Server::builder().config(quiet());
        let server = serve().add_service(old::retyped_server::RetypedServer::new(Echo)).bind(&address).await.unwrap();
        let channel = quiet_channel().connect(&address).await.unwrap();
        let client = old::retyped_client::RetypedClient::new(channel);
        client.one(old::RetypedItem::default()).await.unwrap();
        drop(server);
        settle().await;
        let _server = serve().add_service(new::retyped_server::RetypedServer::new(Echo)).bind(&address).await.unwrap();
        log.take();
        let status = client.many(old::RetypedItem::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        settle().await;
        assert_eq!(told_of_retyped(&log), KINDS);
    });
}

#[test]
fn unary_calls_fit_the_messages_of_the_next_server() {
    in_virtual_time(async {
        let with_timeout = |mut request: Request<_>| {
            request.set_timeout(SECOND);
            request
        };
        let with_metadata = |mut request: Request<_>| {
            request.metadata_mut().insert("x-key", "value").unwrap();
            request
        };
        for change in [|request| request, with_timeout, with_metadata] {
            let address = unused_address();
            let serve = || Server::builder().config(quiet());
            let server = serve().add_service(old::added_server::AddedServer::new(Echo)).bind(&address).await.unwrap();
            let client = old::added_client::AddedClient::new(quiet_channel().connect(&address).await.unwrap());
            let call = || client.one(change(Request::new(old::AddedItem::default())));
            assert_eq!(call().await.unwrap().into_inner(), old::AddedItem::default());
            drop(server);
            settle().await;
            let _server = serve().add_service(new::added_server::AddedServer::new(Echo)).bind(&address).await.unwrap();
            // The first one reconnects. The second one begins on the new connection.
            for _ in 0..2 {
                assert_eq!(call().await.unwrap().into_inner(), old::AddedItem::default());
            }
        }
    });
}

#[test]
fn a_server_compares_types_of_its_callbacks() {
    in_virtual_time(async {
        let log = ThreadLog::hear(Level::WARN);
        let server = Server::builder().config(quiet()).without_listener().unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let channel = quiet_channel().add_service(old::retyped_server::RetypedServer::new(Echo));
        let channel = channel.add_service(old::added_server::AddedServer::new(Echo)).attach(ours).await.unwrap();
        let back = Channel::over(&only_connection(&server).await).unwrap();
        let client = new::retyped_client::RetypedClient::new(back.clone());
        check_misfits(each_kind!(client, new::RetypedItem { what: 7 }), "Retyped", "request");
        settle().await;
        assert_eq!(told_of_retyped(&log), KINDS);
        comes_back!(new to back, added_client::AddedClient:
            new::AddedItem { name: "Ada".into(), count: 3 } => new::AddedItem { name: "Ada".into(), count: 0 });
        drop(channel);
    });
}

/// A service that describes its messages only by a fingerprint.
struct Undescribed;

impl Service for Undescribed {
    const NAME: &'static str = "schemas.Retyped";
    const METHODS: &'static [Method] = &[{
        const ITEM: MessageType = MessageType::new("schemas.RetypedItem", 1, b"not descriptors");
        Method::unary("schemas.Retyped", "One", 10).with_types(&ITEM, &ITEM)
    }];

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        call.unary(async |request: Request<new::RetypedItem>| Ok(Response::new(request.into_inner()))).await
    }
}

#[test]
fn peers_without_descriptors_get_protobuf_messages() {
    in_virtual_time(async {
        let server = Server::builder().config(quiet()).add_service(Undescribed);
        let (channel, _server) = connected(server.without_listener().unwrap()).await;
        let client = old::retyped_client::RetypedClient::new(channel);
        assert_eq!(client.one(old::RetypedItem::default()).await.unwrap().into_inner(), old::RetypedItem::default());
        let status = client.one(old::RetypedItem { what: "text".into() }).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("the request of schemas.Retyped/One: "), "{status}");
    });
}

/// A service with methods that never answer.
struct Stuck;

impl new::added_server::Added for Stuck {
    async fn one(&self, _: Request<new::AddedItem>) -> Result<Response<new::AddedItem>, Status> {
        pending().await
    }

    async fn many(&self, _: Request<new::AddedItem>) -> Result<Response<Streaming<new::AddedItem>>, Status> {
        pending().await
    }

    async fn gather(&self, _: Request<Streaming<new::AddedItem>>) -> Result<Response<new::AddedItem>, Status> {
        pending().await
    }

    async fn chat(&self, _: Request<Streaming<new::AddedItem>>) -> Result<Response<Streaming<new::AddedItem>>, Status> {
        pending().await
    }
}

#[test]
fn no_call_is_sent_until_the_schema_is_known() {
    in_virtual_time(async {
        let server = Server::builder().config(Config { handlers_max: 1, ..quiet() });
        let server = server.add_service(new::added_server::AddedServer::new(Stuck));
        let (channel, _server) = connected(server.without_listener().unwrap()).await;
        let stuck = tokio::spawn({
            let client = new::added_client::AddedClient::new(channel.clone());
            async move { client.one(new::AddedItem::default()).await }
        });
        settle().await;
        let client = old::added_client::AddedClient::new(channel.with_timeout(SECOND));
        let since = Instant::now();
        let status = client.one(old::AddedItem::default()).await.unwrap_err();
        assert_elapsed(since, SECOND);
        assert!(matches!(status.call_error(), Some(CallError::NotSent { .. })), "{status}");
        stuck.abort();
    });
}

/// Checks that a method answers with its name, in a packet and in a stream, or that it does not exist.
macro_rules! answers {
    ($client:expr, $note:expr, $method:ident $stream:ident: $expected:expr) => {{
        let (client, note) = ($client, $note);
        let one = client.$method(note.clone()).await.map(|answer| answer.into_inner().text);
        let many = first(client.$stream(Streaming::from_iter([note.clone()])).await).await.map(|answer| answer.text);
        for (answer, name) in [(one, stringify!($method)), (many, stringify!($stream))] {
            match answer {
                Ok(text) => assert!($expected && text == name, "{name}: {text}"),
                Err(status) => {
                    assert!(!$expected, "{name}: {status}");
                    assert_eq!(status.code(), Code::Unimplemented, "{name}: {status}");
                }
            }
        }
    }};
}

#[test]
fn calls_reach_the_method_of_their_path_or_none() {
    in_virtual_time(async {
        let ((to_old, _one), (to_new, _other)) = (to_old().await, to_new().await);
        let client = &old::methods_client::MethodsClient::new(to_new);
        let note = &old::Note::default();
        answers!(client, note, first first_stream: true);
        answers!(client, note, second second_stream: true);
        answers!(client, note, gone gone_stream: false);
        answers!(client, note, before before_stream: false);
        let client = &new::methods_client::MethodsClient::new(to_old);
        let note = &new::Note::default();
        answers!(client, note, first first_stream: true);
        answers!(client, note, second second_stream: true);
        answers!(client, note, inserted inserted_stream: false);
        answers!(client, note, after after_stream: false);
    });
}

/// Creates a channel to a silent peer. Returns the channel's opening.
async fn to_nobody() -> (Channel, DuplexStream, Vec<u8>) {
    let (ours, mut wire) = duplex(64 * 1024);
    let channel = quiet_channel().attach(ours).await.unwrap();
    let mut opening = vec![0; 64 * 1024];
    let len = wire.read(&mut opening).await.unwrap();
    opening.truncate(len);
    (channel, wire, opening)
}

#[test]
fn early_streams_to_a_slow_peer_reach_their_own_method() {
    in_virtual_time(async {
        let (channel, mut wire, opening) = to_nobody().await;
        let note = old::Note { text: "hi".into() };
        let calls = [true, false].map(|is_first| {
            let (channel, note) = (channel.clone(), note.clone());
            tokio::spawn(async move {
                let client = old::methods_client::MethodsClient::new(channel);
                let notes = Streaming::from_iter([note]);
                let answer = if is_first { client.first_stream(notes).await } else { client.gone_stream(notes).await };
                first(answer).await.map(|answer| answer.text)
            })
        });
        let retyped = tokio::spawn({
            let client = old::retyped_client::RetypedClient::new(channel);
            async move { client.gather(Streaming::from_iter([old::RetypedItem { what: "text".into() }])).await }
        });
        settle().await;

        // Start the server at the other end only now.
        let server = Server::builder().config(quiet());
        let server = server.add_service(new::methods_server::MethodsServer::new(Echo));
        let server = server.add_service(new::retyped_server::RetypedServer::new(Echo)).without_listener().unwrap();
        let (mut to_server, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        to_server.write_all(&opening).await.unwrap();
        tokio::spawn(async move { copy_bidirectional(&mut wire, &mut to_server).await });
        let [one, other] = calls;
        assert_eq!(one.await.unwrap().unwrap(), "first_stream");
        assert_eq!(other.await.unwrap().unwrap_err().code(), Code::Unimplemented);
        let status = retyped.await.unwrap().unwrap_err();
        assert!(status.message().contains("schemas.Retyped/Gather"), "{status}");
    });
}

#[test]
fn streams_to_a_silent_peer_are_unsent_and_time_out() {
    in_virtual_time(async {
        let (channel, mut wire, _) = to_nobody().await;
        let client = old::added_client::AddedClient::new(channel.with_timeout(7 * SECOND));
        let since = Instant::now();
        let status = client.chat(Streaming::from_iter([old::AddedItem::default()])).await.unwrap_err();
        assert_elapsed(since, 7 * SECOND);
        assert!(matches!(status.call_error(), Some(CallError::NotSent { .. })), "{status}");
        drop(client);
        let mut said = Vec::new();
        wire.read_to_end(&mut said).await.unwrap();
        assert!(said.is_empty(), "{said:?}");
    });
}
