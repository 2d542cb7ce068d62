//! Schemas from servers with reflection, on any wire.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use bytes::Bytes;
use frpc::{
    Body, Call, Channel, Code, Head, Method, Status, Streaming, codec::Format, prost::Message,
    prost_types::FileDescriptorProto,
};
use frpc_dynamic::DynamicSchema;
use frpc_services::protos::grpc::reflection::v1::{
    ServerReflectionRequest, ServerReflectionResponse, server_reflection_request::MessageRequest,
    server_reflection_response::MessageResponse,
};
use tokio::time::Instant;

use super::{ServerSchema, split};
use crate::failure::CommandError;

/// The reason why reflection returned no schema.
#[derive(Debug)]
pub(crate) enum ReflectionError {
    /// The server does not support reflection.
    Unsupported(String),
    /// The server speaks plain fRPC, without reflection.
    Plain,
    /// The reflection call failed.
    Call(Status),
    /// The server returned invalid data, or the local files are invalid.
    Failed(CommandError),
}

/// Both versions have the same messages. If a server lacks one, the other is tried.
static VERSIONS: [Method; 2] = [
    Method::bidirectional("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo", 0),
    Method::bidirectional("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo", 0),
];

/// Returns the schema of the service of a method, or of all services.
pub(super) async fn schema(channel: &Channel, needed: Option<&str>) -> Result<ServerSchema, ReflectionError> {
    match channel.call_format().await.map_err(ReflectionError::Call)? {
        Format::Proto => {}
        Format::Polyglot => return Err(ReflectionError::Plain),
        _ => return Err(ReflectionError::Unsupported("it does not support protocol buffers".to_owned())),
    }
    described(channel, needed).await
}

/// Returns the schema of a server that accepts protocol buffers.
async fn described(channel: &Channel, needed: Option<&str>) -> Result<ServerSchema, ReflectionError> {
    let deadline = Instant::now() + ANSWERS_TIME_MAX;
    let mut asking =
        ReflectionQuery { channel, method: &VERSIONS[0], files: HashMap::new(), received_len: 0, deadline };
    // With the full name of the service, one question is enough, and other services are not downloaded.
    if let Some(service) = needed.and_then(|name| split(name).0).filter(|service| service.contains('.')) {
        match asking.ask([MessageRequest::FileContainingSymbol(service.to_owned())]).await {
            Ok(_) if !asking.files.is_empty() => return asking.into_schema(Vec::new()).await,
            Ok(_) => {}
            Err(other) => return Err(other),
        }
    }
    let mut services = Vec::new();
    for answer in asking.ask([MessageRequest::ListServices(String::new())]).await? {
        if let MessageResponse::ListServicesResponse(list) = answer {
            services.extend(list.service.into_iter().map(|service| service.name));
        }
    }
    let questions: Vec<_> = services.iter().cloned().map(MessageRequest::FileContainingSymbol).collect();
    asking.ask(questions).await?;
    asking.into_schema(services).await
}

struct ReflectionQuery<'a> {
    channel: &'a Channel,
    method: &'static Method,
    /// The received files by name.
    files: HashMap<String, ReceivedFile>,
    /// The length of all answers.
    received_len: usize,
    /// The end of the last call.
    deadline: Instant,
}

struct ReceivedFile {
    imports: Vec<String>,
    encoded: Vec<u8>,
}

impl ReflectionQuery<'_> {
    /// Asks all questions in one call and sends them before reading answers, as half-duplex wires require.
    async fn ask(
        &mut self,
        questions: impl IntoIterator<Item = MessageRequest>,
    ) -> Result<Vec<MessageResponse>, ReflectionError> {
        let questions: Vec<Bytes> = questions
            .into_iter()
            .map(|question| {
                let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
                request.encode_to_vec().into()
            })
            .collect();
        let mut answered = self.call(questions.clone()).await;
        if matches!(&answered, Err(status) if status.code() == Code::Unimplemented) && self.method == &VERSIONS[0] {
            self.method = &VERSIONS[1];
            answered = self.call(questions).await;
        }
        let answers = answered.map_err(|status| match status.code() {
            Code::Unimplemented | Code::NotFound => ReflectionError::Unsupported(status.message().to_owned()),
            _ => ReflectionError::Call(status),
        })?;
        for answer in &answers {
            if let MessageResponse::FileDescriptorResponse(files) = answer {
                for bytes in &files.file_descriptor_proto {
                    let file = FileDescriptorProto::decode(&bytes[..]).map_err(|error| senseless(&error))?;
                    let received = ReceivedFile { imports: file.dependency, encoded: bytes.to_vec() };
                    self.files.insert(file.name.unwrap_or_default(), received);
                    if self.files.len() > FILES_MAX {
                        let what = format!("the server has more than {FILES_MAX} proto files");
                        return Err(ReflectionError::Failed(CommandError::new(what).with_try("--descriptor-set FILE")));
                    }
                }
            }
        }
        Ok(answers)
    }

    async fn call(&mut self, questions: Vec<Bytes>) -> Result<Vec<MessageResponse>, Status> {
        let body = Body::Many(Streaming::from_iter(questions));
        let mut head = Head::default();
        head.set_timeout(self.deadline.saturating_duration_since(Instant::now()));
        let call = Call::new(self.method, Format::Proto, head, body);
        let Body::Many(mut answers) = self.channel.call(call).await?.into_body() else {
            return Err(Status::internal("reflection answered without a stream"));
        };
        let mut all = Vec::new();
        while let Some(answer) = answers.message().await? {
            self.received_len += answer.len();
            if self.received_len > ANSWERS_LEN_MAX {
                let why = format!("the server describes its services in more than {ANSWERS_LEN_MAX} bytes");
                return Err(Status::resource_exhausted(why));
            }
            let answer =
                ServerReflectionResponse::decode(answer).map_err(|error| Status::internal(error.to_string()))?;
            all.extend(answer.message_response);
        }
        Ok(all)
    }

    /// Downloads missing imports and builds the schema.
    async fn into_schema(mut self, services: Vec<String>) -> Result<ServerSchema, ReflectionError> {
        let mut types = DynamicSchema::new();
        let mut asked = HashSet::new();
        loop {
            let imports = self.files.values().flat_map(|file| &file.imports);
            let missing: Vec<_> = imports
                .filter(|name| !self.files.contains_key(*name) && types.pool().get_file_by_name(name).is_none())
                .filter(|name| asked.insert((*name).clone()))
                .cloned()
                .map(MessageRequest::FileByFilename)
                .collect();
            if missing.is_empty() {
                break;
            }
            self.ask(missing).await?;
        }
        types.add_files(self.files.into_values().map(|file| file.encoded)).map_err(|error| senseless(&error))?;
        let unknown = services.into_iter().filter(|name| types.pool().get_service_by_name(name).is_none()).collect();
        Ok(ServerSchema::new(types).with_unknown(unknown))
    }
}

/// The maximum number of files of a server. Each file can import another, so a hostile server could continue forever.
const FILES_MAX: usize = 10_000;

/// The maximum length of all answers.
const ANSWERS_LEN_MAX: usize = 64 * 1024 * 1024;

/// The maximum time of all reflection calls: each answer can ask for another file.
const ANSWERS_TIME_MAX: Duration = Duration::from_secs(30);

fn senseless(error: &dyn std::error::Error) -> ReflectionError {
    ReflectionError::Failed(CommandError::new(format!("the server returned an invalid schema: {error}")))
}

#[cfg(test)]
mod tests {
    use frpc::{
        Request, Response,
        generated::{Answer, Service},
    };
    use frpc_services::protos::grpc::reflection::v1::FileDescriptorResponse;
    use tokio::time::sleep;

    use super::*;

    /// A server that answers with a file of this length, which imports one more file, as often as told.
    struct HostileServer {
        file_len: usize,
        answers: usize,
        pause: Duration,
    }

    impl Service for HostileServer {
        const NAME: &'static str = "grpc.reflection.v1.ServerReflection";
        const METHODS: &'static [Method] = &[VERSIONS[0]];

        async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
            sleep(self.pause).await;
            call.bidirectional(async |request: Request<Streaming<ServerReflectionRequest>>| {
                let asked = request.into_inner().message().await?.and_then(|question| question.message_request);
                let name = match asked {
                    Some(MessageRequest::FileByFilename(name)) => name,
                    _ => "a".to_owned(),
                };
                let file = FileDescriptorProto {
                    dependency: vec![format!("{name}a")],
                    package: Some("a".repeat(self.file_len)),
                    name: Some(name),
                    ..FileDescriptorProto::default()
                };
                let files = FileDescriptorResponse { file_descriptor_proto: vec![file.encode_to_vec().into()] };
                let answer = ServerReflectionResponse {
                    message_response: Some(MessageResponse::FileDescriptorResponse(files)),
                    ..ServerReflectionResponse::default()
                };
                Ok(Response::new(Streaming::from_iter(vec![answer; self.answers])))
            })
            .await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn endless_answers_and_imports_end() {
        for (server, code) in [
            (HostileServer { file_len: 1 << 20, answers: 100, pause: Duration::ZERO }, Code::ResourceExhausted),
            (HostileServer { file_len: 1 << 20, answers: 1, pause: Duration::ZERO }, Code::ResourceExhausted),
            (HostileServer { file_len: 1, answers: 1, pause: Duration::from_secs(1) }, Code::DeadlineExceeded),
        ] {
            let start = Instant::now();
            let found = described(&Channel::in_process(server), Some("a.A/B")).await;
            assert!(matches!(&found, Err(ReflectionError::Call(status)) if status.code() == code), "{found:?}");
            assert!(start.elapsed() <= ANSWERS_TIME_MAX + Duration::from_secs(1), "{:?}", start.elapsed());
        }
    }
}
