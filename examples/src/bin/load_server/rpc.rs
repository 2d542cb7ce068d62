//! The services of `proto/benchmark.proto`.

use std::{iter, time::Duration};

use examples::benchmark::{
    BytesRepeatRequest, BytesRequest, BytesResponse, RepeatRequest, Request, Response,
    benchmark_service_server::{BenchmarkService, BenchmarkServiceServer},
    bytes_service_server::{BytesService, BytesServiceServer},
    bytes_stream_service_server::{BytesStreamService, BytesStreamServiceServer},
    stream_service_server::{StreamService, StreamServiceServer},
};
use frpc::{CallSettings, ServeError, Server, Status, Streaming};
use frpc_http::{Http, HttpSettings, StaticFile};
use frpc_jsonrpc::JsonRpc;
use futures_util::stream;

use crate::{Options, work};

pub(crate) async fn bind(options: Options) -> Result<Server, ServeError> {
    let Options { engine, dispatch, http, sleep, address } = options;
    let service = Service { sleep };
    let server = Server::builder();
    let server = if http {
        let rpc = JsonRpc::new().function(sum);
        server
            .wire(
                Http::new()
                    .settings(HttpSettings { message_len_max: 8 << 20, ..HttpSettings::default() })
                    .mount("/rpc", rpc.clone())
                    .mount("/file", StaticFile::new("application/octet-stream", vec![b'0'; 39])),
            )
            .wire(rpc)
    } else {
        server
    };
    server
        .add_service(StreamServiceServer::new(service))
        .add_service(BytesStreamServiceServer::new(service))
        .add_service(BytesServiceServer::new(service))
        .add_service(BenchmarkServiceServer::new(service))
        .engine(engine)
        .calls(CallSettings { dispatch, ..CallSettings::default() })
        .bind(address)
        .await
}

#[frpc_jsonrpc::function]
async fn sum(a: i64, b: i64) -> i64 {
    a + b
}

#[derive(Clone, Copy)]
struct Service {
    sleep: Duration,
}

impl BenchmarkService for Service {
    async fn benchmark(&self, request: frpc::Request<Request>) -> Result<frpc::Response<Response>, Status> {
        work(self.sleep).await;
        Ok(Response { message: request.into_inner().message }.into())
    }
}

impl BytesService for Service {
    async fn benchmark(&self, request: frpc::Request<BytesRequest>) -> Result<frpc::Response<BytesResponse>, Status> {
        work(self.sleep).await;
        Ok(BytesResponse { message: request.into_inner().message }.into())
    }
}

impl StreamService for Service {
    async fn repeat(
        &self,
        request: frpc::Request<RepeatRequest>,
    ) -> Result<frpc::Response<Streaming<Response>>, Status> {
        let RepeatRequest { message, count } = request.into_inner();
        let responses = iter::repeat_n(Response { message }, count as usize).map(Ok);
        Ok(Streaming::new(stream::iter(responses)).into())
    }
}

impl BytesStreamService for Service {
    async fn repeat(
        &self,
        request: frpc::Request<BytesRepeatRequest>,
    ) -> Result<frpc::Response<Streaming<BytesResponse>>, Status> {
        let BytesRepeatRequest { message, count } = request.into_inner();
        let responses = iter::repeat_n(BytesResponse { message }, count as usize).map(Ok);
        Ok(Streaming::new(stream::iter(responses)).into())
    }
}
