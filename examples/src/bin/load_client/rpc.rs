//! Calls to the services of `proto/benchmark.proto`, through the generated clients.

use std::{
    error::Error,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use examples::benchmark::{
    BytesRepeatRequest, BytesRequest, RepeatRequest, Request, Response,
    benchmark_service_client::BenchmarkServiceClient, bytes_service_client::BytesServiceClient,
    bytes_stream_service_client::BytesStreamServiceClient, stream_service_client::StreamServiceClient,
};
use frpc::{Channel, ConnectError, Status, Streaming};
use load::Caller;
use tokio::runtime::Handle;

use crate::Way;

#[derive(Clone)]
pub(crate) struct StringCaller(BenchmarkServiceClient);

impl StringCaller {
    pub(crate) async fn connect(addr: SocketAddr, way: &Way) -> Result<Self, Box<dyn Error>> {
        Ok(Self(BenchmarkServiceClient::new(open(addr, way).await?)))
    }
}

impl Caller for StringCaller {
    type Message = String;
    type Error = Status;

    fn runtime(&self) -> Handle {
        runtime(self.0.channel())
    }

    async fn call(&mut self, message: &String) -> Result<String, Status> {
        Ok(self.0.benchmark(Request { message: message.clone() }).await?.into_inner().message)
    }
}

#[derive(Clone)]
pub(crate) struct BytesCaller(BytesServiceClient);

impl BytesCaller {
    /// Connects. With `beside`, also starts to read a stream of messages of this length on the same connection.
    pub(crate) async fn connect(addr: SocketAddr, way: &Way, beside: Option<usize>) -> Result<Self, Box<dyn Error>> {
        let channel = open(addr, way).await?;
        if let Some(len) = beside {
            runtime(&channel).spawn(read_stream(BytesStreamServiceClient::new(channel.clone()), len));
        }
        Ok(Self(BytesServiceClient::new(channel)))
    }
}

/// Returns the number of messages read from all streams next to calls.
pub(crate) fn read_beside() -> u64 {
    READ_BESIDE.load(Ordering::Relaxed)
}

static READ_BESIDE: AtomicU64 = AtomicU64::new(0);

/// Reads messages of this length until the program ends.
async fn read_stream(client: BytesStreamServiceClient, len: usize) -> Result<(), Status> {
    let request = BytesRepeatRequest { message: vec![7; len].into(), count: u32::MAX };
    let mut responses = client.repeat(request).await?.into_inner();
    while responses.message().await?.is_some() {
        READ_BESIDE.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

impl Caller for BytesCaller {
    type Message = Bytes;
    type Error = Status;

    fn runtime(&self) -> Handle {
        runtime(self.0.channel())
    }

    async fn call(&mut self, message: &Bytes) -> Result<Bytes, Status> {
        Ok(self.0.benchmark(BytesRequest { message: message.clone() }).await?.into_inner().message)
    }
}

pub(crate) struct StreamReader {
    client: StreamServiceClient,
    /// Each clone reads its own stream.
    responses: Option<Streaming<Response>>,
}

impl Clone for StreamReader {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), responses: None }
    }
}

impl StreamReader {
    pub(crate) async fn connect(addr: SocketAddr, way: &Way) -> Result<Self, Box<dyn Error>> {
        Ok(Self { client: StreamServiceClient::new(open(addr, way).await?), responses: None })
    }
}

impl Caller for StreamReader {
    type Message = String;
    type Error = Status;

    const CALLS_PER_SAMPLE: u32 = 64;

    fn runtime(&self) -> Handle {
        runtime(self.client.channel())
    }

    /// Reads the next message of the stream.
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

async fn open(addr: SocketAddr, way: &Way) -> Result<Channel, ConnectError> {
    Channel::builder().engine(way.engine).connect(format!("{}://{addr}", way.wire)).await
}

/// Returns the runtime of the connection, so that calls need not move between threads.
fn runtime(channel: &Channel) -> Handle {
    channel.connection().map_or_else(Handle::current, |connection| connection.runtime().clone())
}

/// Large enough to make the cost of opening a stream negligible.
const MESSAGES: u32 = 100_000;
