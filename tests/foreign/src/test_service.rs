//! The service that gRPC's own tests call.

use std::time::Duration;

use frpc::{Code, Metadata, Request, Response, Status, Streaming};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::sleep;

use crate::protos::grpc::testing::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
    StreamingInputCallResponse, StreamingOutputCallRequest, StreamingOutputCallResponse,
    test_service_server::TestService,
};

/// Implements `grpc.testing.TestService`: requests say what is answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Testing;

impl TestService for Testing {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Empty {}.into())
    }

    async fn unary_call(&self, request: Request<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
        let (metadata, trailers) = echoed(request.metadata())?;
        let request = request.into_inner();
        fail_as_told(request.response_status)?;
        let mut response = Response::new(SimpleResponse { payload: Some(payload(request.response_size)?) });
        *response.metadata_mut() = metadata;
        *response.trailers_mut() = trailers;
        Ok(response)
    }

    async fn cacheable_unary_call(&self, request: Request<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
        self.unary_call(request).await
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Streaming<StreamingOutputCallResponse>>, Status> {
        Ok(Streaming::new(answers(request.into_inner())).into())
    }

    async fn streaming_input_call(
        &self,
        mut request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let mut len = 0;
        while let Some(message) = request.get_mut().message().await? {
            len += message.payload.map_or(0, |payload| payload.body.len());
        }
        let aggregated_payload_size = len.try_into().map_err(|_| Status::out_of_range("that is too much to count"))?;
        Ok(StreamingInputCallResponse { aggregated_payload_size }.into())
    }

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Streaming<StreamingOutputCallResponse>>, Status> {
        let (metadata, trailers) = echoed(request.metadata())?;
        let messages = request.into_inner().map_ok(answers).try_flatten();
        let mut response = Response::new(Streaming::new(messages).with_trailers(trailers));
        *response.metadata_mut() = metadata;
        Ok(response)
    }

    async fn half_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Streaming<StreamingOutputCallResponse>>, Status> {
        let requests: Vec<_> = request.into_inner().try_collect().await?;
        Ok(Streaming::new(stream::iter(requests).flat_map(answers)).into())
    }

    async fn unimplemented_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("nobody implements this"))
    }
}

/// Answers a request with the messages that it wants.
fn answers(
    request: StreamingOutputCallRequest,
) -> impl futures_util::Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send + Unpin {
    let failure = fail_as_told(request.response_status).err().map(Err);
    let wanted =
        stream::iter(request.response_parameters).then(|ResponseParameters { size, interval_us }| async move {
            sleep(Duration::from_micros(interval_us.try_into().unwrap_or_default())).await;
            Ok(StreamingOutputCallResponse { payload: Some(payload(size)?) })
        });
    Box::pin(stream::iter(failure).chain(wanted))
}

fn fail_as_told(status: Option<EchoStatus>) -> Result<(), Status> {
    match status {
        Some(EchoStatus { code, message }) if code != 0 => Err(Status::new(Code::from_number(code), message)),
        _ => Ok(()),
    }
}

fn payload(len: i32) -> Result<Payload, Status> {
    let len = len.try_into().map_err(|_| Status::invalid_argument(format!("a payload of {len} bytes")))?;
    Ok(Payload { body: vec![0; len], ..Payload::default() })
}

/// Returns the metadata and the trailers that a caller wants back.
fn echoed(metadata: &Metadata) -> Result<(Metadata, Metadata), Status> {
    let (mut head, mut trailers) = (Metadata::new(), Metadata::new());
    if let Some(value) = metadata.get(INITIAL) {
        head.insert(INITIAL, value).map_err(|error| Status::internal(error.to_string()))?;
    }
    if let Some(value) = metadata.get_bin(TRAILING) {
        trailers.insert_bin(TRAILING, value).map_err(|error| Status::internal(error.to_string()))?;
    }
    Ok((head, trailers))
}

const INITIAL: &str = "x-grpc-test-echo-initial";
const TRAILING: &str = "x-grpc-test-echo-trailing-bin";
