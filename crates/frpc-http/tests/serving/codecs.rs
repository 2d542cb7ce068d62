//! Methods with a custom codec: their content types, and the refusal of all others.

use std::error::Error;

use bytes::Bytes;
use frpc::{
    Answer, Call, Channel, Code, MessageType, Method, Request, Response, Server, ServerBuilder, Service, Status,
    Streaming, codec::Codec,
};
use frpc_http::{Client, Http};
use futures_util::TryStreamExt;
use support::{in_real_time, in_virtual_time};

use crate::{
    h2_caller::{frame, frames},
    http1::{ask, post, split},
};

/// A codec for numbers in decimal digits, registered under two names.
struct Digits<const JSON: bool>;

impl<const JSON: bool> Codec<u64> for Digits<JSON> {
    const NAME: &'static str = if JSON { "json" } else { "Digits" };

    fn encode(message: &u64, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        if *message == 13 {
            return Err("13 brings bad luck".into());
        }
        out.extend_from_slice(message.to_string().as_bytes());
        Ok(())
    }

    fn decode(content: &Bytes) -> Result<u64, Box<dyn Error + Send + Sync>> {
        Ok(str::from_utf8(content)?.parse()?)
    }
}

/// Adds one to a number, or to each number of a stream.
struct Counter<const JSON: bool>;

const fn methods<const JSON: bool>() -> [Method; 2] {
    let service = if JSON { "t.Json" } else { "t.Digits" };
    let number = const { &MessageType::of_codec("u64", <Digits<JSON> as Codec<u64>>::NAME) };
    [
        Method::unary(service, "Next", 10).with_types(number, number).without_side_effects(),
        Method::bidirectional(service, "Nexts", 11).with_types(number, number),
    ]
}

impl<const JSON: bool> Service for Counter<JSON> {
    const NAME: &'static str = Self::METHODS[0].service;
    const METHODS: &'static [Method] = &const { methods::<JSON>() };

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        let call = call.with_codec::<Digits<JSON>>();
        match method {
            0 => call.unary(async |request: Request<u64>| Ok(Response::new(request.into_inner() + 1))).await,
            _ => {
                let nexts = |number| number + 1;
                call.bidirectional(async |request: Request<Streaming<u64>>| {
                    Ok(Streaming::new(request.into_inner().map_ok(nexts)).into())
                })
                .await
            }
        }
    }
}

fn serve() -> Server {
    builder().without_listener().unwrap()
}

fn builder() -> ServerBuilder<(((), Counter<true>), Counter<false>)> {
    Server::builder().wire(Http::new()).add_service(Counter::<true>).add_service(Counter::<false>)
}

/// Returns the content type of the response to a call, its message, and its end.
async fn call(server: &Server, service: &str, content_type: &str, text: &str) -> (String, String, String) {
    let path = format!("/t.{service}/Next");
    let (head, body) = split(&ask(server, post(&path, content_type, &frame(0, text.as_bytes()))).await);
    let header = |name: &str| {
        let value = head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_default().to_owned()
    };
    let messages = if head[0].ends_with("200 OK") { frames(&body) } else { Vec::new() };
    let message = messages.iter().find(|(flags, _)| *flags == 0).map(|(_, content)| content.clone());
    let end = messages.iter().find(|(flags, _)| *flags == 0x80).map(|(_, content)| content.clone());
    let end = end.map_or_else(
        || format!("{} {} {}", &head[0][9..12], header("grpc-status"), header("grpc-message")),
        |end| String::from_utf8(end.to_vec()).unwrap(),
    );
    (header("content-type"), String::from_utf8(message.unwrap_or_default().to_vec()).unwrap(), end.trim().to_owned())
}

#[test]
fn grpc_content_types_may_name_the_codec() {
    in_virtual_time(async {
        let server = serve();
        for (service, name) in [("Json", "json"), ("Digits", "Digits"), ("Digits", "digits")] {
            let named = format!("application/grpc-web+{name}");
            for content_type in ["application/grpc-web", &*named] {
                let (answered, message, end) = call(&server, service, content_type, "41").await;
                assert!(answered.eq_ignore_ascii_case(content_type), "{answered}");
                assert_eq!((&*message, &*end), ("42", "grpc-status: 0"), "{service} {content_type}");
            }
        }
    });
}

#[test]
fn other_content_types_are_unimplemented() {
    in_virtual_time(async {
        let server = serve();
        let refused = |service: &str, codec: &str, format: &str| {
            format!("200 12 t.{service}/Next: the messages are written by the codec `{codec}`, not in {format}")
        };
        let end = |content_type: &'static str, service: &'static str| {
            let server = &server;
            async move { call(server, service, content_type, "41").await.2 }
        };
        assert_eq!(end("application/grpc-web+proto", "Json").await, refused("Json", "json", "protobuf"));
        assert_eq!(end("application/grpc-web+proto", "Digits").await, refused("Digits", "Digits", "protobuf"));
        assert_eq!(end("application/grpc-web+json", "Digits").await, refused("Digits", "Digits", "JSON"));
        assert_eq!(end("application/grpc-web+cbor", "Digits").await, "415", "no method has this codec");

        for (path, content_type, body, status, text) in [
            ("/t.Json/Next", "application/json", "41", "200 OK", "42"),
            ("/twirp/t.Json/Next", "application/json", "41", "200 OK", "42"),
            ("/t.Json/Next", "application/proto", "41", "501 Not Implemented", "not in protobuf"),
            ("/twirp/t.Json/Next", "application/protobuf", "41", "501 Not Implemented", "not in protobuf"),
            ("/t.Digits/Next", "application/json", "41", "501 Not Implemented", "not in JSON"),
            ("/t.Digits/Next", "application/proto", "41", "501 Not Implemented", "not in protobuf"),
            ("/t.Digits/Nexts", "application/connect+proto", "", "200 OK", "not in protobuf"),
            ("/t.Json/Next", "application/json", "x", "400 Bad Request", "the codec `json` refuses it: invalid digit"),
        ] {
            let (head, answer) = split(&ask(&server, post(path, content_type, body.as_bytes())).await);
            let answer = String::from_utf8_lossy(&answer);
            assert!(head[0].ends_with(status) && answer.contains(text), "{path} {content_type}: {head:?} {answer}");
        }
        let get = "GET /t.Digits/Next?encoding=proto&message=41 HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        let (head, answer) = split(&ask(&server, get).await);
        assert_eq!(head[0], "HTTP/1.1 501 Not Implemented", "{}", String::from_utf8_lossy(&answer));
    });
}

#[test]
fn clients_name_the_codec_and_attribute_its_errors() {
    static JSON: [Method; 2] = methods::<true>();
    static DIGITS: [Method; 2] = methods::<false>();
    in_real_time(async {
        let server = builder().bind("tcp://127.0.0.1:0").await.unwrap();
        let connect = async |scheme: &str| {
            let address = server.local_addr().to_string().replace("tcp", scheme);
            Channel::builder().transport(Client::new()).connect(&*address).await.unwrap()
        };
        for scheme in ["tcp", "grpc", "grpc-web+http", "http", "twirp+http"] {
            let channel = connect(scheme).await;
            let json = async |number| channel.with_codec::<Digits<true>>().unary::<u64, u64>(&JSON[0], number).await;
            assert_eq!(json(41_u64).await.unwrap().into_inner(), 42, "{scheme}");
            let status = json(13).await.unwrap_err();
            assert_eq!(status.code(), Code::Internal);
            assert_eq!(
                status.message(),
                "the request of t.Json/Next cannot be sent: the codec `json` refuses it: 13 brings bad luck"
            );
            let status = json(12).await.unwrap_err();
            assert_eq!(status.code(), Code::Internal);
            assert!(status.message().starts_with("the response of t.Json/Next cannot be sent"), "{status}");

            let digits = channel.with_codec::<Digits<false>>().unary::<u64, u64>(&DIGITS[0], 41_u64).await;
            if ["tcp", "grpc", "grpc-web+http"].contains(&scheme) {
                assert_eq!(digits.unwrap().into_inner(), 42, "{scheme}");
            } else {
                let status = digits.unwrap_err();
                assert_eq!(status.code(), Code::Unimplemented, "{scheme}");
                assert!(status.message().starts_with("t.Digits/Next was not called"), "{status}");
            }
            if ["tcp", "grpc"].contains(&scheme) {
                let numbers = Streaming::from_iter([1_u64, 2, 12, 4]);
                let nexts = channel.with_codec::<Digits<false>>().bidirectional::<u64, u64>(&DIGITS[1], numbers).await;
                let mut nexts = nexts.unwrap().into_inner();
                assert_eq!(nexts.message().await.unwrap(), Some(2));
                assert_eq!(nexts.message().await.unwrap(), Some(3));
                let status = nexts.message().await.unwrap_err();
                assert!(status.message().starts_with("the response of t.Digits/Nexts cannot be sent"), "{status}");
            }
        }
    });
}
