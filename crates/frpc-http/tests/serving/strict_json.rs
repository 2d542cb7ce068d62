//! Unknown fields and enum names in JSON.

use frpc::Server;
use frpc_http::{Http, HttpSettings};
use support::{
    ThreadLog, in_virtual_time,
    paint::{Echo, PainterServer},
};
use tracing::Level;

use crate::{
    h2_caller::{frame, frames},
    http1::{ask, post, split},
};

/// Requests with an unknown name, the message read by a lenient server, and the error of a strict one.
const UNKNOWN: [(&str, &str, &str); 5] = [
    (r#"{"name":"a","nmae":null}"#, r#"{"name":"a"}"#, "paint.Wall.nmae: this side knows no such field"),
    (
        r#"{"parts":[{},{"extra":{"deep":[1]}}]}"#,
        r#"{"parts":[{},{}]}"#,
        "paint.Wall.parts[1].extra: this side knows no such field",
    ),
    (r#"{"color":"COLOR_ODD"}"#, "{}", r#"paint.Wall.color: this side knows no enum value \"COLOR_ODD\""#),
    (
        r#"{"parts":[{"color":"COLOR_ODD"}]}"#,
        r#"{"parts":[{}]}"#,
        r#"paint.Wall.parts[0].color: this side knows no enum value \"COLOR_ODD\""#,
    ),
    (
        r#"{"doors":{"north":"COLOR_ODD"}}"#,
        "{}",
        r#"paint.Wall.doors[\"north\"]: this side knows no enum value \"COLOR_ODD\""#,
    ),
];

/// A request without unknown names. Every number of an enum is valid.
const KNOWN: &str = r#"{"name":"a","color":7,"parts":[{"color":"COLOR_RED"}],"doors":{"north":1}}"#;

fn serve(http: Http) -> Server {
    Server::builder().wire(http).add_service(PainterServer::new(Echo)).without_listener().unwrap()
}

async fn say(server: &Server, request: Vec<u8>) -> (String, String) {
    let (head, body) = split(&ask(server, request).await);
    // Frames begin with a length, which is not text.
    (head[0].clone(), String::from_utf8_lossy(&body).into_owned())
}

fn connect(text: &str) -> Vec<u8> {
    post("/paint.Painter/Paint", "application/json", text.as_bytes())
}

fn twirp(text: &str) -> Vec<u8> {
    post("/twirp/paint.Painter/Paint", "application/json", text.as_bytes())
}

fn connect_stream(texts: &[&str]) -> Vec<u8> {
    let frames: Vec<u8> = texts.iter().flat_map(|text| frame(0, text.as_bytes())).collect();
    post("/paint.Painter/PaintAll", "application/connect+json", &frames)
}

fn grpc_web(text: &str) -> Vec<u8> {
    post("/paint.Painter/Paint", "application/grpc-web+json", &frame(0, text.as_bytes()))
}

#[test]
fn strict_servers_reject_unknown_names_on_every_protocol() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings { strict_json: true, ..HttpSettings::default() }));
        for (request, _, why) in UNKNOWN {
            for (call, code) in [(connect(request), "invalid_argument"), (twirp(request), "malformed")] {
                let (status, body) = say(&server, call).await;
                assert_eq!(status, "HTTP/1.1 400 Bad Request", "{request}");
                assert!(body.contains(&format!(r#"{{"code":"{code}","#)), "{body}");
                assert!(body.contains(why) && body.contains("correct "), "{body}");
            }
            let (_, body) = say(&server, connect_stream(&["{}", request])).await;
            assert!(body.contains("invalid_argument") && body.contains(why), "{body}");
        }
        let get = "GET /paint.Painter/Paint?connect=v1&encoding=json&message=%7B%22x%22%3A1%7D HTTP/1.1\r\nhost: \
                   a\r\nconnection: close\r\n\r\n";
        let (status, body) = say(&server, get.into()).await;
        assert!(status.ends_with("400 Bad Request") && body.contains("paint.Wall.x: "), "{status} {body}");
        let (head, _) = split(&ask(&server, grpc_web(UNKNOWN[0].0)).await);
        assert!(head.contains(&"grpc-status: 3".to_owned()), "{head:?}");
        assert!(head.iter().any(|line| line.contains("paint.Wall.nmae: ")), "{head:?}");
        for call in [connect(KNOWN), twirp(KNOWN)] {
            assert_eq!(
                say(&server, call).await,
                ("HTTP/1.1 200 OK".to_owned(), KNOWN.replace("th\":1", "th\":\"COLOR_RED\""))
            );
        }
    });
}

#[test]
fn ignored_unknown_names_are_logged_once_per_method() {
    in_virtual_time(async {
        let log = ThreadLog::hear(Level::WARN);
        let server = serve(Http::new());
        say(&server, connect(KNOWN)).await;
        assert_eq!(log.take(), [""; 0]);
        for (request, read, _) in UNKNOWN {
            for call in [connect(request), twirp(request)] {
                assert_eq!(say(&server, call).await, ("HTTP/1.1 200 OK".to_owned(), read.to_owned()));
            }
        }
        let told = log.take();
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].starts_with("WARN ignored an unknown field or enum name in a JSON request"), "{told:#?}");
        assert!(
            told[0].contains("method=paint.Painter/Paint ") && told[0].contains("\"paint.Wall.nmae: "),
            "{told:#?}"
        );

        let escape = "{\"parts\":[{\"a\\nb\":1}]}";
        for _ in 0..2 {
            let (_, body) = split(&ask(&server, connect_stream(&["{}", escape])).await);
            assert_eq!(&frames(&body)[0].1[..], br#"{"parts":[{}]}"#);
        }
        let told = log.take();
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(
            told[0].contains("method=paint.Painter/PaintAll ") && told[0].contains(r"parts[0].a\nb: "),
            "{told:#?}"
        );
    });
}
