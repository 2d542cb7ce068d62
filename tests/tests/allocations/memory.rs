//! Small messages designed to take as much memory as possible. Every wire refuses them before it takes the memory.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use frpc::{
    Body, BoxService, Call, CallSettings, Channel, Code, Head, MessageSettings, Method, Request, Response, Server,
    ServerBuilder, Status,
    codec::{self, DecodeError, FieldLayout, Format, Formats, Layout, MemoryBudget, Reader, Sink, Writer},
    generated::{Answer, Service},
    prost,
};
use frpc_http::Http;
use frpc_jsonrpc::{JsonRpc, function};
use serde_json::Value;
use support::in_virtual_time;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    sync::Notify,
};

use crate::{LIVE, PEAK, current_thread};

/// A message of about 400 bytes in memory and two on the wire.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "::frpc::prost")]
struct Wide {
    #[prost(message, repeated, tag = "1")]
    many: Vec<Wide>,
    #[prost(string, tag = "2")]
    a: String,
    #[prost(string, tag = "3")]
    b: String,
    #[prost(string, tag = "4")]
    c: String,
    #[prost(string, tag = "5")]
    d: String,
    #[prost(string, tag = "6")]
    e: String,
    #[prost(string, tag = "7")]
    f: String,
    #[prost(string, tag = "8")]
    g: String,
    #[prost(string, tag = "9")]
    h: String,
    #[prost(string, tag = "10")]
    i: String,
    #[prost(string, tag = "11")]
    j: String,
    #[prost(string, tag = "12")]
    k: String,
    #[prost(string, tag = "13")]
    l: String,
    #[prost(string, tag = "14")]
    m: String,
    #[prost(string, tag = "15")]
    n: String,
    #[prost(string, tag = "16")]
    o: String,
}

impl codec::Message for Wide {
    const NAME: &'static str = "Wide";
    const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost());

    fn layout() -> Option<&'static Layout> {
        static LAYOUT: Layout = Layout::new(&[FieldLayout::message_list::<Wide>(1)]);
        Some(&LAYOUT)
    }

    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) {
        out.string(&self.a);
        out.message_list(&self.many);
    }

    fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        input.string(&mut self.a)?;
        input.message_list(&mut self.many)
    }
}

/// Answers with the number of messages.
#[derive(Clone, Default)]
struct Counter {
    was_called: Arc<AtomicBool>,
    /// Notified by each waiting handler.
    waits: Arc<Notify>,
    /// Releases the handlers of requests with a text.
    gate: Arc<Notify>,
}

const METHODS: &[Method] = &[Method::unary("tests.Counter", "Count", 10)];
static COUNT: Method = METHODS[0];

impl Service for Counter {
    const NAME: &'static str = "tests.Counter";
    const METHODS: &'static [Method] = METHODS;

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        let handler = async |request: Request<Wide>| {
            self.was_called.store(true, Ordering::Relaxed);
            if !request.get_ref().a.is_empty() {
                self.waits.notify_one();
                self.gate.notified().await;
            }
            Ok::<_, Status>(Response::new(request.into_inner().many.len() as u64))
        };
        call.unary(handler).await
    }
}

#[function]
fn size(value: Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

fn builder() -> (ServerBuilder<((), Counter)>, Counter) {
    let counter = Counter::default();
    (
        Server::builder().wire(Http::new().mount("/rpc", JsonRpc::new().function(size))).add_service(counter.clone()),
        counter,
    )
}

/// Returns as many empty messages as fit into 4 MiB.
fn bomb() -> Vec<u8> {
    [0x0a, 0].repeat(2 << 20)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).and_then(|()| encoder.finish()).unwrap()
}

fn framed(flags: u8, content: &[u8]) -> Vec<u8> {
    [&[flags][..], &u32::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends bytes on a new connection and returns the answer.
async fn ask(server: &Server, request: &[u8]) -> String {
    let (ours, theirs) = duplex(64 << 10);
    server.attach(theirs);
    let (mut answers, mut requests) = tokio::io::split(ours);
    let mut answer = Vec::new();
    // A server that refuses early may not read the whole request.
    let (_, read) = tokio::join!(requests.write_all(request), answers.read_to_end(&mut answer));
    read.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Runs a future. Returns its output and the maximum of bytes held in addition to those held before.
async fn peak_of<T>(work: impl Future<Output = T>) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let done = work.await;
    (done, (PEAK.get() - before).cast_unsigned())
}

/// The body in parts of doubling size, the inflated data, and the buffers of a connection.
const RECEIVED_MAX: usize = 24 << 20;

#[test]
fn protobuf_bombs_are_rejected_on_every_http_protocol() {
    in_virtual_time(async {
        let (builder, counter) = builder();
        let server = builder.without_listener().unwrap();
        let (raw, zipped) = (bomb(), gzip(&bomb()));
        assert!(zipped.len() < 5_000);
        let connect = "content-type: application/proto\r\n";
        let web = "content-type: application/grpc-web+proto\r\n";
        let path = "/tests.Counter/Count";
        let requests = [
            ("Connect", post(path, connect, &raw), "resource_exhausted"),
            (
                "Connect, gzip",
                post(path, &format!("{connect}content-encoding: gzip\r\n"), &zipped),
                "resource_exhausted",
            ),
            ("gRPC-Web", post(path, web, &framed(0, &raw)), "grpc-status: 8"),
            (
                "gRPC-Web, gzip",
                post(path, &format!("{web}grpc-encoding: gzip\r\n"), &framed(1, &zipped)),
                "grpc-status: 8",
            ),
            (
                "Twirp, gzip",
                post(
                    "/twirp/tests.Counter/Count",
                    "content-type: application/protobuf\r\ncontent-encoding: gzip\r\n",
                    &zipped,
                ),
                "resource_exhausted",
            ),
        ];
        for (wire, request, expected) in requests {
            let (answer, peak) = peak_of(ask(&server, &request)).await;
            let is_refused = answer.to_lowercase().contains(expected);
            assert!(is_refused && answer.contains("message_memory_max"), "{wire}: {answer}");
            assert!(peak < RECEIVED_MAX, "{wire}: {peak} bytes");
            assert!(!counter.was_called.load(Ordering::Relaxed), "{wire}");
        }
        // An honest message of the same length.
        let honest = prost::Message::encode_to_vec(&Wide { b: "b".repeat(4_000_000), ..Wide::default() });
        let answer = ask(&server, &post(path, connect, &honest)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    });
}

/// The budget of a server applies to protobuf and polyglot over frisbee, and the budget of a channel to the answers of
/// servers.
#[test]
fn bombs_are_refused_over_frisbee_and_in_answers() {
    in_virtual_time(async {
        let (builder, counter) = builder();
        let server = builder
            .messages(MessageSettings { message_memory_max: MemoryBudget::new(1 << 20), ..MessageSettings::default() })
            .without_listener()
            .unwrap();
        let (ours, theirs) = duplex(64 << 10);
        server.attach(theirs);
        let channel = Channel::builder().attach(ours).await.unwrap();
        assert_eq!(channel.call_format().await.unwrap(), Format::Proto);
        let many = Wide { many: vec![Wide::default(); 4_000], ..Wide::default() };
        for format in [Format::Proto, Format::Polyglot] {
            let content = format.encode(&many).unwrap().into_bytes();
            let call = Call::new(&COUNT, format, Head::default(), Body::from(content));
            let status = match format {
                Format::Proto => channel.call(call).await.map(drop).unwrap_err(),
                _ => channel.unary::<_, u64>(&COUNT, many.clone()).await.map(drop).unwrap_err(),
            };
            assert_eq!(status.code(), Code::ResourceExhausted, "{format}: {status}");
            assert!(status.message().contains("`message_memory_max` of the server"), "{status}");
        }
        assert!(!counter.was_called.load(Ordering::Relaxed));

        let wide = Wide { many: vec![Wide::default(); 300_000], ..Wide::default() };
        let server = answering(codec::encode(&wide)).without_listener().unwrap();
        let (ours, theirs) = duplex(64 << 10);
        server.attach(theirs);
        let channel = Channel::builder()
            .messages(MessageSettings { message_memory_max: MemoryBudget::new(1 << 20), ..MessageSettings::default() })
            .attach(ours)
            .await
            .unwrap();
        check_refused(&channel).await;
    });
}

#[test]
fn http_channels_reject_bombs_in_responses() {
    current_thread().block_on(async {
        let server = answering(bomb().into()).wire(Http::new()).bind("tcp://127.0.0.1:0").await.unwrap();
        let port = server.local_addr().socket_addr().unwrap().port();
        for scheme in ["grpc", "http", "grpc-web+http", "twirp+http"] {
            let address = format!("{scheme}://127.0.0.1:{port}");
            let channel = Channel::builder().transport(frpc_http::transport()).connect(address).await.unwrap();
            check_refused(&channel).await;
        }
    });
}

/// Returns a server with a constant answer.
fn answering(content: Bytes) -> ServerBuilder<((), Vec<BoxService>)> {
    let answers = BoxService::of_methods(METHODS, move |_, _| {
        let content = content.clone();
        Box::pin(async move { Ok(Answer::new(Body::from(content))) })
    });
    Server::builder().add_services([answers])
}

async fn check_refused(channel: &Channel) {
    let (answer, peak) = peak_of(channel.unary::<_, Wide>(&COUNT, Wide::default())).await;
    let status = answer.map(drop).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("`message_memory_max` of the channel"), "{status}");
    assert!(peak < RECEIVED_MAX, "{peak} bytes");
}

#[test]
fn nested_json_bombs_are_rejected_by_functions() {
    in_virtual_time(async {
        let (builder, _) = builder();
        let server = builder.wire(JsonRpc::new().function(size)).without_listener().unwrap();
        for item in ["{\"\":0},", "[[[]]],", "[0],", "[[[[[[[[]]]]]]]],"] {
            let items = item.repeat((4 << 20) / item.len() - 50);
            let request = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"size\",\"params\":[[{items}0]],\"id\":1}}");
            assert!(request.len() < 4 << 20);
            let headers = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
            let (answer, peak) = peak_of(ask(&server, &post("/rpc", headers, &gzip(request.as_bytes())))).await;
            assert!(answer.contains("-32008") && answer.contains("message_memory_max"), "{item}: {answer}");
            assert!(peak < RECEIVED_MAX, "{item}: {peak} bytes by POST");
            let (ours, theirs) = duplex(64 << 10);
            server.attach(theirs);
            let (mut answers, mut requests) = tokio::io::split(ours);
            let talk = async {
                let mut answer = vec![0; 64];
                let (_, read) = tokio::join!(requests.write_all(request.as_bytes()), answers.read_exact(&mut answer));
                read.unwrap();
                String::from_utf8(answer).unwrap()
            };
            let (answer, peak) = peak_of(talk).await;
            assert!(answer.contains("-32008"), "{item}: {answer}");
            assert!(peak < RECEIVED_MAX, "{item}: {peak} bytes over TCP");
        }
        // An honest message of the same length.
        let numbers = "0.123456,".repeat(400_000);
        let request = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"size\",\"params\":[[{numbers}0]],\"id\":1}}");
        let answer = ask(&server, &post("/rpc", "content-type: application/json\r\n", request.as_bytes())).await;
        assert!(answer.contains("400001"), "{answer}");
    });
}

/// Counts the memory of requests during their handlers and of requests not received completely.
#[test]
fn messages_of_all_connections_share_the_server_memory() {
    in_virtual_time(async {
        let (builder, counter) = builder();
        let server = builder
            .calls(CallSettings { server_memory_max: 5 << 20, ..CallSettings::default() })
            .without_listener()
            .unwrap();
        let (path, connect) = ("/tests.Counter/Count", "content-type: application/proto\r\n");
        let waiting = prost::Message::encode_to_vec(&Wide { a: "a".repeat(3_000_000), ..Wide::default() });
        let short = prost::Message::encode_to_vec(&Wide { b: "b".repeat(10_000), ..Wide::default() });
        let (waiting, short) = (post(path, connect, &waiting), post(path, connect, &short));
        let refused = |answer: &str| answer.contains("resource_exhausted") && answer.contains("`server_memory_max`");
        for _ in 0..3 {
            let first = async {
                let answer = ask(&server, &waiting).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            };
            let others = async {
                counter.waits.notified().await;
                // The next body is refused after a part of it has arrived.
                let (ours, theirs) = duplex(64 << 10);
                server.attach(theirs);
                let (mut answers, mut requests) = tokio::io::split(ours);
                let mut answer = vec![0; 1024];
                let (_, read) = tokio::join!(requests.write_all(&waiting[..2_900_000]), answers.read(&mut answer));
                let answer = String::from_utf8_lossy(&answer[..read.unwrap()]).into_owned();
                assert!(refused(&answer), "{answer}");
                drop((answers, requests));
                // There is still room for small requests.
                let answer = ask(&server, &short).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                counter.gate.notify_one();
            };
            tokio::join!(first, others);
        }
    });
}

#[test]
fn large_frisbee_calls_share_the_server_memory() {
    in_virtual_time(async {
        let (builder, counter) = builder();
        let server = builder
            .calls(CallSettings { server_memory_max: 4 << 20, ..CallSettings::default() })
            .without_listener()
            .unwrap();
        let mut channels = Vec::new();
        for _ in 0..2 {
            let (ours, theirs) = duplex(64 << 10);
            server.attach(theirs);
            channels.push(Channel::builder().attach(ours).await.unwrap());
        }
        let large = Wide { a: "a".repeat(3_000_000), ..Wide::default() };
        let call = async |channel: &Channel| channel.unary::<_, u64>(&COUNT, large.clone()).await.map(drop);
        for _ in 0..3 {
            let others = async {
                counter.waits.notified().await;
                let status = call(&channels[1]).await.unwrap_err();
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                assert!(status.message().contains("`server_memory_max`"), "{status}");
                counter.gate.notify_one();
            };
            let (first, ()) = tokio::join!(call(&channels[0]), others);
            first.unwrap();
        }
    });
}

#[test]
fn json_rpc_messages_beyond_the_memory_end_the_connection() {
    in_virtual_time(async {
        let builder = Server::builder()
            .wire(JsonRpc::new().function(size))
            .calls(CallSettings { connection_memory_max: 1 << 20, ..CallSettings::default() });
        let server = builder.without_listener().unwrap();
        let text = |len: usize| {
            format!("{{\"jsonrpc\":\"2.0\",\"method\":\"size\",\"params\":[\"{}\"],\"id\":1}}", "x".repeat(len))
        };
        let (ours, theirs) = duplex(64 << 10);
        server.attach(theirs);
        let (mut answers, mut requests) = tokio::io::split(ours);
        // Repeat it to check that the memory is released.
        for _ in 0..3 {
            let mut answer = vec![0; 36];
            let request = text(800_000);
            let (_, read) = tokio::join!(requests.write_all(request.as_bytes()), answers.read_exact(&mut answer));
            read.unwrap();
            assert!(String::from_utf8(answer).unwrap().contains("\"result\":0"));
        }
        let (request, mut answer) = (text(2_000_000), String::new());
        let (_, read) =
            tokio::join!(requests.write_all(&request.as_bytes()[..1_900_000]), answers.read_to_string(&mut answer));
        read.unwrap();
        assert!(answer.contains("-32008") && answer.contains("`connection_memory_max`"), "{answer}");
    });
}
