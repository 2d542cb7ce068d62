//! Makes the calls requested by the suite and reports their results.

use std::{collections::HashMap, mem, time::Duration};

use frpc::{
    Channel, ClientTls, Code, Config, Metadata, Pem, Request, Response, Status, StreamSender, Streaming,
    codec::Format,
    prost::{Message, Name},
};
use frpc_http::{Client, ClientSettings, HttpVersion};
use futures_util::stream;
use tokio::{sync::Mutex, time::sleep};

use crate::{
    from_metadata,
    protos::{
        BidiStreamRequest, ClientCompatRequest, ClientCompatResponse, ClientErrorResult, ClientResponseResult,
        ClientStreamRequest, Codec, Compression, ConformancePayload, Error, HttpVersion as Version,
        IdempotentUnaryRequest, Protocol, ServerStreamRequest, StreamType, UnaryRequest, UnimplementedRequest,
        client_compat_request::cancel::CancelTiming, client_compat_response::Result as Outcome,
        conformance_service_client::ConformanceServiceClient,
    },
    to_metadata,
};

/// Makes calls. Calls to the same server with the same settings share a channel.
#[derive(Default)]
pub struct Runner {
    channels: Mutex<HashMap<Vec<u8>, Channel>>,
}

type Problem = Box<dyn std::error::Error + Send + Sync>;

impl Runner {
    /// Makes a call and reports the result.
    pub async fn run(&self, request: ClientCompatRequest) -> ClientCompatResponse {
        let test_name = request.test_name.clone();
        let outcome = match self.call(request).await {
            Ok(response) => Outcome::Response(response),
            Err(problem) => Outcome::Error(ClientErrorResult { message: problem.to_string() }),
        };
        ClientCompatResponse { test_name, result: Some(outcome) }
    }

    async fn call(&self, request: ClientCompatRequest) -> Result<ClientResponseResult, Problem> {
        let client = ConformanceServiceClient::new(self.channel(&request).await?);
        let cancel = request.cancel.map(|cancel| cancel.cancel_timing.unwrap_or(CancelTiming::AfterCloseSendMs(0)));
        let call = Making { client, request, cancel };
        match call.request.stream_type() {
            StreamType::Unary => call.unary().await,
            StreamType::ClientStream => call.client_stream().await,
            StreamType::ServerStream => call.server_stream().await,
            StreamType::HalfDuplexBidiStream => call.bidi_stream(false).await,
            StreamType::FullDuplexBidiStream => call.bidi_stream(true).await,
            StreamType::Unspecified => Err("the call has no type".into()),
        }
    }

    async fn channel(&self, request: &ClientCompatRequest) -> Result<Channel, Problem> {
        let key = ClientCompatRequest {
            http_version: request.http_version,
            protocol: request.protocol,
            codec: request.codec,
            compression: request.compression,
            host: request.host.clone(),
            port: request.port,
            server_tls_cert: request.server_tls_cert.clone(),
            client_tls_creds: request.client_tls_creds.clone(),
            message_receive_limit: request.message_receive_limit,
            use_get_http_method: request.use_get_http_method,
            ..ClientCompatRequest::default()
        };
        let mut channels = self.channels.lock().await;
        if let Some(channel) = channels.get(&key.encode_to_vec()) {
            return Ok(channel.clone());
        }
        let channel = connect(&key).await?;
        channels.insert(key.encode_to_vec(), channel.clone());
        Ok(channel)
    }
}

async fn connect(request: &ClientCompatRequest) -> Result<Channel, Problem> {
    let is_secure = !request.server_tls_cert.is_empty();
    let scheme = match (request.protocol(), is_secure) {
        (Protocol::Connect, false) => "http",
        (Protocol::Connect, true) => "https",
        (Protocol::Grpc, false) => "grpc",
        (Protocol::Grpc, true) => "grpcs",
        (Protocol::GrpcWeb, false) => "grpc-web+http",
        (Protocol::GrpcWeb, true) => "grpc-web+https",
        (Protocol::Unspecified, _) => return Err("the call has no protocol".into()),
    };
    let http_version = match request.http_version() {
        Version::HttpVersion1 => HttpVersion::Http1,
        Version::HttpVersion2 => HttpVersion::Http2,
        version => return Err(format!("not spoken here: {version:?}").into()),
    };
    let format = match request.codec() {
        Codec::Proto => Format::Proto,
        Codec::Json => Format::Json,
        codec => return Err(format!("not spoken here: {codec:?}").into()),
    };
    let gzip_len_min = match request.compression() {
        Compression::Identity | Compression::Unspecified => None,
        Compression::Gzip => Some(0),
        compression => return Err(format!("not spoken here: {compression:?}").into()),
    };
    let use_get = request.use_get_http_method;
    let settings = ClientSettings { http_version, format, gzip_len_min, use_get, ..ClientSettings::default() };
    let client = Client::new().settings(settings);
    // Without a timeout in the request, the suite expects none.
    let mut builder =
        Channel::builder().transport(client).timeout(Duration::MAX).connect_timeout(Duration::from_secs(10));
    if request.message_receive_limit > 0 {
        builder = builder.config(Config { content_len_max: request.message_receive_limit, ..Config::default() });
    }
    if is_secure {
        let mut tls = ClientTls::with_roots(Pem::bytes(request.server_tls_cert.clone()))?;
        if let Some(identity) = &request.client_tls_creds {
            tls = tls.identity(Pem::bytes(identity.cert.clone()), Pem::bytes(identity.key.clone()))?;
        }
        builder = builder.tls(tls);
    }
    Ok(builder.connect(format!("{scheme}://{}:{}", request.host, request.port)).await?)
}

/// A call in progress.
struct Making {
    client: ConformanceServiceClient,
    request: ClientCompatRequest,
    cancel: Option<CancelTiming>,
}

/// A response with the payload expected by the suite.
trait Payload {
    fn payload(self) -> Option<ConformancePayload>;
}

macro_rules! payloads {
    ($($response:ident)*) => {$(
        impl Payload for crate::protos::$response {
            fn payload(self) -> Option<ConformancePayload> {
                self.payload
            }
        }
    )*};
}

payloads! { UnaryResponse IdempotentUnaryResponse ClientStreamResponse ServerStreamResponse BidiStreamResponse }

impl Payload for crate::protos::UnimplementedResponse {
    fn payload(self) -> Option<ConformancePayload> {
        None
    }
}

impl Making {
    fn request<T>(&self, message: T) -> Result<Request<T>, Problem> {
        let mut request = Request::new(message);
        to_metadata(&self.request.request_headers, request.metadata_mut())?;
        if let Some(timeout) = self.request.timeout_ms {
            request.set_timeout(Duration::from_millis(timeout.into()));
        }
        Ok(request)
    }

    fn messages<M: Message + Name + Default>(&self) -> Result<Vec<M>, Problem> {
        self.request.request_messages.iter().map(|message| Ok(message.to_msg()?)).collect()
    }

    fn message<M: Message + Name + Default>(&self) -> Result<Request<M>, Problem> {
        self.request(self.messages()?.pop().ok_or("the call has no message")?)
    }

    /// Waits until the call has to be cancelled after its last request.
    async fn cancelled(&self) {
        match self.cancel {
            Some(CancelTiming::AfterCloseSendMs(after)) => sleep(Duration::from_millis(after.into())).await,
            _ => std::future::pending().await,
        }
    }

    async fn unary(&self) -> Result<ClientResponseResult, Problem> {
        match self.request.method() {
            "Unary" => self.one(self.client.unary(self.message::<UnaryRequest>()?)).await,
            "IdempotentUnary" => {
                self.one(self.client.idempotent_unary(self.message::<IdempotentUnaryRequest>()?)).await
            }
            "Unimplemented" => self.one(self.client.unimplemented(self.message::<UnimplementedRequest>()?)).await,
            method => Err(format!("no method {method} here").into()),
        }
    }

    async fn one<T: Payload>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<ClientResponseResult, Problem> {
        tokio::select! {
            answer = call => Ok(of_one(answer)),
            () = self.cancelled() => Ok(of_failure(&cancelled())),
        }
    }

    async fn client_stream(&self) -> Result<ClientResponseResult, Problem> {
        let (sender, requests) = Streaming::channel(1);
        let messages = self.messages::<ClientStreamRequest>()?;
        let call = self.client.client_stream(self.request(requests)?);
        let sending = async {
            let unsent = self.send(&sender, messages).await;
            if let Some(CancelTiming::BeforeCloseSend(())) = self.cancel {
                return unsent;
            }
            drop(sender);
            match unsent {
                0 => {
                    self.cancelled().await;
                    0
                }
                unsent => unsent,
            }
        };
        let mut sending = std::pin::pin!(sending);
        let mut call = std::pin::pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => {
                // Unsent requests are reported immediately.
                let unsent = tokio::time::timeout(Duration::from_millis(20), sending).await.unwrap_or_default();
                Ok(ClientResponseResult { num_unsent_requests: unsent, ..of_one(answer) })
            }
            0 = &mut sending => Ok(of_failure(&cancelled())),
        }
    }

    /// Sends messages. Returns the number of messages that could not be sent.
    async fn send<M>(&self, sender: &StreamSender<M>, messages: Vec<M>) -> i32 {
        let mut left = i32::try_from(messages.len()).unwrap_or(i32::MAX);
        for message in messages {
            sleep(Duration::from_millis(self.request.request_delay_ms.into())).await;
            if sender.send(message).await.is_err() {
                return left;
            }
            left -= 1;
        }
        0
    }

    /// Returns `true` if no request has to wait, so that a body can have all of them and its end in one write.
    ///
    /// Over HTTP/1.1, the grpc-go server of the suite writes headers after the first request. Go then discards the rest
    /// of the body, in a race with the reader of the server: "http: invalid Read on closed Body".
    fn sends_all_requests_together(&self) -> bool {
        self.request.request_delay_ms == 0 && !matches!(self.cancel, Some(CancelTiming::BeforeCloseSend(())))
    }

    async fn server_stream(&self) -> Result<ClientResponseResult, Problem> {
        let answers = self.client.server_stream(self.message::<ServerStreamRequest>()?).await;
        let mut reading = match Reading::new(self, answers) {
            Ok(reading) => reading,
            Err(status) => return Ok(of_failure(&status)),
        };
        tokio::select! {
            () = reading.read_all() => {}
            () = self.cancelled() => reading.failure = Some(cancelled()),
        }
        Ok(reading.into_result(0))
    }

    async fn bidi_stream(&self, is_full_duplex: bool) -> Result<ClientResponseResult, Problem> {
        let mut messages = self.messages::<BidiStreamRequest>()?;
        let (sender, mut requests) = Streaming::channel(1);
        if !is_full_duplex && self.sends_all_requests_together() {
            requests = Streaming::new(stream::iter(mem::take(&mut messages).into_iter().map(Ok)));
        }
        let answers = self.client.bidi_stream(self.request(requests)?).await;
        let mut reading = match Reading::new(self, answers) {
            Ok(reading) => reading,
            Err(status) => return Ok(of_failure(&status)),
        };
        let mut unsent = 0;
        if is_full_duplex {
            let mut left = messages.len();
            for message in messages {
                sleep(Duration::from_millis(self.request.request_delay_ms.into())).await;
                if sender.send(message).await.is_err() {
                    unsent = i32::try_from(left).unwrap_or(i32::MAX);
                    break;
                }
                left -= 1;
                if !reading.read().await {
                    unsent = i32::try_from(left).unwrap_or(i32::MAX);
                    break;
                }
            }
        } else {
            unsent = self.send(&sender, messages).await;
        }
        if let Some(CancelTiming::BeforeCloseSend(())) = self.cancel {
            reading.failure = Some(cancelled());
            return Ok(reading.into_result(unsent));
        }
        drop(sender);
        tokio::select! {
            () = reading.read_all() => {}
            () = self.cancelled() => reading.failure = Some(cancelled()),
        }
        Ok(reading.into_result(unsent))
    }
}

/// A response stream being read.
struct Reading<T> {
    answers: Streaming<T>,
    payloads: Vec<ConformancePayload>,
    /// Number of responses before the call is cancelled.
    cancel_behind: Option<usize>,
    failure: Option<Status>,
    is_over: bool,
    trailers: Metadata,
}

impl<T: Payload> Reading<T> {
    fn new(making: &Making, answers: Result<Response<Streaming<T>>, Status>) -> Result<Self, Status> {
        let cancel_behind = match making.cancel {
            Some(CancelTiming::AfterNumResponses(behind)) => usize::try_from(behind).ok(),
            _ => None,
        };
        let answers = answers?.into_inner();
        let (payloads, trailers) = (Vec::new(), Metadata::new());
        Ok(Self { answers, payloads, cancel_behind, failure: None, is_over: false, trailers })
    }

    /// Reads the next response. Returns `true` if there may be more.
    async fn read(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        match self.answers.message().await {
            Ok(Some(answer)) => {
                self.payloads.push(answer.payload().unwrap_or_default());
                if self.cancel_behind == Some(self.payloads.len()) {
                    self.failure = Some(cancelled());
                    self.is_over = true;
                }
            }
            Ok(None) => {
                self.trailers = self.answers.trailers().await.ok().flatten().unwrap_or_default();
                self.is_over = true;
            }
            Err(status) => {
                self.failure = Some(status);
                self.is_over = true;
            }
        }
        !self.is_over
    }

    async fn read_all(&mut self) {
        while self.read().await {}
    }

    fn into_result(self, num_unsent_requests: i32) -> ClientResponseResult {
        let headers = self.answers.metadata().map(from_metadata).unwrap_or_default();
        let result = match &self.failure {
            Some(status) => of_failure(status),
            None => ClientResponseResult {
                response_trailers: from_metadata(&self.trailers),
                ..ClientResponseResult::default()
            },
        };
        ClientResponseResult { response_headers: headers, payloads: self.payloads, num_unsent_requests, ..result }
    }
}

fn cancelled() -> Status {
    Status::new(Code::Cancelled, "given up")
}

fn of_one<T: Payload>(answer: Result<Response<T>, Status>) -> ClientResponseResult {
    match answer {
        Ok(answer) => ClientResponseResult {
            response_headers: from_metadata(answer.metadata()),
            response_trailers: from_metadata(answer.trailers()),
            payloads: vec![answer.into_inner().payload().unwrap_or_default()],
            ..ClientResponseResult::default()
        },
        Err(status) => of_failure(&status),
    }
}

/// Reports a failure. All metadata of a failure is reported in one place.
fn of_failure(status: &Status) -> ClientResponseResult {
    let error = Error {
        code: status.code().into(),
        message: Some(status.message().to_owned()),
        details: status.error_details(),
    };
    ClientResponseResult {
        error: Some(error),
        response_trailers: from_metadata(status.metadata()),
        ..ClientResponseResult::default()
    }
}
