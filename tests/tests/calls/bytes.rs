//! Calls in bytes, by callers that learn the methods at run time.

use bytes::Bytes;
use frpc::{
    Body, Call, Channel, Code, Head, Method, MethodKind, Status, Streaming,
    codec::{self, Format},
    prost::Message,
};
use support::{
    calls::{Words, words},
    in_virtual_time,
};

use crate::transport::Transport;

crate::transport::over_every_transport! { extended Extended: calls_of_every_kind_find_their_methods_by_path metadata_arrives an_unknown_method_is_unimplemented }
crate::transport::over_every_transport! { grpc Grpc: calls_of_every_kind_find_their_methods_by_path metadata_arrives an_unknown_method_is_unimplemented }
crate::transport::over_every_transport! { connect Connect: calls_of_every_kind_find_their_methods_by_path metadata_arrives an_unknown_method_is_unimplemented }
crate::transport::over_every_transport! { nats Nats: calls_of_every_kind_find_their_methods_by_path metadata_arrives an_unknown_method_is_unimplemented }

fn calls_of_every_kind_find_their_methods_by_path(transport: Transport) {
    in_virtual_time(async {
        let (_, served, _) = transport.serve_and_connect().await;
        let channel = &served.channel;
        assert_eq!(channel.call_format().await.unwrap(), Format::Proto);
        assert_eq!(said(channel, SAY, &["hi"]).await.unwrap(), ["hi"]);
        assert_eq!(said(channel, COUNT, &["a, b, c"]).await.unwrap(), ["a", "b", "c"]);
        assert_eq!(said(channel, GATHER, &["a", "b"]).await.unwrap(), ["a b"]);
        assert_eq!(said(channel, CHAT, &["a", "b"]).await.unwrap(), ["re: a", "re: b"]);
        let status = said(channel, SAY, &["fail 5 no such thing"]).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no such thing"));
        served.assert_unharmed().await;
    });
}

fn metadata_arrives(transport: Transport) {
    in_virtual_time(async {
        let (_, served, _) = transport.serve_and_connect().await;
        let mut call = call(SAY, Format::Proto, &["hi"]);
        call.head_mut().metadata_mut().insert("x-name", "value").unwrap();
        let answer = served.channel.call(call).await.unwrap();
        assert_eq!(texts(answer.into_body()).await.unwrap(), ["hi"]);
        served.assert_unharmed().await;
    });
}

fn an_unknown_method_is_unimplemented(transport: Transport) {
    const NONE: [Method; 2] = [Method::unary("calls.Test", "Sing", 0), Method::bidirectional("calls.Test", "Dance", 0)];
    in_virtual_time(async {
        let (_, served, _) = transport.serve_and_connect().await;
        for method in NONE {
            let status = said(&served.channel, method, &["hi"]).await.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{status}");
        }
    });
}

#[test]
fn plain_peers_support_only_polyglot_by_operation() {
    in_virtual_time(async {
        let (_, served, _) = Transport::Frisbee.serve_and_connect().await;
        let channel = &served.channel;
        assert_eq!(channel.call_format().await.unwrap(), Format::Polyglot);
        let method: &'static Method = Box::leak(Box::new(Method::unary("calls.Test", "Say", 10)));
        let request = Body::from(codec::encode(&words("hi")));
        let answer = channel.call(Call::new(method, Format::Polyglot, Head::default(), request)).await.unwrap();
        let Body::One(content) = answer.into_body() else { panic!("one message") };
        assert_eq!(content.into_bytes(), codec::encode(&words("hi")));
        for method in [SAY, CHAT] {
            assert!(said(channel, method, &["hi"]).await.is_err());
        }
        served.assert_unharmed().await;
    });
}

/// Makes a protobuf call and returns the texts of its answer.
async fn said(channel: &Channel, method: Method, texts: &[&str]) -> Result<Vec<String>, Status> {
    let answer = channel.call(call(method, Format::Proto, texts)).await?;
    self::texts(answer.into_body()).await
}

fn call(method: Method, format: Format, texts: &[&str]) -> Call {
    let mut messages = texts.iter().map(|text| Bytes::from(words(*text).encode_to_vec()));
    let body = match method.kind {
        MethodKind::Unary | MethodKind::ServerStreaming => Body::from(messages.next().unwrap()),
        MethodKind::ClientStreaming | MethodKind::Bidirectional => {
            Body::Many(Streaming::from_iter(messages.collect::<Vec<_>>()))
        }
    };
    Call::new(Box::leak(Box::new(method)), format, Head::default(), body)
}

async fn texts(body: Body) -> Result<Vec<String>, Status> {
    let text = |content: Bytes| Words::decode(content).unwrap().text;
    match body {
        Body::One(content) => Ok(vec![text(content.into_bytes())]),
        Body::Many(mut contents) => {
            let mut texts = Vec::new();
            while let Some(content) = contents.message().await? {
                texts.push(text(content));
            }
            Ok(texts)
        }
        _ => panic!("there is no other body"),
    }
}

// Methods without types and operations. Callers may know only the path of a method.
const SAY: Method = Method::unary("calls.Test", "Say", 0);
const COUNT: Method = Method::server_streaming("calls.Test", "Count", 0);
const GATHER: Method = Method::client_streaming("calls.Test", "Gather", 0);
const CHAT: Method = Method::bidirectional("calls.Test", "Chat", 0);
