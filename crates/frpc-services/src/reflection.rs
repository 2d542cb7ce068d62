//! The service `grpc.reflection.v1.ServerReflection` and its predecessor.

use std::{
    fmt,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

use frpc::{Answer, Call, Code, Method, Request, Response, Service, Status, Streaming, shown};
use futures_util::stream;

use crate::{
    catalog::{FileCatalog, SentFiles},
    protos::grpc::reflection::{
        v1::{
            ErrorResponse, ExtensionNumberResponse, ExtensionRequest, FileDescriptorResponse, ListServiceResponse,
            ServerReflectionRequest, ServerReflectionResponse, ServiceResponse, server_reflection_methods,
            server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
        },
        v1alpha,
    },
};

/// The server reflection service. It describes the services of a server to clients without proto files, such as
/// grpcurl.
///
/// Current clients use [`Reflection::v1`], older ones [`Reflection::v1alpha`]. A server can offer both. No
/// configuration is needed: it describes all services of its server, including itself, from the proto files compiled
/// into the server. Handwritten methods without [types](Method::types) appear with the name of their service only.
///
/// ```
/// use frpc::Server;
/// use frpc_services::Reflection;
///
/// let server = Server::builder().add_service(Reflection::v1()).add_service(Reflection::v1alpha());
/// # let _ = server;
/// ```
pub struct Reflection<V> {
    catalog: Arc<OnceLock<FileCatalog>>,
    version: PhantomData<fn() -> V>,
}

/// A version of the reflection service.
pub trait Version: sealed::Version {}

/// The version `grpc.reflection.v1`.
#[derive(Clone, Copy, Debug)]
pub struct V1;

/// The version `grpc.reflection.v1alpha`. Its messages differ in name only.
#[derive(Clone, Copy, Debug)]
pub struct V1Alpha;

impl Version for V1 {}
impl Version for V1Alpha {}

mod sealed {
    use frpc::Method;

    pub trait Version: 'static {
        const METHOD: Method;
    }
}

impl sealed::Version for V1 {
    const METHOD: Method = server_reflection_methods::SERVER_REFLECTION_INFO;
}

impl sealed::Version for V1Alpha {
    const METHOD: Method = v1alpha::server_reflection_methods::SERVER_REFLECTION_INFO;
}

impl Reflection<V1> {
    /// Creates the service `grpc.reflection.v1.ServerReflection`.
    pub fn v1() -> Self {
        Self::new()
    }
}

impl Reflection<V1Alpha> {
    /// Creates the service `grpc.reflection.v1alpha.ServerReflection`.
    pub fn v1alpha() -> Self {
        Self::new()
    }
}

impl<V> Reflection<V> {
    fn new() -> Self {
        Self { catalog: Arc::default(), version: PhantomData }
    }
}

impl<V: Version> Service for Reflection<V> {
    const NAME: &'static str = V::METHOD.service;
    const METHODS: &'static [Method] = &[V::METHOD];

    fn served_with(&self, methods: &[&'static Method]) {
        self.catalog.get_or_init(|| FileCatalog::new(methods));
    }

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        let catalog = self.catalog.clone();
        call.bidirectional(async move |request: Request<Streaming<ServerReflectionRequest>>| {
            let answers = ReflectionStream { catalog, questions: request.into_inner(), sent: SentFiles::default() };
            Ok(Response::new(Streaming::new(stream::try_unfold(answers, ReflectionStream::next))))
        })
        .await
    }
}

impl<V> fmt::Debug for Reflection<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflection").finish_non_exhaustive()
    }
}

/// A stream of answers to a stream of questions.
struct ReflectionStream {
    catalog: Arc<OnceLock<FileCatalog>>,
    questions: Streaming<ServerReflectionRequest>,
    sent: SentFiles,
}

impl ReflectionStream {
    async fn next(mut self) -> Result<Option<(ServerReflectionResponse, Self)>, Status> {
        let Some(question) = self.questions.message().await? else { return Ok(None) };
        let asked = question.message_request.as_ref();
        let asked =
            asked.ok_or_else(|| Status::invalid_argument("the request is empty: set a field of message_request"))?;
        let catalog = self.catalog.get_or_init(FileCatalog::default);
        let answer = answer(catalog, asked, &mut self.sent).unwrap_or_else(|nothing| {
            let error_code = Code::NotFound as i32;
            MessageResponse::ErrorResponse(ErrorResponse { error_code, error_message: nothing })
        });
        let response = ServerReflectionResponse {
            valid_host: question.host.clone(),
            original_request: Some(question),
            message_response: Some(answer),
        };
        Ok(Some((response, self)))
    }
}

/// Answers a question, or returns an error message about the missing item.
fn answer(catalog: &FileCatalog, asked: &MessageRequest, sent: &mut SentFiles) -> Result<MessageResponse, String> {
    match asked {
        MessageRequest::FileByFilename(name) => files(catalog, Some(name), sent, || format!("file '{}'", shown(name))),
        MessageRequest::FileContainingSymbol(symbol) => {
            files(catalog, catalog.file_of_symbol(symbol), sent, || format!("symbol '{}'", shown(symbol)))
        }
        MessageRequest::FileContainingExtension(ExtensionRequest { containing_type, extension_number }) => {
            let file = catalog.file_of_extension(containing_type, *extension_number);
            files(catalog, file, sent, || format!("extension {extension_number} of '{}'", shown(containing_type)))
        }
        MessageRequest::AllExtensionNumbersOfType(name) => {
            let numbers =
                catalog.extension_numbers(name).ok_or_else(|| format!("unknown message '{}'", shown(name)))?;
            let base_type_name = name.clone();
            let response = ExtensionNumberResponse { base_type_name, extension_number: numbers };
            Ok(MessageResponse::AllExtensionNumbersResponse(response))
        }
        MessageRequest::ListServices(_) => {
            let service = catalog.services().map(|name| ServiceResponse { name: name.to_owned() }).collect();
            Ok(MessageResponse::ListServicesResponse(ListServiceResponse { service }))
        }
    }
}

fn files(
    catalog: &FileCatalog,
    name: Option<&str>,
    sent: &mut SentFiles,
    asked: impl FnOnce() -> String,
) -> Result<MessageResponse, String> {
    let files = name.and_then(|name| catalog.file_with_imports(name, sent));
    let file_descriptor_proto = files.ok_or_else(|| format!("unknown {}", asked()))?;
    Ok(MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto }))
}
