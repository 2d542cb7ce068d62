//! Calls over every kind of address and engine, and effects visible only on real sockets.

use std::{future::pending, sync::Arc};

use frpc::{Channel, Code, Engine, Request, Response, Server, Status, Streaming};
use support::{
    Identity, SECOND, in_real_time,
    interop::{
        Service,
        schema::{
            Blob, Delay, Number, Rich, Series, Summary, Text,
            interop_client::InteropClient,
            interop_server::InteropServer,
            second_client::SecondClient,
            second_server::{Second, SecondServer},
        },
    },
    localhost,
    sockets::{IDENTITY, Kind, Setting, pattern, unused_address},
    until,
};
use tokio::{io::duplex, net::TcpListener};

macro_rules! conversations {
    ($($setting:ident: $kind:ident, $tls:literal, $engine:ident;)*) => {
        $(
            mod $setting {
                use super::*;

                const SETTING: Setting = Setting { kind: Kind::$kind, tls: $tls, engine: Engine::$engine };

                #[test]
                fn every_kind_of_call_is_answered() {
                    if SETTING.can_be_had() {
                        in_real_time(super::every_kind_of_call_is_answered(SETTING));
                    }
                }

                #[test]
                fn a_channel_reconnects_after_a_restart() {
                    if SETTING.can_be_had() {
                        in_real_time(super::a_channel_reconnects_after_a_restart(SETTING));
                    }
                }

                #[test]
                fn a_shutdown_lets_calls_finish() {
                    if SETTING.can_be_had() {
                        in_real_time(super::a_shutdown_lets_calls_finish(SETTING));
                    }
                }
            }
        )*
    };
}

conversations! {
    tcp: Tcp, false, Tokio;
    tcp_tls: Tcp, true, Tokio;
    unix_path: UnixPath, false, Tokio;
    unix_path_tls: UnixPath, true, Tokio;
    unix_abstract: UnixAbstract, false, Tokio;
    mem: Mem, false, Tokio;
    mem_tls: Mem, true, Tokio;
    own_stream: Own, false, Tokio;
    own_stream_tls: Own, true, Tokio;
    per_core_tcp: Tcp, false, PerCore;
    per_core_tcp_tls: Tcp, true, PerCore;
    per_core_unix_path: UnixPath, false, PerCore;
    per_core_unix_abstract: UnixAbstract, false, PerCore;
    uring_tcp: Tcp, false, Uring;
    uring_tcp_tls: Tcp, true, Uring;
    uring_unix_path: UnixPath, false, Uring;
    uring_unix_abstract: UnixAbstract, false, Uring;
    uring_mem: Mem, false, Uring;
    uring_portable_tcp: Tcp, false, UringPortable;
    uring_portable_unix_path: UnixPath, false, UringPortable;
    tokio_uring_tcp: Tcp, false, TokioUring;
    tokio_uring_unix_path: UnixPath, false, TokioUring;
    per_core_mem: Mem, false, PerCore;
}

#[test]
fn a_failed_connection_attempt_does_not_affect_the_next() {
    in_real_time(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = Server::builder().add_service(SecondServer::new(Service)).without_listener().unwrap();
        tokio::spawn(async move {
            for _ in 0..3 {
                drop(listener.accept().await.unwrap());
            }
            server.attach(listener.accept().await.unwrap().0);
            pending::<()>().await;
        });
        let channel = Channel::builder().connect_timeout(10 * SECOND).connect(addr).await.unwrap();
        let second = SecondClient::new(channel);
        assert_eq!(second.greet(text("you")).await.unwrap().into_inner(), text("hello you"));
    });
}

async fn serve(setting: Setting, address: frpc::Address) -> Server {
    let server = Server::builder().engine(setting.engine);
    let server = if setting.tls { server.tls(IDENTITY.server()) } else { server };
    let server = server.add_service(InteropServer::new(Service)).add_service(SecondServer::new(Service));
    if setting.kind == Kind::Own {
        return server.without_listener().unwrap();
    }
    let server = server.bind(address).await.unwrap();
    assert_eq!(server.engine(), setting.engine);
    server
}

async fn connect(setting: Setting, server: &Server) -> Channel {
    let channel = Channel::builder().engine(setting.engine).connect_timeout(10 * SECOND);
    let channel = if setting.tls { channel.tls_with_name(IDENTITY.client(), localhost()) } else { channel };
    if setting.kind == Kind::Own {
        let (ours, theirs) = duplex(10_000);
        server.attach(theirs);
        return channel.attach(ours).await.unwrap();
    }
    channel.connect(server.local_addr()).await.unwrap()
}

fn text(text: &str) -> Text {
    Text { text: text.into() }
}

async fn every_kind_of_call_is_answered(setting: Setting) {
    let server = serve(setting, unused_address(setting.kind)).await;
    let channel = connect(setting, &server).await;
    let clients: Vec<_> = (0..20).map(|number| tokio::spawn(converse(channel.clone(), number))).collect();
    for client in clients {
        client.await.unwrap();
    }
    let connection = channel.connection().unwrap();
    until(|| connection.metrics().streams == 0).await;
    until(|| server.connections()[0].metrics().streams == 0).await;
}

async fn converse(channel: Channel, number: i64) {
    let (interop, second) = (InteropClient::new(channel.clone()), SecondClient::new(channel));
    let rich = Rich { title: format!("number {number}"), i64: number, ..Rich::default() };
    assert_eq!(interop.echo(rich.clone()).await.unwrap().into_inner(), rich);
    let blob = Blob { data: pattern(200_000).to_vec() };
    assert!(interop.payload(blob.clone()).await.unwrap().into_inner() == blob);
    let status = interop.fail(text("as asked")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unknown, "as asked"));
    let series = Series { start: number, count: 500, fail_with: "enough".into() };
    let mut numbers = interop.numbers(series).await.unwrap().into_inner();
    for value in (number..).take(500) {
        assert_eq!(numbers.message().await.unwrap(), Some(Number { value }));
    }
    assert_eq!(numbers.message().await.unwrap_err().message(), "enough");
    let values = Streaming::from_iter((0..500).map(|value| Number { value }));
    assert_eq!(interop.total(values).await.unwrap().into_inner(), Summary { sum: 499 * 250, count: 500 });
    let (sender, requests) = Streaming::channel(1);
    let mut answers = interop.talk(requests).await.unwrap().into_inner();
    for turn in 0..100 {
        sender.send(text(&format!("{number} {turn}"))).await.unwrap();
        assert_eq!(answers.message().await.unwrap(), Some(text(&format!("re: {number} {turn}"))));
    }
    drop(sender);
    assert_eq!(answers.message().await.unwrap(), None);
    assert_eq!(second.greet(text("you")).await.unwrap().into_inner(), text("hello you"));
}

async fn a_channel_reconnects_after_a_restart(setting: Setting) {
    if setting.kind == Kind::Own {
        return;
    }
    let mut server = serve(setting, unused_address(setting.kind)).await;
    let second = SecondClient::new(connect(setting, &server).await);
    for _ in 0..3 {
        assert_eq!(second.greet(text("you")).await.unwrap().into_inner(), text("hello you"));
        let address = server.local_addr().clone();
        assert_eq!(server.shutdown(10 * SECOND).await, 0);
        let status = second.greet({
            let mut request = Request::new(text("nobody"));
            request.set_timeout(SECOND / 20);
            request
        });
        assert!(matches!(status.await.unwrap_err().code(), Code::Unavailable | Code::DeadlineExceeded));
        server = serve(setting, address).await;
    }
}

async fn a_shutdown_lets_calls_finish(setting: Setting) {
    let server = serve(setting, unused_address(setting.kind)).await;
    let interop = InteropClient::new(connect(setting, &server).await);
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let interop = interop.clone();
            tokio::spawn(async move { interop.slow(Delay { milliseconds: 50, text: "slow".into() }).await })
        })
        .collect();
    let (sender, requests) = Streaming::channel(1);
    let mut answers = interop.talk(requests).await.unwrap().into_inner();
    sender.send(text("hi")).await.unwrap();
    assert_eq!(answers.message().await.unwrap(), Some(text("re: hi")));
    until(|| server.metrics().handlers == 10 || calls.iter().all(|call| call.is_finished())).await;
    let shutdown = tokio::spawn(server.shutdown(15 * SECOND));
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().into_inner(), text("slow"));
    }
    sender.send(text("still there")).await.unwrap();
    assert_eq!(answers.message().await.unwrap(), Some(text("re: still there")));
    drop(sender);
    assert_eq!(answers.message().await.unwrap(), None);
    assert_eq!(shutdown.await.unwrap(), 0);
}

/// Answers with the identity of the caller.
struct Doorman;

impl Second for Doorman {
    async fn greet(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        let certificates = request.peer_certificates().unwrap_or_default();
        let peer = request.peer_addr().unwrap();
        let told: Vec<_> = certificates.iter().map(|certificate| format!("{certificate:?}")).collect();
        Ok(text(&format!("{peer} {}", told.join(" "))).into())
    }

    async fn tail(&self, request: Request<Text>) -> Result<Response<Streaming<Text>>, Status> {
        let count = request.peer_certificates().map_or(0, |certificates| certificates.len());
        Ok(Streaming::from_iter([text(&count.to_string())]).into())
    }
}

#[test]
fn a_handler_sees_the_address_and_certificate_of_its_caller() {
    in_real_time(async {
        let (alice, bob) = (Identity::new(), Identity::new());
        let server = Server::builder().tls(alice.server_for(&bob)).add_service(SecondServer::new(Doorman));
        let server = server.bind(unused_address(Kind::Tcp)).await.unwrap();
        let channel =
            Channel::builder().tls(Arc::new(alice.client_as(&bob))).connect(server.local_addr()).await.unwrap();
        let local = channel.connection().unwrap().local_addr().clone();
        let second = SecondClient::new(channel);
        let told = second.greet(text("who am I?")).await.unwrap().into_inner().text;
        assert_eq!(told, format!("{local} {:?}", bob.certificate));
        let mut tail = second.tail(text("")).await.unwrap().into_inner();
        assert_eq!(tail.message().await.unwrap(), Some(text("1")));
    });
}
