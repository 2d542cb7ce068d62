//! The service called by the suite. It follows the instructions in the first message of a call and reports what it
//! received.

use std::time::Duration;

use frpc::{Code, Metadata, Request, Response, Status, StreamSender, Streaming, prost::Name, prost_types::Any};
use tokio::time::sleep;

use crate::{
    headers::{from_metadata, to_metadata},
    protos::{
        BidiStreamRequest, BidiStreamResponse, ClientStreamRequest, ClientStreamResponse, ConformancePayload, Error,
        Header, IdempotentUnaryRequest, IdempotentUnaryResponse, ServerStreamRequest, ServerStreamResponse,
        StreamResponseDefinition, UnaryRequest, UnaryResponse, UnaryResponseDefinition, UnimplementedRequest,
        UnimplementedResponse, conformance_payload::RequestInfo, conformance_service_server::ConformanceService,
        unary_response_definition::Response as Wanted,
    },
};

/// Implements the service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conformance;

impl ConformanceService for Conformance {
    async fn unary(&self, request: Request<UnaryRequest>) -> Result<Response<UnaryResponse>, Status> {
        let info = info(&request, vec![packed(request.get_ref())?]);
        let definition = request.into_inner().response_definition;
        Ok(respond(definition, info).await?.map(|payload| UnaryResponse { payload: Some(payload) }))
    }

    async fn idempotent_unary(
        &self,
        request: Request<IdempotentUnaryRequest>,
    ) -> Result<Response<IdempotentUnaryResponse>, Status> {
        let info = info(&request, vec![packed(request.get_ref())?]);
        let definition = request.into_inner().response_definition;
        Ok(respond(definition, info).await?.map(|payload| IdempotentUnaryResponse { payload: Some(payload) }))
    }

    async fn unimplemented(&self, _: Request<UnimplementedRequest>) -> Result<Response<UnimplementedResponse>, Status> {
        Err(Status::unimplemented("as the suite wants it"))
    }

    async fn client_stream(
        &self,
        mut request: Request<Streaming<ClientStreamRequest>>,
    ) -> Result<Response<ClientStreamResponse>, Status> {
        let (mut definition, mut messages) = (None, Vec::new());
        while let Some(message) = request.get_mut().message().await? {
            messages.push(packed(&message)?);
            if messages.len() == 1 {
                definition = message.response_definition;
            }
        }
        let info = info(&request, messages);
        Ok(respond(definition, info).await?.map(|payload| ClientStreamResponse { payload: Some(payload) }))
    }

    async fn server_stream(
        &self,
        request: Request<ServerStreamRequest>,
    ) -> Result<Response<Streaming<ServerStreamResponse>>, Status> {
        let info = info(&request, vec![packed(request.get_ref())?]);
        let definition = request.into_inner().response_definition.unwrap_or_default();
        let make = |payload| ServerStreamResponse { payload: Some(payload) };
        let (answers, messages) = Answers::new(definition, info, make)?;
        let mut response = Response::new(messages);
        to_metadata(&answers.definition.response_headers, response.metadata_mut()).map_err(refused)?;
        tokio::spawn(answers.send_all());
        Ok(response)
    }

    async fn bidi_stream(
        &self,
        request: Request<Streaming<BidiStreamRequest>>,
    ) -> Result<Response<Streaming<BidiStreamResponse>>, Status> {
        let mut info = info(&request, Vec::new());
        let mut requests = request.into_inner();
        let make = |payload| BidiStreamResponse { payload: Some(payload) };
        // The first message defines the headers of the response.
        let Some(first) = requests.message().await? else { return Ok(Streaming::from_iter([]).into()) };
        info.requests.push(packed(&first)?);
        let is_full_duplex = first.full_duplex;
        let definition = first.response_definition.unwrap_or_default();
        if !is_full_duplex {
            // Send nothing before the client has sent everything.
            while let Some(message) = requests.message().await? {
                info.requests.push(packed(&message)?);
            }
        }
        let (answers, messages) = Answers::new(definition, info, make)?;
        let mut response = Response::new(messages);
        to_metadata(&answers.definition.response_headers, response.metadata_mut()).map_err(refused)?;
        tokio::spawn(async move {
            if is_full_duplex { answers.send_each(requests).await } else { answers.send_all().await }
        });
        Ok(response)
    }
}

/// Answers with one message.
async fn respond(
    definition: Option<UnaryResponseDefinition>,
    info: RequestInfo,
) -> Result<Response<ConformancePayload>, Status> {
    let definition = definition.unwrap_or_default();
    sleep(Duration::from_millis(definition.response_delay_ms.into())).await;
    let data = match definition.response {
        Some(Wanted::Error(error)) => {
            // A response without a message has one place for headers and trailers.
            let metadata = [definition.response_headers, definition.response_trailers].concat();
            return Err(failure(error, Some(info), &metadata)?);
        }
        Some(Wanted::ResponseData(data)) => data,
        None => Vec::new(),
    };
    let mut response = Response::new(ConformancePayload { data, request_info: Some(info) });
    to_metadata(&definition.response_headers, response.metadata_mut()).map_err(refused)?;
    to_metadata(&definition.response_trailers, response.trailers_mut()).map_err(refused)?;
    Ok(response)
}

/// The responses of a stream, sent one after another.
struct Answers<P, F> {
    definition: StreamResponseDefinition,
    trailers: Metadata,
    /// Report sent with the next message.
    info: Option<RequestInfo>,
    /// Number of messages sent.
    len: usize,
    make: F,
    sender: StreamSender<P>,
}

impl<P: Send + 'static, F: Fn(ConformancePayload) -> P> Answers<P, F> {
    fn new(definition: StreamResponseDefinition, info: RequestInfo, make: F) -> Result<(Self, Streaming<P>), Status> {
        let mut trailers = Metadata::new();
        to_metadata(&definition.response_trailers, &mut trailers).map_err(refused)?;
        let (sender, messages) = Streaming::channel(1);
        Ok((Self { definition, trailers, info: Some(info), len: 0, make, sender }, messages))
    }

    /// Answers each request, up to the last response.
    async fn send_each(mut self, mut requests: Streaming<BidiStreamRequest>) {
        loop {
            if self.len >= self.definition.response_data.len() || !self.send().await {
                return self.finish().await;
            }
            match requests.message().await {
                Ok(Some(message)) => {
                    let requests = packed(&message).into_iter().collect();
                    self.info = Some(RequestInfo { requests, ..RequestInfo::default() });
                }
                Ok(None) => return self.send_all().await,
                Err(status) => return self.sender.fail(status).await,
            }
        }
    }

    /// Sends the remaining responses.
    async fn send_all(mut self) {
        while self.len < self.definition.response_data.len() && self.send().await {}
        self.finish().await;
    }

    /// Sends the next message. Returns `false` if the receiver is gone.
    async fn send(&mut self) -> bool {
        sleep(Duration::from_millis(self.definition.response_delay_ms.into())).await;
        let data = std::mem::take(&mut self.definition.response_data[self.len]);
        self.len += 1;
        let payload = ConformancePayload { data, request_info: self.info.take() };
        self.sender.send((self.make)(payload)).await.is_ok()
    }

    async fn finish(self) {
        let Some(error) = self.definition.error else { return self.sender.finish(self.trailers) };
        let info = self.info.filter(|_| self.len == 0);
        let status = failure(error, info, &self.definition.response_trailers).unwrap_or_else(|status| status);
        self.sender.fail(status).await;
    }
}

/// Returns the status expected by the suite.
fn failure(error: Error, info: Option<RequestInfo>, metadata: &[Header]) -> Result<Status, Status> {
    let mut details = error.details;
    if let Some(info) = info {
        details.push(packed(&info)?);
    }
    let mut status =
        Status::with_error_details(Code::from_number(error.code), error.message.unwrap_or_default(), details);
    to_metadata(metadata, status.metadata_mut()).map_err(refused)?;
    Ok(status)
}

/// Returns the information about a call expected by the suite.
fn info<T>(request: &Request<T>, requests: Vec<Any>) -> RequestInfo {
    RequestInfo {
        request_headers: from_metadata(request.metadata()),
        timeout_ms: request.timeout().and_then(|timeout| timeout.as_millis().try_into().ok()),
        requests,
        connect_get_info: None,
    }
}

fn packed<M: Name>(message: &M) -> Result<Any, Status> {
    Any::from_msg(message).map_err(|error| Status::internal(error.to_string()))
}

fn refused(error: frpc::InvalidMetadata) -> Status {
    Status::internal(format!("the suite wants headers that frpc has no place for: {error}"))
}
