//! Calls to the services of `proto/benchmark.proto`, through the clients that anybody would use.

use std::{error::Error, net::SocketAddr};

use bytes::Bytes;
use examples::benchmark::{
    BytesRequest, RepeatRequest, Request, Response, benchmark_service_client::BenchmarkServiceClient,
    bytes_service_client::BytesServiceClient, stream_service_client::StreamServiceClient,
};
use frpc::{Status, Streaming};
use load::Caller;

#[derive(Clone)]
pub(crate) struct StringCaller(BenchmarkServiceClient);

impl Caller for StringCaller {
    type Message = String;
    type Error = Status;

    async fn connect(addr: SocketAddr) -> Result<Self, Box<dyn Error>> {
        Ok(Self(BenchmarkServiceClient::connect(addr).await?))
    }

    async fn call(&mut self, message: String) -> Result<String, Status> {
        Ok(self.0.benchmark(Request { message }).await?.into_inner().message)
    }
}

#[derive(Clone)]
pub(crate) struct BytesCaller(BytesServiceClient);

impl Caller for BytesCaller {
    type Message = Bytes;
    type Error = Status;

    async fn connect(addr: SocketAddr) -> Result<Self, Box<dyn Error>> {
        Ok(Self(BytesServiceClient::connect(addr).await?))
    }

    async fn call(&mut self, message: Bytes) -> Result<Bytes, Status> {
        Ok(self.0.benchmark(BytesRequest { message }).await?.into_inner().message)
    }
}

pub(crate) struct StreamReader {
    client: StreamServiceClient,
    /// Each clone reads a stream of its own.
    responses: Option<Streaming<Response>>,
}

impl Clone for StreamReader {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), responses: None }
    }
}

impl Caller for StreamReader {
    type Message = String;
    type Error = Status;

    async fn connect(addr: SocketAddr) -> Result<Self, Box<dyn Error>> {
        Ok(Self { client: StreamServiceClient::connect(addr).await?, responses: None })
    }

    /// Takes the stream's next message.
    async fn call(&mut self, message: String) -> Result<String, Status> {
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

/// So many that opening a stream does not count.
const MESSAGES: u32 = 100_000;
