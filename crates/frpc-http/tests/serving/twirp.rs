//! Twirp according to version 7 of its specification.

use frpc::Server;
use frpc_http::{Http, HttpSettings};
use support::{calls::TestService, in_virtual_time};

use crate::{
    h2_caller,
    http1::{ask, post, split},
    probe::Probe,
};

fn serve(http: Http) -> Server {
    Server::builder().wire(http).add_service(Probe).without_listener().unwrap()
}

async fn say(server: &Server, request: &[u8]) -> (Vec<String>, String) {
    let (head, body) = split(&ask(server, request).await);
    (head, String::from_utf8(body).unwrap())
}

fn call(text: &str) -> Vec<u8> {
    post("/twirp/probe.Probe/Say", "application/protobuf", text.as_bytes())
}

#[test]
fn a_call_is_a_post_in_json_or_protobuf() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for (content_type, format) in [("application/protobuf", "protobuf"), ("application/json", "JSON")] {
            let (head, body) = say(&server, &post("/twirp/probe.Probe/Say", content_type, b"format")).await;
            assert_eq!((head[0].as_str(), body.as_str()), ("HTTP/1.1 200 OK", format));
            assert!(head.contains(&format!("content-type: {content_type}")), "{head:?}");
            assert!(head.contains(&"head: 7".to_owned()) && head.contains(&"tail: 7".to_owned()), "{head:?}");
        }
    });
}

#[test]
fn an_error_has_the_metadata_of_its_status() {
    in_virtual_time(async {
        let (head, body) = say(&serve(Http::new()), &call("fail")).await;
        assert_eq!(head[0], "HTTP/1.1 404 Not Found");
        assert!(head.contains(&"content-type: application/json".to_owned()), "{head:?}");
        assert_eq!(body, r#"{"code":"not_found","msg":"no \"such\" word","meta":{"why":"7","why-bin":"/wA"}}"#);
    });
}

#[test]
fn invalid_requests_have_the_code_bad_route() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for (request, message, route) in [
            (
                post("/twirp/probe.Probe/Sing", "application/json", b""),
                "no handler for path /twirp/probe.Probe/Sing",
                "POST /twirp/probe.Probe/Sing",
            ),
            (
                post("/twirp/probe.Probe/Say", "application/proto", b""),
                r#"unexpected Content-Type \"application/proto\": expected application/protobuf or application/json"#,
                "POST /twirp/probe.Probe/Say",
            ),
            (
                b"GET /twirp/probe.Probe/Say HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".to_vec(),
                "unsupported HTTP method GET: Twirp calls must use POST",
                "GET /twirp/probe.Probe/Say",
            ),
        ] {
            let (head, body) = say(&server, &request).await;
            assert_eq!(head[0], "HTTP/1.1 404 Not Found");
            let meta = format!(r#""meta":{{"twirp_invalid_route":"{route}"}}"#);
            assert_eq!(body, format!(r#"{{"code":"bad_route","msg":"{message}",{meta}}}"#));
        }
        let long = "a".repeat(10_000);
        for request in [
            post(&format!("/twirp/probe.Probe/{long}"), "application/json", b"{}"),
            post("/twirp/probe.Probe/Say", &long, b""),
        ] {
            let (head, body) = say(&server, &request).await;
            assert!(head[0].starts_with("HTTP/1.1 40") && body.len() < 700, "{head:?} {body}");
        }
        let (head, body) = say(&server, &post("/twirp/probe.Probe/Count", "application/json", b"{}")).await;
        assert_eq!(head[0], "HTTP/1.1 501 Not Implemented");
        assert_eq!(body, r#"{"code":"unimplemented","msg":"the method has streams, which Twirp does not support"}"#);
    });
}

#[test]
fn an_unreadable_message_is_malformed() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = h2_caller::server(&service, Http::new()).without_listener().unwrap();
        let (head, body) = say(&server, &post("/twirp/calls.Test/Say", "application/protobuf", b"\xff")).await;
        assert_eq!(head[0], "HTTP/1.1 400 Bad Request");
        assert!(body.starts_with(r#"{"code":"malformed","#), "{body}");
        // A handler returns the same code.
        let words = b"\x0a\x09fail 3 no";
        let (_, body) = say(&server, &post("/twirp/calls.Test/Say", "application/protobuf", words)).await;
        assert_eq!(body, r#"{"code":"invalid_argument","msg":"no"}"#);
    });
}

#[test]
fn the_path_prefix_is_configurable() {
    in_virtual_time(async {
        let server =
            serve(Http::new().settings(HttpSettings { twirp_prefix: "my/own/".to_owned(), ..HttpSettings::default() }));
        let (head, body) = say(&server, &post("/my/own/probe.Probe/Say", "application/protobuf", b"hi")).await;
        assert_eq!((head[0].as_str(), body.as_str()), ("HTTP/1.1 200 OK", "hi"));
        assert_eq!(say(&server, &call("hi")).await.0[0], "HTTP/1.1 404 Not Found");

        let bare = serve(Http::new().settings(HttpSettings { twirp_prefix: String::new(), ..HttpSettings::default() }));
        let (head, body) = say(&bare, &post("/probe.Probe/Say", "application/protobuf", b"fail")).await;
        assert!(head[0] == "HTTP/1.1 404 Not Found" && body.contains(r#""msg":"#), "{body}");
        let (_, body) = say(&bare, &post("/probe.Probe/Say", "application/json", b"fail")).await;
        assert!(body.contains(r#""message":"#), "JSON is of Connect there: {body}");
        let alone = serve(Http::new().settings(HttpSettings {
            twirp_prefix: String::new(),
            connect: false,
            ..HttpSettings::default()
        }));
        let (_, body) = say(&alone, &post("/probe.Probe/Say", "application/json", b"fail")).await;
        assert!(body.contains(r#""msg":"#), "{body}");

        let off = serve(Http::new().settings(HttpSettings { twirp: false, ..HttpSettings::default() }));
        assert_eq!(say(&off, &call("hi")).await.0[0], "HTTP/1.1 404 Not Found");
    });
}
