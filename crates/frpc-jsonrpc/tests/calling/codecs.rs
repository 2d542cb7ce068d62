//! Methods with a custom codec. JSON-RPC supports codecs that write JSON.

use std::error::Error;

use bytes::Bytes;
use frpc::{
    Answer, Call, Code, MessageType, Method, Request, Response, Server, Service, Status,
    codec::{Codec, Format},
};
use frpc_jsonrpc::JsonRpc;
use serde::{Deserialize, Serialize};
use support::in_real_time;

use crate::channel;

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Number {
    value: u64,
}

/// A codec that writes JSON, registered under two names.
struct Serde<const IS_JSON: bool>;

impl<const IS_JSON: bool> Codec<Number> for Serde<IS_JSON> {
    const NAME: &'static str = if IS_JSON { "json" } else { "other" };

    fn encode(message: &Number, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_writer(out, message)?)
    }

    fn decode(content: &Bytes) -> Result<Number, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::from_slice(content)?)
    }
}

/// A service that adds one to a number.
struct Adder<const IS_JSON: bool>;

impl<const IS_JSON: bool> Service for Adder<IS_JSON> {
    const NAME: &'static str = if IS_JSON { "t.Json" } else { "t.Other" };
    const METHODS: &'static [Method] = &[Method::unary(Self::NAME, "Next", 10).with_types(
        const { &MessageType::of_codec("Number", <Serde<IS_JSON> as Codec<Number>>::NAME) },
        const { &MessageType::of_codec("Number", <Serde<IS_JSON> as Codec<Number>>::NAME) },
    )];

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        let add = async |request: Request<Number>| Ok(Response::new(Number { value: request.into_inner().value + 1 }));
        call.with_codec::<Serde<IS_JSON>>().unary(add).await
    }
}

#[test]
fn only_codecs_with_json_are_supported() {
    in_real_time(async {
        let server = Server::builder().add_service(Adder::<true>).add_service(Adder::<false>).wire(JsonRpc::new());
        let server = server.bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().to_string().replace("tcp", "jsonrpc+tcp");
        let channel = channel().connect(&*address).await.unwrap();

        let call = channel.with_codec::<Serde<true>>();
        let next = call.unary::<Number, Number>(&Adder::<true>::METHODS[0], Number { value: 41 }).await.unwrap();
        assert_eq!(next.into_inner(), Number { value: 42 });

        let call = channel.with_codec::<Serde<false>>();
        let status = call.unary::<Number, Number>(&Adder::<false>::METHODS[0], Number { value: 41 }).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(status.message(), "the messages are written by the codec `other`, not in JSON");

        // A caller unaware of the codec.
        let foreign = Call::new(&Adder::<false>::METHODS[0], Format::Json, frpc::Head::default(), (&b"{}"[..]).into());
        let status = channel.call(foreign).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(status.message(), "t.Other/Next: the messages are written by the codec `other`, not in JSON");

        let wrong = Call::new(&Adder::<true>::METHODS[0], Format::Json, frpc::Head::default(), (&b"{}"[..]).into());
        let status = channel.call(wrong).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("the codec `json` refuses it: missing field `value`"), "{status}");
    });
}
