//! Functions as a service, on the wires of a server.

use frpc::{
    Body, BoxService, Channel, Code, Endpoint, Head, Method, Server, Status,
    codec::Format,
    prost::Message,
    prost_types::{FileDescriptorProto, ListValue, Value, value::Kind},
};
use frpc_jsonrpc::{Functions, function};
use frpc_services::{
    Reflection,
    protos::grpc::reflection::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    },
};
use tokio::io::duplex;

/// Adds two numbers.
#[function]
async fn sum(a: i64, #[default(0)] b: i64) -> i64 {
    a + b
}

#[function(name = "text.greet")]
async fn greet(name: String) -> Result<String, Status> {
    tokio::task::yield_now().await;
    Ok(format!("hello {name}"))
}

#[function]
fn panics() -> i64 {
    panic!("on purpose")
}

const SUM: Method = Method::unary("frpc.Functions", "sum", 60_001);
const GREET: Method = Method::unary("frpc.Functions", "text_greet", 60_002);
const PANICS: Method = Method::unary("frpc.Functions", "panics", 60_000);

fn functions() -> Functions {
    Functions::new().function(sum).function(greet).function(panics)
}

fn number(number: f64) -> Value {
    Value { kind: Some(Kind::NumberValue(number)) }
}

fn list(values: Vec<Value>) -> Value {
    Value { kind: Some(Kind::ListValue(ListValue { values })) }
}

async fn over_frisbee(services: Vec<BoxService>) -> (Server, Channel) {
    let server = Server::builder().add_services(services).without_listener().unwrap();
    let (theirs, ours) = duplex(64 * 1024);
    server.attach(theirs);
    (server, Channel::builder().attach(ours).await.unwrap())
}

async fn call(channel: &Channel, method: &'static Method, arguments: Value) -> Result<Option<Kind>, (Code, String)> {
    match channel.unary::<Value, Value>(method, arguments).await {
        Ok(answer) => Ok(answer.into_inner().kind),
        Err(status) => Err((status.code(), status.message().to_owned())),
    }
}

async fn check_values(channel: &Channel, first: &'static Method, second: &'static Method, third: &'static Method) {
    let arguments = list(vec![number(1.0), number(2.0)]);
    assert_eq!(call(channel, first, arguments).await, Ok(Some(Kind::NumberValue(3.0))));
    let text = Value { kind: Some(Kind::StringValue("you".to_owned())) };
    assert_eq!(call(channel, second, list(vec![text])).await, Ok(Some(Kind::StringValue("hello you".to_owned()))));
    let wrong = (Code::InvalidArgument, "argument `a` (1 of 2): expected i64, found floating point `1.5`".to_owned());
    assert_eq!(call(channel, first, list(vec![number(1.5)])).await, Err(wrong));
    let message = "argument `a` (1 of 2) is missing: expected i64".to_owned();
    assert_eq!(call(channel, first, Value::default()).await, Err((Code::InvalidArgument, message)));
    let message = "the handler panicked".to_owned();
    assert_eq!(call(channel, third, list(vec![])).await, Err((Code::Internal, message)));
}

#[tokio::test]
async fn functions_are_called_over_frisbee() {
    let (_server, channel) = over_frisbee(vec![functions().service()]).await;
    check_values(&channel, &SUM, &GREET, &PANICS).await;
}

#[tokio::test]
async fn functions_are_called_in_process() {
    // A caller in the same process names exactly this method, with its types.
    let endpoint = Endpoint::new(functions().service()).unwrap();
    let [third, first, second] = endpoint.methods().collect::<Vec<_>>().try_into().unwrap();
    check_values(&Channel::in_process(functions().service()), first, second, third).await;
}

#[tokio::test]
async fn json_is_passed_through_unchanged() {
    let endpoint = Endpoint::new(functions().service()).unwrap();
    let call = async |content: &'static [u8]| {
        let found = endpoint.find("frpc.Functions/sum").unwrap();
        match endpoint.call(found, Format::Json, Head::default(), Body::from(content)).await?.into_body() {
            Body::One(content) => Ok(String::from_utf8(content.into_bytes().into()).unwrap()),
            _ => panic!("it is one message"),
        }
    };
    assert_eq!(
        call(b"[9007199254740992, 1]").await.map_err(|status: Status| status.code()),
        Ok("9007199254740993".to_owned())
    );
    assert_eq!(call(br#"{"b": 2, "a": 1}"#).await.map_err(|status: Status| status.code()), Ok("3".to_owned()));
    for broken in [&b"[1,"[..], b"[1] 2", b"\xff", b"nul"] {
        let status = call(broken).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{broken:?}");
        assert!(status.message().starts_with("the arguments are invalid: "), "{status}");
    }
}

#[tokio::test]
async fn reflection_describes_functions_and_their_schemas() {
    let (_server, channel) =
        over_frisbee(vec![functions().service_named("math.Calculator"), Reflection::v1().into()]).await;
    let client = ServerReflectionClient::new(channel);
    let question = MessageRequest::FileContainingSymbol("math.Calculator.sum".to_owned());
    let request = ServerReflectionRequest { message_request: Some(question), ..Default::default() };
    let mut answers = client.server_reflection_info(futures_util::stream::iter([request])).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::FileDescriptorResponse(found) = answer else { panic!("{answer:?}") };
    let files: Vec<_> =
        found.file_descriptor_proto.iter().map(|file| FileDescriptorProto::decode(&**file).unwrap()).collect();
    let names: Vec<_> = files.iter().map(FileDescriptorProto::name).collect();
    assert_eq!(names, ["math/Calculator.proto", "google/protobuf/struct.proto"]);
    let service = &files[0].service[0];
    assert_eq!((files[0].package(), service.name()), ("math", "Calculator"));
    let methods: Vec<_> = service.method.iter().map(|method| (method.name(), method.input_type())).collect();
    let value = ".google.protobuf.Value";
    assert_eq!(methods, [("panics", value), ("sum", value), ("text_greet", value)]);
    let comments = &files[0].source_code_info.as_ref().unwrap().location[1];
    let expected = "Adds two numbers.\n\na: {\"format\":\"int64\",\"type\":\"integer\"}\nb (optional): \
                    {\"format\":\"int64\",\"type\":\"integer\"}\nreturns: {\"format\":\"int64\",\"type\":\"integer\"}\n";
    assert_eq!((comments.path.as_slice(), comments.leading_comments()), (&[6, 0, 2, 1][..], expected));
}

#[test]
#[should_panic(expected = "two functions have the method name `text_greet`")]
fn functions_with_equal_method_names_are_rejected() {
    #[function]
    fn text_greet() {}
    let _ = Functions::new().function(greet).function(text_greet).service();
}

#[cfg(feature = "http")]
#[tokio::test]
async fn functions_are_called_over_http() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let server = Server::builder()
        .add_services([functions().service()])
        .wire(frpc_http::Http::new())
        .bind("tcp://127.0.0.1:0")
        .await
        .unwrap();
    let address = server.local_addr().to_string();
    let mut socket = tokio::net::TcpStream::connect(address.trim_start_matches("tcp://")).await.unwrap();
    let request = "POST /frpc.Functions/sum HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\n\
                   content-length: 6\r\n\r\n[1, 2]";
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n3"), "{answer}");
}
