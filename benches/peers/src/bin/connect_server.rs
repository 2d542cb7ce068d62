//! Answers every call with its message, as `floor_server` does with packets.
//!
//! Clients get windows as large as with tonic. The server has no option for larger frames.

#![allow(refining_impl_trait, reason = "handlers say what they return, as connect-rust's own examples do")]

use std::error::Error;
use std::time::Duration;

use connectrpc::{
    Chain, ConnectRpcService, Limits, RequestContext, Response, Server, ServiceRequest, ServiceResult, ServiceStream,
};
use futures_util::stream;
use load::{Arguments, ServerArgs, process};
use peers::connect::{
    BenchmarkService, BenchmarkServiceServer, BytesRequest, BytesResponse, BytesService, BytesServiceServer,
    RepeatRequest, Request, StreamService, StreamServiceServer,
};
use peers::{connect, http2};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let ServerArgs { addr, sleep } = ServerArgs::parse(Arguments::from_env())?;
    process::raise_open_files_limit()?;
    let listener = peers::listen(addr)?;
    let echo = Echo { sleep };
    let services = Chain(BytesServiceServer::new(echo), StreamServiceServer::new(echo));
    let services = Chain(BenchmarkServiceServer::new(echo), services);
    let limits = Limits::default()
        .with_max_request_body_size(http2::MESSAGE_LEN_MAX)
        .with_max_message_size(http2::MESSAGE_LEN_MAX);
    Server::from_listener(listener)
        .with_http2_initial_stream_window_size(http2::STREAM_WINDOW_LEN)
        .with_http2_initial_connection_window_size(http2::CONNECTION_WINDOW_LEN)
        .serve_with_service(ConnectRpcService::new(services).with_limits(limits))
        .await
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

impl BenchmarkService for Echo {
    async fn benchmark(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, Request>,
    ) -> ServiceResult<connect::Response> {
        self.work().await;
        let message = request.message.to_owned();
        Response::ok(connect::Response { message, ..Default::default() })
    }
}

impl BytesService for Echo {
    async fn benchmark(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, BytesRequest>,
    ) -> ServiceResult<BytesResponse> {
        self.work().await;
        let message = request.to_owned_message().message;
        Response::ok(BytesResponse { message, ..Default::default() })
    }
}

impl StreamService for Echo {
    async fn repeat(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, RepeatRequest>,
    ) -> ServiceResult<ServiceStream<connect::Response>> {
        let message = request.message.to_owned();
        let response = move |_| Ok(connect::Response { message: message.clone(), ..Default::default() });
        Response::stream_ok(stream::iter((0..request.count).map(response)))
    }
}
