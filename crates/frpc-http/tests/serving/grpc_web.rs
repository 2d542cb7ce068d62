//! gRPC-Web, over HTTP/1.1 and HTTP/2.

use base64::{Engine, engine::general_purpose::STANDARD};
use frpc::Server;
use frpc_http::{Http, HttpSettings};
use http::{HeaderValue, StatusCode};
use support::{calls::TestService, in_virtual_time, settle};

use crate::{
    h2_caller::{H2Caller, frames, grpc_request, messages, server, text},
    http1::{self, Http1, post, split},
};

fn serve(http: Http) -> Server {
    server(&TestService::default(), http).without_listener().unwrap()
}

/// Describes the frames of a body.
fn told(body: &[u8]) -> Vec<String> {
    let frames = frames(body).into_iter();
    let told = frames.map(|(flags, content)| match flags {
        0 => text(&content),
        0x80 => String::from_utf8(content.to_vec()).unwrap().replace("\r\n", ";"),
        flags => format!("{flags:#x}"),
    });
    told.collect()
}

const CASES: [(&str, &[&str], &[&str]); 6] = [
    ("Say", &["hi"], &["hi", "grpc-status: 0;"]),
    ("Count", &["a, b"], &["a", "b", "grpc-status: 0;"]),
    ("Gather", &["a", "b"], &["a b", "grpc-status: 0;"]),
    ("Chat", &["a", "b"], &["re: a", "re: b", "grpc-status: 0;"]),
    ("Count", &["a, fail 9 no"], &["a", "grpc-status: 9;grpc-message: no;"]),
    ("Chat", &["a", "fail 9 no"], &["re: a", "grpc-status: 9;grpc-message: no;"]),
];

#[test]
fn trailers_are_a_frame_on_http1_and_http2() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for (method, texts, expected) in CASES {
            let path = format!("/calls.Test/{method}");
            let answer = http1::ask(&server, post(&path, "application/grpc-web+proto", &messages(texts))).await;
            let (head, body) = split(&answer);
            assert_eq!(head[0], "HTTP/1.1 200 OK");
            assert!(head.contains(&"content-type: application/grpc-web+proto".to_owned()), "{head:?}");
            assert_eq!(told(&body), expected);

            let mut caller = H2Caller::connect(&server).await;
            let mut request = grpc_request(method, &[]);
            request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc-web"));
            let reply = caller.ask(request, messages(texts)).await;
            assert_eq!(
                (told(&reply.body), reply.trailers),
                (expected.iter().map(|told| (*told).to_owned()).collect(), None)
            );
        }
    });
}

#[test]
fn bodies_may_be_base64_text_in_both_directions() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for (method, texts, expected) in CASES {
            // Each message is encoded separately, as browsers do.
            let body: String = texts.iter().map(|text| STANDARD.encode(messages(&[text]))).collect();
            let path = format!("/calls.Test/{method}");
            let request = post(&path, "application/grpc-web-text", body.as_bytes());
            let mut caller = Http1::connect(&server);
            let (front, back) = request.split_at(request.len() - 3);
            caller.say(front).await;
            settle().await;
            caller.say(back).await;
            let (head, body) = split(&caller.hear_all().await);
            assert!(head.contains(&"content-type: application/grpc-web-text".to_owned()), "{head:?}");
            let mut whole = Vec::new();
            for piece in body.chunk_by(|last, next| !(*last == b'=' && *next != b'=')) {
                STANDARD.decode_vec(piece, &mut whole).unwrap();
            }
            assert_eq!(told(&whole), expected);
        }
        let answer = http1::ask(&server, post("/calls.Test/Say", "application/grpc-web-text", b"AAA")).await;
        let (head, _) = split(&answer);
        assert!(head.contains(&"grpc-status: 3".to_owned()), "{head:?}");
        let trailing = STANDARD.encode(messages(&["hi"])) + "AA";
        let answer =
            http1::ask(&server, post("/calls.Test/Say", "application/grpc-web-text", trailing.as_bytes())).await;
        let (head, _) = split(&answer);
        assert!(head.contains(&"grpc-status: 3".to_owned()), "{head:?}");
        let answer = http1::ask(&server, post("/calls.Test/Say", "application/grpc-web-text", b"no text")).await;
        let (head, _) = split(&answer);
        assert!(head.contains(&"grpc-message: the body is not valid base64".to_owned()), "{head:?}");
    });
}

#[test]
fn early_failures_have_the_status_in_the_head() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let answer =
            http1::ask(&server, post("/calls.Test/Say", "application/grpc-web", &messages(&["fail 5 no"]))).await;
        let (head, body) = split(&answer);
        assert!(
            head.contains(&"grpc-status: 5".to_owned()) && head.contains(&"grpc-message: no".to_owned()),
            "{head:?}"
        );
        assert!(body.is_empty() && head.contains(&"content-length: 0".to_owned()), "{head:?}");
    });
}

#[test]
fn grpc_web_can_be_disabled_separately() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings { grpc_web: false, ..HttpSettings::default() }));
        let answer = http1::ask(&server, post("/calls.Test/Say", "application/grpc-web", &messages(&["hi"]))).await;
        assert_eq!(split(&answer).0[0], "HTTP/1.1 415 Unsupported Media Type");
        let mut caller = H2Caller::connect(&server).await;
        assert_eq!(caller.call("Say", &[], &["hi"]).await.status, StatusCode::OK);
    });
}

#[test]
fn grpc_requires_http2() {
    in_virtual_time(async {
        let answer =
            http1::ask(&serve(Http::new()), post("/calls.Test/Say", "application/grpc", &messages(&["hi"]))).await;
        let (head, body) = split(&answer);
        assert_eq!(head[0], "HTTP/1.1 505 HTTP Version Not Supported");
        assert_eq!(body, b"gRPC requires HTTP/2; over HTTP/1.1, use gRPC-Web\n");
    });
}

#[test]
fn whitespace_at_the_ends_of_status_messages_is_kept() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        for text in ["fail 5   a b  ", "a, fail 5   a b  "] {
            let method = if text.starts_with("fail") { "Say" } else { "Count" };
            let request = post(&format!("/calls.Test/{method}"), "application/grpc-web", &messages(&[text]));
            let heard = String::from_utf8_lossy(&http1::ask(&server, request).await).into_owned();
            assert!(heard.contains("grpc-message: %20%20a b%20%20\r\n"), "{heard}");
        }
    });
}
