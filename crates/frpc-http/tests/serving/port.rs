//! One port for frisbee and HTTP, with and without TLS.

use frisbee::ServerLimits;
use std::sync::Arc;

use frisbee::proto::{Header, HeaderFormat};
use frpc::{
    Channel, ConnectRetry, Server,
    metrics::{MetricsSnapshot, TextFormat},
};
use frpc_http::Http;
use support::{
    Identity, SECOND,
    calls::{SAY, TestClient, TestService, ask, connect, encoded, peer_of},
    engines, in_real_time, in_virtual_time, localhost, settle,
    sockets::IDENTITY,
};
use tokio::{
    io::{AsyncReadExt, duplex},
    net::TcpStream,
    time::sleep,
};
use tokio_rustls::TlsConnector;

use crate::{
    h2_caller::{H2Caller, grpc_request, messages, server},
    http1::{self, Http1, post, split},
};

fn serve() -> Server {
    server(&TestService::default(), Http::new()).without_listener().unwrap()
}

#[test]
fn frisbee_is_recognized_for_any_split_of_the_bytes() {
    in_virtual_time(async {
        let server = serve();
        assert_eq!(ask(&connect(&server).await, "hi").await.unwrap(), "hi");
        for format in [HeaderFormat::Magic10, HeaderFormat::Plain8] {
            let content = encoded("hi");
            let mut packet = Vec::new();
            let len = u32::try_from(content.len()).unwrap();
            Header { id: 7, operation: SAY, len }.encode(format, &mut packet);
            packet.extend_from_slice(&content);
            for at in 0..packet.len() {
                let mut peer = peer_of(&server);
                peer.say(&packet[..at]).await;
                settle().await;
                peer.say(&packet[at..]).await;
                assert_eq!(peer.hear().await, "10 7: hi", "{format:?} split at {at}");
            }
        }
    });
}

#[test]
fn http_is_recognized_for_any_split_of_the_first_bytes() {
    in_virtual_time(async {
        let server = serve();
        let request = post("/calls.Test/Say", "application/grpc-web", &messages(&["hi"]));
        for at in 0..64 {
            let mut caller = Http1::connect(&server);
            caller.say(&request[..at]).await;
            settle().await;
            caller.say(&request[at..]).await;
            assert_eq!(split(&caller.hear_all().await).0[0], "HTTP/1.1 200 OK", "split at {at}");
        }
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        for at in 0..preface.len() {
            let mut caller = Http1::connect(&server);
            caller.say(&preface[..at]).await;
            settle().await;
            caller.say(&preface[at..]).await;
            let mut settings = [0; 4];
            caller.0.read_exact(&mut settings).await.unwrap();
            assert_eq!((settings[0], settings[3]), (0, 4), "split at {at}");
        }
    });
}

#[test]
fn unknown_protocols_are_disconnected() {
    in_virtual_time(async {
        let server = serve();
        for stranger in
            [&b"\x16\x03\x01\0\x05"[..], b"Content-Length: 5\r\n", b"{\"jsonrpc\":\"2.0\"}", b"get / HTTP/1.1\r\n"]
        {
            assert_eq!(http1::ask(&server, stranger).await, b"", "{stranger:?}");
        }
    });
}

#[test]
fn http_connections_count_towards_the_limit() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new())
            .limits(ServerLimits { connections_max: 1, ..ServerLimits::default() })
            .without_listener()
            .unwrap();
        let mut caller = H2Caller::connect(&server).await;
        assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), ["hi"]);
        assert_eq!(server.metrics().connections, 1);
        let refused = http1::ask(&server, post("/calls.Test/Say", "application/grpc-web", &messages(&["hi"]))).await;
        assert!(refused.is_empty());
        drop(caller);
        settle().await;
        assert_eq!(server.metrics().connections, 0);
        let served = http1::ask(&server, post("/calls.Test/Say", "application/grpc-web", &messages(&["hi"]))).await;
        assert!(served.starts_with(b"HTTP/1.1 200"));
    });
}

#[test]
fn shutdown_closes_idle_http1_and_marks_the_last_response() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service, Http::new()).without_listener().unwrap();
        let mut busy = Http1::connect(&server);
        let request = post("/calls.Test/Say", "application/grpc-web", &messages(&["wait"]));
        let request = String::from_utf8(request).unwrap().replace("connection: close\r\n", "");
        busy.say(&request).await;
        let mut idle = Http1::connect(&server);
        idle.say(request.replace("wait", "okay")).await;
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(9 * SECOND));
        assert!(idle.hear_all().await.starts_with(b"HTTP/1.1 200"));
        service.gate.open(1);
        let (head, _) = split(&busy.hear_all().await);
        assert!(head.contains(&"connection: close".to_owned()), "{head:?}");
        assert_eq!(shutdown.await.unwrap(), 0, "no connection had to be cut");
    });
}

#[test]
fn old_connections_of_http_are_asked_to_leave() {
    in_virtual_time(async {
        let service = TestService::default();
        let limits = ServerLimits { connection_age_max: Some(100 * SECOND), ..ServerLimits::default() };
        let server = server(&service, Http::new()).limits(limits).without_listener().unwrap();
        let request = post("/calls.Test/Say", "application/grpc-web", &messages(&["wait"]));
        let request = String::from_utf8(request).unwrap().replace("connection: close\r\n", "");
        let mut idle = Http1::connect(&server);
        idle.say(request.replace("wait", "okay")).await;
        let mut busy = Http1::connect(&server);
        busy.say(&request).await;
        let mut caller = H2Caller::connect(&server).await;
        let mut open = caller.open(grpc_request("Say", &[])).await;
        open.sending.send_data(messages(&["wait"]), true).unwrap();
        sleep(89 * SECOND).await;
        assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), ["hi"]);
        sleep(22 * SECOND).await;
        assert_eq!(server.metrics().connections, 2, "the idle one has ended, and calls may end on the busy ones");
        assert!(idle.hear_all().await.starts_with(b"HTTP/1.1 200"));
        let refused =
            caller.0.clone().ready().await.map(|mut sender| sender.send_request(grpc_request("Say", &[]), true));
        assert!(refused.is_err() || refused.unwrap().is_err(), "HTTP/2 has received GOAWAY");
        service.gate.open(2);
        let (head, _) = split(&busy.hear_all().await);
        assert!(head.contains(&"connection: close".to_owned()), "{head:?}");
        assert_eq!(open.reply().await.texts(), ["wait"]);
        drop(caller);
        settle().await;
        assert_eq!(server.metrics().connections, 0);
        assert_eq!(ask(&connect(&server).await, "hi").await.unwrap(), "hi", "the server goes on");
    });
}

#[test]
fn tls_callers_select_http_by_alpn_or_first_bytes() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).tls(IDENTITY.server()).without_listener().unwrap();
        for offered in [&[&b"h2"[..]][..], &[b"h2", b"http/1.1"], &[]] {
            let (ours, theirs) = duplex(64 * 1024);
            server.attach(theirs);
            let mut tls = IDENTITY.client();
            tls.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
            let stream = TlsConnector::from(Arc::new(tls)).connect(localhost(), ours).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), offered.first().copied());
            let reply = H2Caller::over(stream).await.call("Say", &[], &["hi"]).await;
            assert_eq!(reply.texts(), ["hi"]);
        }
    });
}

#[test]
fn every_engine_serves_http_and_frisbee() {
    for engine in engines() {
        in_real_time(async {
            let server = server(&TestService::default(), Http::new()).engine(engine).bind("127.0.0.1:0").await.unwrap();
            let client = TestClient::connect(server.local_addr()).await.unwrap();
            for _ in 0..3 {
                let socket = TcpStream::connect(server.local_addr().socket_addr().unwrap()).await.unwrap();
                let mut caller = H2Caller::over(socket).await;
                assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), ["hi"], "{engine:?}");
                assert_eq!(caller.call("Count", &[], &["a, large 100000"]).await.texts()[0], "a", "{engine:?}");
                assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{engine:?}");
            }
        });
    }
}

#[test]
fn failed_tls_handshakes_of_channels_are_counted() {
    in_real_time(async {
        let server = server(&TestService::default(), Http::new()).tls(IDENTITY.server());
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        for scheme in ["tcp", "grpcs"] {
            // Two addresses: the first belongs to a server with a different certificate, and no server has the second.
            let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let address = server.local_addr().to_string().replace("tcp", scheme);
            let target = format!("{address},{scheme}://{closed}");
            let channel = Channel::builder().transport(frpc_http::transport()).tls(Identity::new().client());
            let once = ConnectRetry { attempts: 1, ..ConnectRetry::default() };
            channel.retry(once).connect(&*target).await.unwrap_err();
            let snapshot = MetricsSnapshot::take();
            let totals = &snapshot.connects[&*target];
            // One server may be tried again while the other attempt lasts.
            let tls_failed = totals.tls_failed;
            assert!(tls_failed > 0 && totals.failed > tls_failed && totals.connected == 0, "{scheme}: {totals:?}");
            let line = format!("frpc_client_tls_failures_total{{grpc_target=\"{target}\"}} {tls_failed}");
            assert!(snapshot.to_text(TextFormat::Prometheus).lines().any(|found| found == line), "{line}");
        }
    });
}
