//! tonic's clients call our server, and our clients call tonic's server, with the same sequence of calls.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::time::Duration;

use frpc::{Metadata, Server};
use frpc_http::Http;
use futures_util::{StreamExt, stream};
use support::in_real_time;
use tonic::{
    metadata::{MetadataMap, MetadataValue},
    transport::{Channel, server::TcpIncoming},
};
use with_tonic::{
    Ours, Theirs,
    json::{Answer, Question},
    ours, theirs,
};

/// Calls methods of every kind with the clients of one side. Both sides have the same methods.
macro_rules! converse {
    ($library:ident, $protos:ident, $greeter:expr, $guide:expr, $asked_by:expr, $answered_by:expr) => {{
        use $library::{Code, Request};
        use $protos::{
            helloworld::HelloRequest,
            routeguide::{Point, Rectangle, RouteNote},
        };

        let (mut greeter, mut guide) = ($greeter, $guide);
        let mut request = Request::new(HelloRequest { name: "you".repeat(100_000) });
        $asked_by(request.metadata_mut());
        let response = greeter.say_hello(request).await.unwrap();
        $answered_by(response.metadata());
        assert_eq!(response.into_inner().message, format!("Hello {}, asks me", "you".repeat(100_000)));

        let at = |latitude| Point { latitude, longitude: 7 };
        let feature = guide.get_feature(at(1)).await.unwrap().into_inner();
        assert_eq!((feature.name.as_str(), feature.location), ("a tree", Some(at(1))));
        let status = guide.get_feature(at(0)).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "nothing but ☺ here"));
        let mut late = Request::new(at(i32::MAX));
        late.set_timeout(Duration::from_millis(50));
        let status = guide.get_feature(late).await.unwrap_err();
        assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&status.code()), "{status}");

        let area = Rectangle { lo: Some(at(1)), hi: Some(at(2)) };
        let mut corners = guide.list_features(area).await.unwrap().into_inner();
        assert_eq!(corners.message().await.unwrap().unwrap().location, Some(at(1)));
        assert_eq!(corners.message().await.unwrap().unwrap().location, Some(at(2)));
        assert_eq!(corners.message().await.unwrap(), None);

        let summary = guide.record_route(stream::iter((0..1000).map(at))).await.unwrap().into_inner();
        assert_eq!(summary.point_count, 1000);

        let note = |message: &str| RouteNote { location: Some(at(3)), message: message.to_owned() };
        let (sender, mut notes) = tokio::sync::mpsc::unbounded_channel();
        let notes = stream::poll_fn(move |cx| notes.poll_recv(cx));
        let mut chat = guide.route_chat(notes).await.unwrap().into_inner();
        for message in ["one", "two"] {
            sender.send(note(message)).unwrap();
            assert_eq!(chat.next().await.unwrap().unwrap(), note(message));
        }
        sender.send(note("")).unwrap();
        let status = chat.message().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Aborted, "silence"));
    }};
}

#[test]
fn tonic_clients_call_our_server() {
    use theirs::{helloworld::greeter_client::GreeterClient, routeguide::route_guide_client::RouteGuideClient};
    in_real_time(async {
        let server = Server::builder()
            .add_service(ours::helloworld::greeter_server::GreeterServer::new(Ours))
            .add_service(ours::routeguide::route_guide_server::RouteGuideServer::new(Ours))
            .wire(Http::new());
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let address = server.local_addr().to_string().replace("tcp://", "http://");
        let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
        converse!(
            tonic,
            theirs,
            GreeterClient::new(channel.clone()),
            RouteGuideClient::new(channel),
            |metadata: &mut MetadataMap| drop(metadata.insert("asked", MetadataValue::from_static("me"))),
            |metadata: &MetadataMap| {
                assert_eq!(metadata.get("answered").unwrap(), "by ours");
                assert_eq!(metadata.get_bin("key-bin").unwrap().to_bytes().unwrap(), &[0, 255][..]);
            }
        );
    });
}

#[test]
fn our_clients_call_a_tonic_server() {
    use ours::{helloworld::greeter_client::GreeterClient, routeguide::route_guide_client::RouteGuideClient};
    in_real_time(async {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = format!("grpc://{}", incoming.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(theirs::helloworld::greeter_server::GreeterServer::new(Theirs))
            .add_service(theirs::routeguide::route_guide_server::RouteGuideServer::new(Theirs))
            .serve_with_incoming(incoming);
        let server = tokio::spawn(server);
        let channel = frpc::Channel::builder().transport(frpc_http::transport()).connect(&*address).await.unwrap();
        #[allow(unused_mut, reason = "clients of tonic have to be changed for a call")]
        {
            converse!(
                frpc,
                ours,
                GreeterClient::new(channel.clone()),
                RouteGuideClient::new(channel),
                |metadata: &mut Metadata| metadata.insert("asked", "me").unwrap(),
                |metadata: &Metadata| {
                    assert_eq!(metadata.get("answered").unwrap(), "by theirs");
                    assert_eq!(metadata.get_bin("key-bin").unwrap(), [0, 255]);
                }
            );
        }
        server.abort();
    });
}

/// Calls methods with a codec of their own with the client of one side.
macro_rules! ask {
    ($client:expr, $stream:path) => {{
        let mut client = $client;
        let question = |text: &str| Question { text: text.to_owned() };
        let answer = client.ask(question("why")).await.unwrap().into_inner();
        assert_eq!(answer, Answer { known: Some(true), text: "why!".to_owned() });
        let answer = client.ask(question(&"why".repeat(100_000))).await.unwrap().into_inner();
        assert_eq!(answer.text.len(), 300_001);
        let questions = $stream([question("who"), question("")]);
        let mut answers = client.ask_often(questions).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap().unwrap(), Answer { known: Some(true), text: "who!".to_owned() });
        assert_eq!(answers.message().await.unwrap().unwrap(), Answer { known: None, text: "!".to_owned() });
        assert_eq!(answers.message().await.unwrap(), None);
    }};
}

#[test]
fn custom_codecs_interoperate_with_tonic() {
    frpc_http::register();
    in_real_time(async {
        let server = Server::builder().add_service(ours::oracle::oracle_server::OracleServer::new(Ours));
        let server = server.wire(Http::new()).bind("tcp://127.0.0.1:0").await.unwrap();
        let address = server.local_addr().to_string().replace("tcp://", "http://");
        let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
        ask!(theirs::oracle::oracle_client::OracleClient::new(channel), stream::iter);

        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = format!("grpc://{}", incoming.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(theirs::oracle::oracle_server::OracleServer::new(Theirs))
            .serve_with_incoming(incoming);
        let server = tokio::spawn(server);
        #[allow(unused_mut, reason = "clients of tonic have to be changed for a call")]
        {
            let client = ours::oracle::oracle_client::OracleClient::connect(&*address).await.unwrap();
            ask!(client, frpc::Streaming::from_iter);
        }
        server.abort();
    });
}
