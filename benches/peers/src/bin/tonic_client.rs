//! Keeps K calls in flight on each channel, verifies every answer, and prints one line of JSON.
//!
//! `tonic_client ADDR --size N --field string|bytes --clients C --concurrent K --seconds S --warmup W [--streaming]`
//!
//! With `--streaming`, it reads K streams on each channel instead, and each message counts as a call.

use std::error::Error;
use std::net::SocketAddr;

use bytes::Bytes;
use load::{Args, Arguments, Caller, Field, process};
use peers::grpc::benchmark_service_client::BenchmarkServiceClient;
use peers::grpc::bytes_service_client::BytesServiceClient;
use peers::grpc::stream_service_client::StreamServiceClient;
use peers::grpc::{self, BytesRequest, RepeatRequest};
use peers::http2;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse(Arguments::from_env())?;
    process::raise_open_files_limit()?;
    let report = match args.field {
        Field::String if args.streaming => load::run(&args, StreamReader::connect).await?,
        Field::String => load::run(&args, StringCaller::connect).await?,
        Field::Bytes if args.streaming => return Err("streams carry strings".into()),
        Field::Bytes => load::run(&args, BytesCaller::connect).await?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

#[derive(Clone)]
struct StringCaller(BenchmarkServiceClient<Channel>);

impl StringCaller {
    async fn connect(addr: SocketAddr) -> Result<Self, Box<dyn Error>> {
        Ok(Self(BenchmarkServiceClient::new(open(addr).await?).max_decoding_message_size(http2::MESSAGE_LEN_MAX)))
    }
}

impl Caller for StringCaller {
    type Message = String;
    type Error = Status;

    async fn call(&mut self, message: &String) -> Result<String, Status> {
        Ok(self.0.benchmark(grpc::Request { message: message.clone() }).await?.into_inner().message)
    }
}

#[derive(Clone)]
struct BytesCaller(BytesServiceClient<Channel>);

impl BytesCaller {
    async fn connect(addr: SocketAddr) -> Result<Self, Box<dyn Error>> {
        Ok(Self(BytesServiceClient::new(open(addr).await?).max_decoding_message_size(http2::MESSAGE_LEN_MAX)))
    }
}

impl Caller for BytesCaller {
    type Message = Bytes;
    type Error = Status;

    async fn call(&mut self, message: &Bytes) -> Result<Bytes, Status> {
        Ok(self.0.benchmark(BytesRequest { message: message.clone() }).await?.into_inner().message)
    }
}

struct StreamReader {
    client: StreamServiceClient<Channel>,
    /// Each clone reads its own stream.
    responses: Option<Streaming<grpc::Response>>,
}

impl Clone for StreamReader {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), responses: None }
    }
}

impl StreamReader {
    async fn connect(addr: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let client = StreamServiceClient::new(open(addr).await?).max_decoding_message_size(http2::MESSAGE_LEN_MAX);
        Ok(Self { client, responses: None })
    }
}

impl Caller for StreamReader {
    type Message = String;
    type Error = Status;

    const CALLS_PER_SAMPLE: u32 = 64;

    /// Returns the next message of the stream.
    async fn call(&mut self, message: &String) -> Result<String, Status> {
        loop {
            if let Some(responses) = &mut self.responses
                && let Some(response) = responses.message().await?
            {
                return Ok(response.message);
            }
            let request = RepeatRequest { message: message.clone(), count: MESSAGES };
            self.responses = Some(self.client.repeat(request).await?.into_inner());
        }
    }
}

async fn open(addr: SocketAddr) -> Result<Channel, tonic::transport::Error> {
    Endpoint::from_shared(format!("http://{addr}"))?
        .tcp_nodelay(true)
        .initial_stream_window_size(http2::STREAM_WINDOW_LEN)
        .initial_connection_window_size(http2::CONNECTION_WINDOW_LEN)
        .max_frame_size(http2::FRAME_LEN_MAX)
        .connect()
        .await
}

/// So many that the cost of opening a stream does not matter.
const MESSAGES: u32 = 100_000;
