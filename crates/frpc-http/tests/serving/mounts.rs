//! Other protocols mounted at paths.

use std::time::Duration;

use bytes::Bytes;
use frpc::Server;
use frpc_http::{Cors, Http, HttpSettings, Mount, MountContext, StaticFile};
use futures_util::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use support::{calls::TestService, in_virtual_time};

use crate::{
    h2_caller::server,
    http1::{ask, post, split},
};

/// A mount that describes each request and its caller.
struct Parrot;

impl Mount for Parrot {
    fn respond<'a>(&'a self, visit: MountContext, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        async move {
            assert!(visit.endpoint.find("calls.Test/Say").is_some() && visit.peer.is_some() && visit.drain.is_some());
            assert_eq!(visit.time.is_some(), visit.head().deadline().is_some());
            let color = visit.head().metadata().get("color").unwrap_or_default().to_owned();
            let text = String::from_utf8_lossy(request.body()).into_owned();
            Response::new(format!("{} {text:?} {color:?} {:?}", request.method(), visit.time).into())
        }
        .boxed()
    }
}

fn serve(http: Http) -> Server {
    server(&TestService::default(), http.mount("/old", Parrot).mount("rpc", Parrot)).without_listener().unwrap()
}

async fn answer(server: &Server, request: impl AsRef<[u8]>) -> (String, String) {
    let (head, body) = split(&ask(server, request).await);
    (head[0].clone(), String::from_utf8(body).unwrap())
}

#[test]
fn a_mount_handles_exactly_the_requests_to_its_path() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let (line, body) = answer(&server, post("/rpc", "application/json", b"hi")).await;
        assert_eq!((&*line, &*body), ("HTTP/1.1 200 OK", "POST \"hi\" \"\" None"));
        let get =
            "GET /rpc?a=b HTTP/1.1\r\nhost: a\r\ncolor: red\r\nconnect-timeout-ms: 50\r\nconnection: close\r\n\r\n";
        assert_eq!(answer(&server, get).await.1, format!("GET \"\" \"red\" {:?}", Some(Duration::from_millis(50))));
        assert_eq!(answer(&server, post("/old", "application/grpc", b"hi")).await.1, "POST \"hi\" \"\" None");
        assert_eq!(answer(&server, post("/rpc/", "text/plain", b"hi")).await.0, "HTTP/1.1 404 Not Found");
        assert_eq!(answer(&server, post("/calls.Test/Say", "application/json", b"{}")).await.1, "{}");
    });
}

#[test]
fn bodies_beyond_the_limits_reach_no_mount() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings {
            message_len_max: 4,
            body_time_max: Duration::from_secs(1),
            ..HttpSettings::default()
        }));
        assert_eq!(answer(&server, post("/rpc", "", b"four")).await.0, "HTTP/1.1 200 OK");
        assert_eq!(answer(&server, post("/rpc", "", b"fives")).await.0, "HTTP/1.1 413 Payload Too Large");
        let packed =
            "POST /rpc HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-encoding: br\r\nconnection: close\r\n\r\nx";
        assert_eq!(answer(&server, packed).await.0, "HTTP/1.1 415 Unsupported Media Type");
        let late = "POST /rpc HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nconnection: close\r\n\r\nx";
        assert_eq!(answer(&server, late).await.0, "HTTP/1.1 408 Request Timeout");
        let binary = "GET /rpc HTTP/1.1\r\nhost: a\r\nx-bin: !\r\nconnection: close\r\n\r\n";
        assert_eq!(answer(&server, binary).await.0, "HTTP/1.1 400 Bad Request");
    });
}

#[test]
fn scripts_of_allowed_origins_reach_a_mount() {
    in_virtual_time(async {
        let server = serve(Http::new().cors(Cors::origins(["https://shop.example.com"])));
        let get = "GET /rpc HTTP/1.1\r\nhost: a\r\norigin: https://shop.example.com\r\nconnection: close\r\n\r\n";
        let (head, _) = split(&ask(&server, get).await);
        assert!(head.contains(&"Access-Control-Allow-Origin: https://shop.example.com".to_owned()), "{head:?}");
    });
}

#[test]
fn only_a_port_with_mounts_capitalizes_headers() {
    in_virtual_time(async {
        for (port, expected) in [
            (serve(Http::new()), "Content-Length: 2"),
            (server(&TestService::default(), Http::new()).without_listener().unwrap(), "content-length: 2"),
        ] {
            let (head, _) = split(&ask(&port, post("/calls.Test/Say", "application/json", b"{}")).await);
            assert!(head.contains(&expected.to_owned()), "{head:?}");
        }
    });
}

#[test]
fn a_file_is_served_to_get_and_head() {
    in_virtual_time(async {
        let file = StaticFile::new("text/html; charset=utf-8", "<p>hi</p>");
        let server = serve(Http::new().mount("/", file));
        let request = |method: &str| format!("{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let (head, body) = split(&ask(&server, request("GET")).await);
        assert_eq!((&*head[0], &body[..]), ("HTTP/1.1 200 OK", &b"<p>hi</p>"[..]));
        let has = |line: &str| head.iter().any(|found| found.eq_ignore_ascii_case(line));
        assert!(has("content-type: text/html; charset=utf-8"), "{head:?}");
        let (line, body) = answer(&server, request("HEAD")).await;
        assert_eq!((&*line, &*body), ("HTTP/1.1 200 OK", ""));
        let (head, _) = split(&ask(&server, request("DELETE")).await);
        assert_eq!(head[0], "HTTP/1.1 405 Method Not Allowed");
        assert!(head.iter().any(|found| found.eq_ignore_ascii_case("allow: GET, HEAD")), "{head:?}");
    });
}
