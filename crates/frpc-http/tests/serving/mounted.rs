//! Services inside an axum application, on its port.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::Request, middleware::map_request, routing};
use frpc::{Address, Services, WirePeer};
use frpc_http::{Http, HttpService, HttpSettings};
use support::in_real_time;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::ServiceBuilder;
use tower_http::{cors::CorsLayer, set_header::SetResponseHeaderLayer, trace::TraceLayer};

use crate::{
    h2_caller::{H2Caller, frame, frames},
    http1::{post, split},
    probe::Probe,
};

fn service() -> HttpService {
    Http::new()
        .settings(HttpSettings { page: true, ..HttpSettings::default() })
        .into_service(Services::new().add_service(Probe))
        .unwrap()
}

/// Serves an application, and returns its address.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    addr
}

async fn ask(addr: SocketAddr, request: &[u8]) -> (String, Vec<u8>) {
    let mut socket = TcpStream::connect(addr).await.unwrap();
    socket.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    let (head, body) = split(&answer);
    (head[0].clone(), body)
}

#[test]
fn an_application_serves_calls_next_to_its_own_routes() {
    in_real_time(async {
        let addr =
            serve(Router::new().route("/health", routing::get(async || "fine")).fallback_service(service())).await;
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").into_bytes();
        assert_eq!(ask(addr, &get("/health")).await, ("HTTP/1.1 200 OK".to_owned(), b"fine".to_vec()));
        let ok = |body: &[u8]| ("HTTP/1.1 200 OK".to_owned(), body.to_vec());
        assert_eq!(ask(addr, &post("/probe.Probe/Say", "application/json", b"format")).await, ok(b"JSON"));
        assert_eq!(ask(addr, &post("/twirp/probe.Probe/Say", "application/protobuf", b"hi")).await, ok(b"hi"));
        let stream = post("/probe.Probe/Count", "application/connect+proto", &frame(0, b"a b"));
        let (_, body) = ask(addr, &stream).await;
        assert_eq!(frames(&body).len(), 3);
        let (status, page) = ask(addr, &get("/")).await;
        assert!(status == "HTTP/1.1 200 OK" && page.starts_with(b"<!doctype html>"));
        let (status, _) = ask(addr, &get("/nothing")).await;
        assert_eq!(status, "HTTP/1.1 404 Not Found");

        let mut caller = H2Caller::over(TcpStream::connect(addr).await.unwrap()).await;
        let request = http::Request::post("http://here/probe.Probe/Say").header("content-type", "application/grpc");
        let reply = caller.ask(request.body(()).unwrap(), frame(0, b"hi")).await;
        assert_eq!(frames(&reply.body), [(0, "hi".into())]);
        assert_eq!(reply.end("grpc-status"), Some("0"));
    });
}

#[test]
fn services_can_be_mounted_under_a_path() {
    in_real_time(async {
        let addr = serve(Router::new().nest_service("/api", service())).await;
        let (status, body) = ask(addr, &post("/api/probe.Probe/Say", "application/proto", b"hi")).await;
        assert_eq!((status.as_str(), &body[..]), ("HTTP/1.1 200 OK", &b"hi"[..]));
    });
}

#[test]
fn handlers_learn_the_peer_from_the_application() {
    in_real_time(async {
        let tell = map_request(async |mut request: Request| {
            let address: SocketAddr = "192.0.2.7:5".parse().unwrap();
            request.extensions_mut().insert(WirePeer::at(Address::from(address)));
            request
        });
        for (app, expected) in [
            (Router::new().fallback_service(service()).layer(tell), r#"Some("tcp://192.0.2.7:5")"#),
            (Router::new().fallback_service(service()), "None"),
        ] {
            let addr = serve(app).await;
            let (_, body) = ask(addr, &post("/probe.Probe/Say", "application/proto", b"peer")).await;
            assert_eq!(str::from_utf8(&body).unwrap(), expected);
        }
    });
}

#[test]
fn http_layers_wrap_calls_of_every_protocol() {
    in_real_time(async {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let seen = paths.clone();
        let trace = TraceLayer::new_for_grpc().on_request(move |request: &Request, _: &tracing::Span| {
            seen.lock().unwrap().push(request.uri().path().to_owned());
        });
        let name = http::HeaderValue::from_static("greeter");
        let calls = ServiceBuilder::new()
            .layer(trace)
            .layer(SetResponseHeaderLayer::overriding(http::header::SERVER, name))
            .service(service());
        let app = Router::new().route("/health", routing::get(async || "fine")).fallback_service(calls);
        let addr = serve(app.layer(CorsLayer::permissive())).await;

        let mut caller = H2Caller::over(TcpStream::connect(addr).await.unwrap()).await;
        for (path, content_type, body) in [
            ("/probe.Probe/Say", "application/grpc", frame(0, b"hi")),
            ("/probe.Probe/Count", "application/grpc", frame(0, b"a b")),
            ("/probe.Probe/Say", "application/proto", b"hi".to_vec()),
            ("/twirp/probe.Probe/Say", "application/protobuf", b"hi".to_vec()),
        ] {
            let request = http::Request::post(format!("http://here{path}")).header("content-type", content_type);
            let reply = caller.ask(request.body(()).unwrap(), body).await;
            assert_eq!(reply.headers["server"], "greeter", "{path}");
            assert_eq!(reply.headers["access-control-allow-origin"], "*", "{path}");
            if content_type == "application/grpc" {
                assert_eq!(reply.end("grpc-status"), Some("0"), "{path}");
            }
        }
        let expected = ["/probe.Probe/Say", "/probe.Probe/Count", "/probe.Probe/Say", "/twirp/probe.Probe/Say"];
        assert_eq!(*paths.lock().unwrap(), expected);
    });
}
