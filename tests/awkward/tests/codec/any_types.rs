//! The types of an `Any` in the JSON of calls: each server and each channel has its own.

use std::pin::Pin;

use awkward::{codec::hostile, golden::json::json as golden};
use frpc::{
    Answer, Call, Caller, Channel, Code, Endpoint, MessageSettings, Method, Request, Response, Service, Services,
    Status, Streaming,
    codec::{Format, json},
    prost_types::Any,
};
use futures_util::stream;

const BOTH: &json::Types = &json::Types::of_packages(&[hostile::json_types, golden::json_types]);

/// Answers with its request.
struct Echo;

impl Service for Echo {
    const NAME: &'static str = "any.Echo";
    const METHODS: &'static [Method] =
        &[Method::unary("any.Echo", "One", 0), Method::bidirectional("any.Echo", "Many", 1)];

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        match method {
            0 => call.unary(async |request: Request<Any>| Ok(Response::new(request.into_inner()))).await,
            _ => {
                let echo = async |requests: Request<Streaming<Any>>| Ok(Response::new(requests.into_inner()));
                call.bidirectional(echo).await
            }
        }
    }
}

/// A caller in JSON without a wire.
struct JsonCaller(Endpoint);

impl Caller for JsonCaller {
    fn format(&self) -> Format {
        Format::Json
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = Result<Answer, Status>> + Send + '_>> {
        let found = self.0.find(&call.method().path()).expect("it is served");
        let (head, body) = call.into_parts();
        Box::pin(self.0.call(found, Format::Json, head, body))
    }
}

#[tokio::test]
async fn servers_and_channels_of_one_process_have_their_own_any_types() {
    let leaf = || Any { type_url: "/json.Leaf".into(), value: b"\x0a\x01x".to_vec() };
    let nest = || Any { type_url: "/codec.hostile.Nest".into(), value: Vec::new() };
    let server = |any_types| {
        let messages = MessageSettings { any_types, ..MessageSettings::default() };
        Endpoint::new(Services::new().add_service(Echo).messages(messages)).expect("one service")
    };
    let one = &Echo::METHODS[0];
    for (server_types, known, unknown) in
        [(golden::json_types(), leaf(), nest()), (hostile::json_types(), nest(), leaf())]
    {
        let channel = Channel::over_caller(JsonCaller(server(server_types)));
        let knowing = channel.clone().with_any_types(BOTH);
        let answer = knowing.unary::<Any, Any>(one, known.clone()).await.expect("both sides know the type");
        assert_eq!(answer.into_inner(), known);
        let requests = stream::iter([known.clone(), unknown.clone()]);
        let answers = knowing.bidirectional::<Any, Any>(&Echo::METHODS[1], requests).await.expect("it opens");
        let mut answers = answers.into_inner();
        assert_eq!(answers.message().await.expect("a known type"), Some(known.clone()));
        assert_eq!(answers.message().await.expect_err("an unknown type").code(), Code::InvalidArgument);
        let status = knowing.unary::<Any, Any>(one, unknown).await.expect_err("the server does not know the type");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        let status = channel.unary::<Any, Any>(one, known).await.expect_err("the channel does not know the type");
        assert_eq!(status.code(), Code::Internal, "{status}");
    }
}
