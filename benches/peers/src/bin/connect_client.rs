//! Keeps K calls in flight on each connection, verifies every answer, and prints one line of JSON.
//!
//! `connect_client ADDR --size N --field string|bytes --clients C --concurrent K --seconds S --warmup W [--streaming]
//! [--protocol connect|grpc]`
//!
//! With `--streaming`, it reads K streams on each connection instead, and each message counts as a call. The default
//! protocol is Connect over HTTP/2. It needs less work than gRPC, because responses have no trailers. The pooling
//! client of connect-rust is as fast, but has no options for windows and frames.

use std::error::Error;
use std::net::SocketAddr;

use bytes::Bytes;
use connectrpc::client::{ClientConfig, ClientTransport, Http2Connection, ServerStream, SharedHttp2Connection};
use connectrpc::{ConnectError, Protocol};
use load::{Args, Arguments, Caller, Field, process};
use peers::connect::__buffa::view::ResponseView;
use peers::connect::{
    BenchmarkServiceClient, BytesRequest, BytesServiceClient, RepeatRequest, Request, StreamServiceClient,
};
use peers::http2;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::from_env();
    let protocol = arguments.opt_value_from_fn("--protocol", parse_protocol)?.unwrap_or(Protocol::Connect);
    let args = Args::parse(arguments)?;
    process::raise_open_files_limit()?;
    let report = match args.field {
        Field::String if args.streaming => {
            load::run(&args, async |addr| StreamReader::connect(addr, protocol).await).await?
        }
        Field::String => load::run(&args, async |addr| StringCaller::connect(addr, protocol).await).await?,
        Field::Bytes if args.streaming => return Err("streams carry strings".into()),
        Field::Bytes => load::run(&args, async |addr| BytesCaller::connect(addr, protocol).await).await?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

type Transport = SharedHttp2Connection;

#[derive(Clone)]
struct StringCaller(BenchmarkServiceClient<Transport>);

impl StringCaller {
    async fn connect(addr: SocketAddr, protocol: Protocol) -> Result<Self, Box<dyn Error>> {
        let (transport, config) = open(addr, protocol).await?;
        Ok(Self(BenchmarkServiceClient::new(transport, config)))
    }
}

impl Caller for StringCaller {
    type Message = String;
    type Error = ConnectError;

    async fn call(&mut self, message: &String) -> Result<String, ConnectError> {
        let request = Request { message: message.clone(), ..Default::default() };
        Ok(self.0.benchmark(request).await?.into_owned().message)
    }
}

#[derive(Clone)]
struct BytesCaller(BytesServiceClient<Transport>);

impl BytesCaller {
    async fn connect(addr: SocketAddr, protocol: Protocol) -> Result<Self, Box<dyn Error>> {
        let (transport, config) = open(addr, protocol).await?;
        Ok(Self(BytesServiceClient::new(transport, config)))
    }
}

impl Caller for BytesCaller {
    type Message = Bytes;
    type Error = ConnectError;

    async fn call(&mut self, message: &Bytes) -> Result<Bytes, ConnectError> {
        let request = BytesRequest { message: message.clone(), ..Default::default() };
        Ok(self.0.benchmark(request).await?.into_owned().message)
    }
}

struct StreamReader {
    client: StreamServiceClient<Transport>,
    /// Each clone reads its own stream.
    responses: Option<ServerStream<<Transport as ClientTransport>::ResponseBody, ResponseView<'static>>>,
}

impl Clone for StreamReader {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), responses: None }
    }
}

impl StreamReader {
    async fn connect(addr: SocketAddr, protocol: Protocol) -> Result<Self, Box<dyn Error>> {
        let (transport, config) = open(addr, protocol).await?;
        Ok(Self { client: StreamServiceClient::new(transport, config), responses: None })
    }
}

impl Caller for StreamReader {
    type Message = String;
    type Error = ConnectError;

    const CALLS_PER_SAMPLE: u32 = 64;

    /// Returns the next message of the stream.
    async fn call(&mut self, message: &String) -> Result<String, ConnectError> {
        loop {
            if let Some(responses) = &mut self.responses
                && let Some(response) = responses.message().await?
            {
                return Ok(response.to_owned_message().message);
            }
            let request = RepeatRequest { message: message.clone(), count: MESSAGES, ..Default::default() };
            self.responses = Some(self.client.repeat(request).await?);
        }
    }
}

async fn open(addr: SocketAddr, protocol: Protocol) -> Result<(Transport, ClientConfig), Box<dyn Error>> {
    let config = ClientConfig::new(format!("http://{addr}").parse()?)
        .with_protocol(protocol)
        .with_default_max_message_size(http2::MESSAGE_LEN_MAX);
    let connection = Http2Connection::builder()
        .initial_stream_window_size(http2::STREAM_WINDOW_LEN)
        .initial_connection_window_size(http2::CONNECTION_WINDOW_LEN)
        .h2_settings(|settings| {
            settings.max_frame_size(http2::FRAME_LEN_MAX);
        })
        .connect_plaintext(config.base_uri().clone())
        .await?;
    Ok((connection.shared(REQUESTS), config))
}

fn parse_protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "connect" => Ok(Protocol::Connect),
        "grpc" => Ok(Protocol::Grpc),
        _ => Err(format!("no protocol {text:?}: connect or grpc")),
    }
}

/// The maximum number of requests waiting for the connection.
const REQUESTS: usize = 1024;

/// So many that the cost of opening a stream does not matter.
const MESSAGES: u32 = 100_000;
