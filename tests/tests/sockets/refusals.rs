//! The same refusals on every wire: requests that are too large, handlers that fail with Ok, and the metadata of a status.

use std::iter;

use flate2::{Compression as Level, write::GzEncoder};
use frpc::{
    Call, CallSettings, Channel, ChannelBuilder, Code, CompressionSettings, Config, ConnectRetry, Layered, Metadata,
    Server, ServerBuilder, Service, Status, codec::Compression, interceptor,
};
use frpc_http::{Client, ClientSettings, Http, HttpSettings, HttpVersion};
use frpc_jsonrpc::{JsonRpc, JsonRpcSettings, function};
use support::{
    calls::{TestClient, TestServer, TestService, ask, of_kind, quiet},
    in_real_time,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A way to call a server.
struct Way {
    /// The address, in which `ADDRESS` stands for that of the server.
    url: &'static str,
    /// The version of HTTP that is not told by the scheme.
    version: HttpVersion,
    /// The kinds of calls that it carries: unary, and with a stream of answers, of requests, and of both.
    kinds: &'static [usize],
    /// True if its requests can be compressed.
    compresses: bool,
}

const fn way(url: &'static str, version: HttpVersion, kinds: &'static [usize], compresses: bool) -> Way {
    Way { url, version, kinds, compresses }
}

const WAYS: [Way; 11] = [
    way("tcp://ADDRESS", HttpVersion::Http1, &[0, 1, 2, 3], true),
    way("ws://ADDRESS", HttpVersion::Http1, &[0, 1, 2, 3], true),
    way("grpc://ADDRESS", HttpVersion::Http2, &[0, 1, 2, 3], true),
    way("grpc-web+http://ADDRESS", HttpVersion::Http1, &[0, 1], true),
    way("grpc-web+http://ADDRESS", HttpVersion::Http2, &[0, 1], true),
    way("http://ADDRESS", HttpVersion::Http1, &[0, 1, 2], true),
    way("http://ADDRESS", HttpVersion::Http2, &[0, 1, 2, 3], true),
    way("twirp+http://ADDRESS", HttpVersion::Http1, &[0], true),
    way("jsonrpc+tcp://ADDRESS", HttpVersion::Http1, &[0, 1], false),
    way("jsonrpc+http://ADDRESS/rpc", HttpVersion::Http1, &[0], false),
    way("jsonrpc+ws://ADDRESS/rpc", HttpVersion::Http1, &[0, 1], false),
];

impl Way {
    async fn connect(&self, server: &Server, compresses: bool) -> TestClient {
        let gzip_len_min = compresses.then_some(0);
        let settings = ClientSettings { http_version: self.version, gzip_len_min, ..ClientSettings::default() };
        let http = Client::new().settings(settings);
        let mut builder: ChannelBuilder =
            Channel::builder().config(quiet()).transport(http).transport(frpc_websocket::Client::new());
        builder = builder.transport(frpc_jsonrpc::Client::new());
        if compresses {
            let send = vec![Compression::Gzip];
            builder = builder.compression(CompressionSettings { send, ..CompressionSettings::default() });
        }
        let address = server.local_addr().socket_addr().unwrap().to_string();
        let builder = builder.retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() });
        TestClient::new(builder.connect(&*self.url.replace("ADDRESS", &address)).await.unwrap())
    }
}

/// Serves on every wire messages of up to this length.
async fn serve<S>(set: impl FnOnce(ServerBuilder) -> ServerBuilder, service: S, message_len_max: usize) -> Server
where
    S: Service,
{
    let json =
        JsonRpc::new().settings(JsonRpcSettings { message_len_max, ..JsonRpcSettings::default() }).function(size);
    let settings = HttpSettings { message_len_max, ..HttpSettings::default() };
    let http = Http::new().settings(settings).mount("/rpc", json.clone());
    let config = Config { content_len_max: message_len_max.try_into().unwrap(), ..quiet() };
    let server = set(Server::builder().config(config)).add_service(service).wire(json).wire(http);
    server.bind("127.0.0.1:0").await.unwrap()
}

#[function]
fn size(text: String) -> usize {
    text.len()
}

/// Letters that gzip makes little shorter.
fn noise(len: usize) -> String {
    let mut state = 1_u64;
    let letters = iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 33).to_le_bytes()[0] % 64)
    });
    // These two would be longer in JSON.
    letters.map(|letter| if letter == '\\' { 'p' } else { letter }).take(len).collect()
}

#[test]
fn oversized_requests_are_resource_exhausted_on_every_wire() {
    in_real_time(async {
        let service = TestService::default();
        let small = serve(|builder| builder, TestServer::new(service.clone()), 10_000).await;
        let memory = |builder: ServerBuilder| {
            builder.calls(CallSettings { connection_memory_max: 100_000, ..CallSettings::default() })
        };
        let narrow = serve(memory, TestServer::new(service.clone()), 4 << 20).await;
        let memory = |builder: ServerBuilder| {
            builder.calls(CallSettings { server_memory_max: 100_000, ..CallSettings::default() })
        };
        let full = serve(memory, TestServer::new(service.clone()), 4 << 20).await;
        // The server, the text, and whether it is sent compressed.
        let cases = [
            ("the length", &small, noise(40_000), false),
            ("the compressed length", &small, noise(40_000), true),
            ("the length that was compressed", &small, "x".repeat(40_000), true),
            ("the memory of the connection", &narrow, noise(400_000), false),
            ("the memory of the server", &full, noise(400_000), false),
        ];
        let mut wrong = Vec::new();
        for way in &WAYS {
            for (case, server, text, compresses) in &cases {
                let is_frisbee = matches!(way.url.split_once(':'), Some(("tcp" | "ws", _)));
                // Connections of frisbee have other limits on their memory, under which calls wait.
                let waits = is_frisbee && *case == "the memory of the connection";
                if *compresses && !way.compresses || waits {
                    continue;
                }
                let client = way.connect(server, *compresses).await;
                for kind in way.kinds {
                    // So do the messages of its streams.
                    if is_frisbee && *case == "the memory of the server" && *kind > 1 {
                        continue;
                    }
                    let name = format!("{} {:?}, kind {kind}, {case}", way.url, way.version);
                    match of_kind(&client, *kind, text).await {
                        Ok(_) => wrong.push(format!("{name}: went well")),
                        Err(status) if status.code() != Code::ResourceExhausted => {
                            wrong.push(format!("{name}: {status:?}"));
                        }
                        Err(_) => {}
                    }
                    assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{name}: others go on");
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(service.log.take().iter().all(|line| line.len() < 1000), "no handler saw it");
    });
}

#[test]
fn a_handler_error_with_code_ok_is_unknown_on_every_wire() {
    in_real_time(async {
        let server = serve(|builder| builder, TestServer::new(TestService::default()), 10_000).await;
        for way in &WAYS {
            let client = way.connect(&server, false).await;
            for kind in way.kinds {
                let status = of_kind(&client, *kind, "fail 0 fine").await.unwrap_err();
                assert_eq!(status.code(), Code::Unknown, "{}, kind {kind}", way.url);
                assert_eq!(status.message(), "the handler failed with the code Ok: fine", "{}, kind {kind}", way.url);
            }
        }
    });
}

#[test]
fn the_metadata_of_a_status_arrives_over_every_wire() {
    in_real_time(async {
        let mut metadata = Metadata::new();
        metadata.append("color", "red").unwrap();
        metadata.append("color", "blue \"light\"").unwrap();
        metadata.append_bin("trace-bin", [0, 255]).unwrap();
        let told = metadata.clone();
        let refusal = interceptor(move |_: &mut Call| Err(Status::with_metadata(Code::Aborted, "no", told.clone())));
        let service = Layered::new(TestServer::new(TestService::default()), refusal);
        let server = serve(|builder| builder, service, 10_000).await;
        for way in &WAYS {
            let client = way.connect(&server, false).await;
            for kind in way.kinds {
                let (name, status) = (way.url, of_kind(&client, *kind, "hi").await.unwrap_err());
                assert_eq!((status.code(), status.message()), (Code::Aborted, "no"), "{name}, kind {kind}");
                let colors: Vec<_> = status.metadata().get_all("color").collect();
                // Twirp has one text for each name.
                let expected =
                    if name.starts_with("twirp") { &["red, blue \"light\""][..] } else { &["red", "blue \"light\""] };
                assert_eq!(colors, expected, "{name}, kind {kind}");
                assert_eq!(status.metadata().get_bin("trace-bin"), Some(&[0, 255][..]), "{name}, kind {kind}");
            }
        }
    });
}

/// Sends bytes on a connection of its own, and returns the beginning of the answer.
async fn answer(server: &Server, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(server.local_addr().socket_addr().unwrap()).await.unwrap();
    // The server may refuse it before it has read all of it.
    let _ = socket.write_all(request).await;
    let mut answer = vec![0; 4096];
    let len = socket.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..len]).into_owned()
}

fn gzip(content: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Level::best());
    std::io::Write::write_all(&mut encoder, content.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn oversized_requests_have_the_error_of_their_protocol() {
    in_real_time(async {
        let server = serve(|builder| builder, TestServer::new(TestService::default()), 10_000).await;
        let text = "x".repeat(40_000);
        let message = format!("{{\"text\":\"{text}\"}}");
        let call = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"size\",\"params\":[\"{text}\"],\"id\":1}}");
        let batch = format!("[{call}]");
        let too_many = format!("[{}{{}}]", "{},".repeat(100));
        let exhausted = "\"code\":\"resource_exhausted\"";
        let connect = ["HTTP/1.1 429", exhausted];
        let posts = [
            ("/calls.Test/Say", &message, connect),
            ("/twirp/calls.Test/Say", &message, connect),
            ("/rpc", &call, ["HTTP/1.1 413", "message exceeds the limit of 10000 bytes"]),
            ("/rpc", &batch, ["HTTP/1.1 413", "message exceeds the limit of 10000 bytes"]),
            ("/rpc", &too_many, ["HTTP/1.1 200", exhausted]),
        ];
        for (path, body, [first, second]) in posts {
            for compresses in [false, true] {
                let coding = if compresses { "content-encoding: gzip\r\n" } else { "" };
                let body = if compresses { gzip(body) } else { body.clone().into_bytes() };
                let head = format!(
                    "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{coding}content-length: {}\r\n\r\n",
                    body.len()
                );
                let answer = answer(&server, &[head.as_bytes(), &body].concat()).await;
                let is_told = answer.starts_with(first) && answer.contains(second);
                assert!(is_told, "{path}, compressed {compresses}: {answer}");
            }
        }
        for said in [&call, &batch, &too_many] {
            let answer = answer(&server, said.as_bytes()).await;
            assert!(answer.contains(exhausted), "{}: {answer}", &said[..20]);
        }
    });
}
