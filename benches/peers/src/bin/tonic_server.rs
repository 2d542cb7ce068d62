//! Answers every call with its message, as `floor_server` does with packets.

use std::error::Error;
use std::time::Duration;

use futures_util::{Stream, stream};
use load::{Arguments, ServerArgs, process};
use peers::grpc::benchmark_service_server::{BenchmarkService, BenchmarkServiceServer};
use peers::grpc::bytes_service_server::{BytesService, BytesServiceServer};
use peers::grpc::stream_service_server::{StreamService, StreamServiceServer};
use peers::grpc::{self, BytesRequest, BytesResponse, RepeatRequest};
use peers::http2;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ServerArgs { addr, sleep } = ServerArgs::parse(Arguments::from_env())?;
    process::raise_open_files_limit()?;
    let listener = peers::listen(addr)?;
    let echo = Echo { sleep };
    Server::builder()
        .initial_stream_window_size(http2::STREAM_WINDOW_LEN)
        .initial_connection_window_size(http2::CONNECTION_WINDOW_LEN)
        .max_frame_size(http2::FRAME_LEN_MAX)
        .add_service(BenchmarkServiceServer::new(echo).max_decoding_message_size(http2::MESSAGE_LEN_MAX))
        .add_service(BytesServiceServer::new(echo).max_decoding_message_size(http2::MESSAGE_LEN_MAX))
        .add_service(StreamServiceServer::new(echo).max_decoding_message_size(http2::MESSAGE_LEN_MAX))
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
        .await?;
    Ok(())
}

#[derive(Clone, Copy)]
struct Echo {
    sleep: Duration,
}

impl Echo {
    async fn work(&self) {
        if !self.sleep.is_zero() {
            tokio::time::sleep(self.sleep).await;
        }
    }
}

#[tonic::async_trait]
impl BenchmarkService for Echo {
    async fn benchmark(&self, request: Request<grpc::Request>) -> Result<Response<grpc::Response>, Status> {
        self.work().await;
        Ok(Response::new(grpc::Response { message: request.into_inner().message }))
    }
}

#[tonic::async_trait]
impl BytesService for Echo {
    async fn benchmark(&self, request: Request<BytesRequest>) -> Result<Response<BytesResponse>, Status> {
        self.work().await;
        Ok(Response::new(BytesResponse { message: request.into_inner().message }))
    }
}

#[tonic::async_trait]
impl StreamService for Echo {
    type RepeatStream = Box<dyn Stream<Item = Result<grpc::Response, Status>> + Send + Unpin>;

    async fn repeat(&self, request: Request<RepeatRequest>) -> Result<Response<Self::RepeatStream>, Status> {
        let RepeatRequest { message, count } = request.into_inner();
        let responses = (0..count).map(move |_| Ok(grpc::Response { message: message.clone() }));
        Ok(Response::new(Box::new(stream::iter(responses))))
    }
}
