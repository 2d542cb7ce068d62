//! Prepared calls: the channel, the method, and the codecs of its messages.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use frpc::{Body, Call, CallError, Channel, Head, Metadata, Method, MethodKind, codec::Format};
use frpc_http::HttpStatusError;
use prost_reflect::DescriptorPool;
use serde_json::Value;

use crate::{
    arguments::{CallArguments, MetadataOptions, add_metadata, read},
    connect::ConnectOptions,
    failure::{CommandError, Result},
    messages::DynamicCodec,
    schema::{self, ReflectionError, SchemaSources, ServerSchema},
    terminal::print_note,
};

/// Options of commands that call a method.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CallOptions {
    /// The address of the server. Its scheme selects the protocol: see below.
    address: String,
    /// The method as package.Service/Method, or any unambiguous part. Omit it if the address ends with the method, as
    /// in http://HOST:PORT/package.Service/Method.
    method: Option<String>,
    /// The fields of the message and the metadata: see below.
    #[arg(allow_negative_numbers = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
    #[command(flatten)]
    pub(crate) connect: ConnectOptions,
    #[command(flatten)]
    pub(crate) sources: SchemaSources,
    /// The message as JSON, as @FILE, or as @- for standard input. Streams take several messages in sequence.
    #[arg(long, short = 'd', value_name = "JSON", help_heading = "Message")]
    pub(crate) data: Option<String>,
    /// A file with the message as JSON, or - for standard input.
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "data", help_heading = "Message")]
    pub(crate) file: Option<String>,
    /// A file with the message in protobuf format.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data", "file"], help_heading = "Message")]
    pub(crate) binary: Option<String>,
    #[command(flatten)]
    metadata: MetadataOptions,
    /// The deadline of the call, such as 500ms, also sent to the server. Default: an hour for the first answer, or 30s
    /// with plain fRPC.
    #[arg(long, short = 't', visible_alias = "max-time", value_name = "TIME", value_parser = crate::connect::parse_time, help_heading = "Call")]
    pub(crate) timeout: Option<Duration>,
    /// The kind of the method, if its schema is unknown.
    #[arg(long, value_enum, default_value_t = KindArgument::Unary, help_heading = "Call")]
    pub(crate) kind: KindArgument,
    /// Sends messages as the given JSON, without asking for a schema.
    #[arg(long, help_heading = "Schema")]
    pub(crate) no_schema: bool,
    /// Sends JSON instead of protobuf, on wires with support for both.
    #[arg(long, help_heading = "Call")]
    pub(crate) as_json: bool,
    /// The number of the first method of the proto file, for plain fRPC servers built with a number other than 10.
    #[arg(long, value_name = "NUMBER", help_heading = "Schema")]
    pub(crate) first_operation: Option<u16>,
}

impl CallOptions {
    /// Returns the address, method and arguments. If the URL ends with the method, the `method` argument is the first
    /// field.
    pub(crate) fn target(&self) -> Result<(&str, &str, CallArguments)> {
        let (address, method, arguments) = (self.address.as_str(), self.method.as_deref(), &self.arguments);
        let is_argument = |text: &str| text.contains(['=', ':', '@']);
        if let Some(method) = method.filter(|method| !is_argument(method)) {
            return Ok((address, method, CallArguments::parse(arguments)?));
        }
        let place = address.find("://").map_or(0, |at| at + 3);
        let path = address[place..].find('/').map(|at| place + at);
        let service = path
            .and_then(|path| address.rfind('/').and_then(|last| address[path..last].rfind('/')).map(|at| path + at));
        let Some(at) = service else {
            return Err(CommandError::new("no method given")
                .with_try(format!("`frpc list {address}`, for the available methods")));
        };
        let arguments: Vec<_> = method.map(str::to_owned).into_iter().chain(arguments.iter().cloned()).collect();
        Ok((&address[..at], &address[at + 1..], CallArguments::parse(&arguments)?))
    }

    /// Returns `true` if the options contain a message.
    pub(crate) fn gives_messages(&self) -> bool {
        self.data.is_some() || self.file.is_some() || self.binary.is_some()
    }

    /// Prepares a channel to a plain fRPC peer: it has no reflection, no JSON, and no errors for unknown methods.
    fn for_plain_peer(&self, channel: Channel) -> Result<Channel> {
        if self.no_schema || self.as_json {
            return Err(CommandError::new(
                "the peer speaks plain fRPC, like servers in Go: plain fRPC carries no JSON",
            )
            .with_try("--proto FILE, without --no-schema and --as-json"));
        }
        if self.sources.is_empty() {
            return Err(CommandError::new(
                "the peer speaks plain fRPC, like servers in Go: it has no reflection, so a call needs its schema",
            )
            .with_try("--proto FILE or --descriptor-set FILE, with the same schema as the server")
            .with_try("another wire of the same server, such as grpc:// or http://"));
        }
        Ok(channel.with_timeout(PLAIN_ANSWER_MAX))
    }
}

/// The default timeout for plain fRPC. Its peers do not report unknown methods or invalid messages, so such calls would
/// wait for the usual hour.
const PLAIN_ANSWER_MAX: Duration = Duration::from_secs(30);

/// The kind of a method.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindArgument {
    Unary,
    Server,
    Client,
    Bidi,
}

impl From<KindArgument> for MethodKind {
    fn from(kind: KindArgument) -> Self {
        match kind {
            KindArgument::Unary => Self::Unary,
            KindArgument::Server => Self::ServerStreaming,
            KindArgument::Client => Self::ClientStreaming,
            KindArgument::Bidi => Self::Bidirectional,
        }
    }
}

/// A prepared method call.
#[derive(Clone, Debug)]
pub(crate) struct PreparedCall {
    pub(crate) channel: Channel,
    pub(crate) method: &'static Method,
    pub(crate) request: DynamicCodec,
    pub(crate) response: DynamicCodec,
    /// The types for decoding status details.
    pub(crate) pool: Option<DescriptorPool>,
    is_json_rpc: bool,
    metadata: Metadata,
    timeout: Option<Duration>,
}

impl PreparedCall {
    /// Connects and determines the schema of a method.
    pub(crate) async fn prepare(
        options: &CallOptions,
        address: &str,
        method: &str,
        arguments: &CallArguments,
        is_json: bool,
    ) -> Result<Self> {
        let format = if options.as_json || options.no_schema { Format::Json } else { Format::Proto };
        let mut channel = options.connect.connect(address, format).await?;
        let mut call_format = options.connect.format_of(&channel).await?;
        if call_format == Format::Polyglot {
            channel = options.for_plain_peer(channel)?;
        }
        let mut metadata = options.metadata.metadata()?;
        add_metadata(&mut metadata, arguments.metadata.iter().map(|(name, value)| (&**name, &**value)))?;
        let schema = Self::schema(options, address, method, &channel, &metadata).await?;
        if schema.is_none() && call_format == Format::Proto {
            if !options.no_schema && !is_json {
                print_note("the server does not describe its services (no reflection): sending JSON as given");
            }
            channel = options.connect.connect(address, Format::Json).await?;
            call_format = options.connect.format_of(&channel).await?;
        }
        let format = match (call_format, &schema) {
            // Frisbee accepts both formats.
            (Format::Proto, None) => Format::Json,
            (Format::Proto, Some(_)) if options.as_json => Format::Json,
            (format, _) => format,
        };
        let found = schema.as_ref().map(|schema| schema.method(method)).transpose();
        let found = found.map_err(|failure| with_list(failure, address))?;
        let (kind, shapes) = match &found {
            Some(found) => (schema::kind(found), Some((found.input(), found.output()))),
            None => (options.kind.into(), None),
        };
        let path = found.as_ref().map_or_else(|| method.to_owned(), schema::path);
        let layouts = match (format, &schema, &found) {
            (Format::Polyglot, Some(schema), Some(found)) => {
                Some(Arc::new(schema.layouts(found, options.first_operation)?))
            }
            _ => None,
        };
        // Only plain fRPC uses operation numbers. Other peers find the method by its path.
        let operation = layouts.as_ref().and_then(|layouts| layouts.operation(&path)).unwrap_or_default();
        let (request, response) = shapes.unzip();
        Ok(Self {
            channel,
            // JSON-RPC names may contain any characters, so do not split them.
            method: if is_json_rpc(address) {
                leaked(None, &path, kind, 0)
            } else {
                leaked_path(&path, kind, operation)
            },
            request: DynamicCodec { shape: request, format, layouts: layouts.clone() },
            response: DynamicCodec { shape: response, format, layouts },
            pool: schema.map(|schema| schema.pool().clone()),
            is_json_rpc: is_json_rpc(address),
            metadata,
            timeout: options.timeout,
        })
    }

    /// Returns the schema for the method, or `None` if there is none and JSON is sent.
    async fn schema(
        options: &CallOptions,
        address: &str,
        method: &str,
        channel: &Channel,
        metadata: &Metadata,
    ) -> Result<Option<ServerSchema>> {
        if options.no_schema || is_json_rpc(address) && options.sources.is_empty() {
            return Ok(None);
        }
        // Twirp has no streams, as needed for reflection, so use Connect on the same port.
        let beside = match address.strip_prefix("twirp+").filter(|_| options.sources.is_empty()) {
            Some(http) => options.connect.connect(http, Format::Proto).await.ok(),
            None if options.as_json => options.connect.connect(address, Format::Proto).await.ok(),
            None => None,
        };
        match options.sources.schema(beside.as_ref().unwrap_or(channel), metadata, Some(method)).await {
            Ok(schema) => Ok(Some(schema)),
            Err(ReflectionError::Unsupported(_) | ReflectionError::Plain) => Ok(None),
            Err(ReflectionError::Failed(failure)) => Err(failure),
            Err(ReflectionError::Call(status)) if status.code() == frpc::Code::Unauthenticated => {
                Err(call_failure(status, None).with_try("--no-schema, if only reflection needs the token"))
            }
            Err(ReflectionError::Call(status)) => Err(call_failure(status, None)),
        }
    }

    /// Returns the same call on a new connection.
    pub(crate) async fn on_another_connection(&self, options: &CallOptions, address: &str) -> Result<Self> {
        let mut channel = options.connect.connect(address, self.request.format).await?;
        if self.request.format == Format::Polyglot {
            channel = options.for_plain_peer(channel)?;
        }
        Ok(Self { channel, ..self.clone() })
    }

    /// Creates a call with `body`.
    pub(crate) fn call(&self, body: Body) -> Call {
        let mut head = Head::default();
        *head.metadata_mut() = self.metadata.clone();
        if let Some(timeout) = self.timeout {
            head.set_timeout(timeout);
        }
        Call::new(self.method, self.request.format, head, body)
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the failure of a call, with suggestions.
    pub(crate) fn failure(&self, status: frpc::Status) -> CommandError {
        let (code, cause) = (status.code(), status.call_error().cloned());
        // Over HTTP, the server chooses the path of JSON-RPC.
        let is_elsewhere = self.is_json_rpc && HttpStatusError::of(&status).is_some_and(|error| error.0 == 404);
        let failure = call_failure(status, self.pool.as_ref());
        match (code, cause) {
            (_, Some(CallError::MetadataNotCarried { .. })) => failure.with_try("the same without -H and NAME:VALUE"),
            (frpc::Code::DeadlineExceeded, _) if self.request.format == Format::Polyglot => failure.with_try(
                "the proto file of the server: plain fRPC numbers methods in their order, and servers do not report \
                 unknown numbers or invalid messages",
            ),
            (frpc::Code::Unimplemented, _) if is_elsewhere => {
                failure.with_try("the path of JSON-RPC at the end of the address, such as jsonrpc+http://HOST:PORT/rpc")
            }
            _ => failure,
        }
    }

    /// Returns the encoded messages given by options and arguments.
    pub(crate) fn messages(&self, options: &CallOptions, arguments: &CallArguments) -> Result<Vec<Bytes>> {
        if let Some(path) = &options.binary {
            return Ok(vec![self.request.encode_binary(read(path)?.into())?]);
        }
        let text = match (&options.data, &options.file) {
            (Some(data), _) => match data.strip_prefix('@') {
                Some(path) => Some((read(if path.is_empty() { "-" } else { path })?, data.as_str())),
                None => Some((data.clone().into_bytes(), "--data")),
            },
            (None, Some(path)) => Some((read(path)?, path.as_str())),
            (None, None) => None,
        };
        let mut values = match text {
            Some((text, from)) => parse(&text, from)?,
            None => Vec::new(),
        };
        if values.is_empty() && (!self.method.kind.has_request_stream() || !arguments.is_empty()) {
            values.push(Value::Null);
        }
        if values.len() > 1 && !self.method.kind.has_request_stream() {
            return Err(CommandError::new(format!("{} messages were given, but the method takes one", values.len())));
        }
        for value in &mut values {
            arguments.put_into(value, self.request.shape.as_ref())?;
        }
        values.iter().map(|value| self.request.encode(value)).collect()
    }
}

/// Parses a sequence of JSON values.
fn parse(text: &[u8], from: &str) -> Result<Vec<Value>> {
    let values = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    values
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| CommandError::new(format!("{from}: not valid JSON: {error}")))
}

fn with_list(failure: CommandError, address: &str) -> CommandError {
    failure.with_try(format!("`frpc list {address}`"))
}

/// Returns the failure of a call, with suggestions depending on its code.
pub(crate) fn call_failure(status: frpc::Status, pool: Option<&DescriptorPool>) -> CommandError {
    let details = crate::messages::details(&status, pool);
    let failure = |tries: Vec<String>| CommandError::Call { details: details.clone(), status: status.clone(), tries };
    let advice = match status.code() {
        frpc::Code::Unauthenticated => "-H 'authorization: Bearer TOKEN'",
        frpc::Code::DeadlineExceeded => "a longer --timeout",
        frpc::Code::Unavailable if status.call_error().is_some() => {
            "the address and its scheme: the server may speak another protocol there"
        }
        _ => return failure(Vec::new()),
    };
    failure(vec![advice.to_owned()])
}

/// Returns `true` for JSON-RPC addresses. Such servers have functions instead of reflection.
pub(crate) fn is_json_rpc(address: &str) -> bool {
    address.starts_with("jsonrpc+")
}

fn leaked_path(path: &str, kind: MethodKind, operation: u16) -> &'static Method {
    let (service, name) = schema::split(path);
    leaked(service, name, kind, operation)
}

/// Creates a method with names known only at run time. They are leaked, but a process uses few.
pub(crate) fn leaked(service: Option<&str>, name: &str, kind: MethodKind, operation: u16) -> &'static Method {
    let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let (service, name) = (leak(service.unwrap_or_default()), leak(name));
    let method = match kind {
        MethodKind::Unary => Method::unary(service, name, operation),
        MethodKind::ServerStreaming => Method::server_streaming(service, name, operation),
        MethodKind::ClientStreaming => Method::client_streaming(service, name, operation),
        MethodKind::Bidirectional => Method::bidirectional(service, name, operation),
    };
    Box::leak(Box::new(method))
}
