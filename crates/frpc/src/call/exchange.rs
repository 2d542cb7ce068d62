//! Calls and answers with encoded messages.

use std::{ptr, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    account::MemoryHold,
    deadline::CallTime,
    extensions::{Extensions, HeadExtras},
    head::Head,
    metadata::Metadata,
    method::{Method, MethodKind},
    request::{Request, Response},
    status::Status,
    streaming::Streaming,
    system::RpcSystem,
    unknown_json::UnknownJson,
};
use crate::codec::{CodecError, DecodeContext, EncodedMessage, Format, MemoryBudget, Message, json::Types};

/// A call on its way to a service, passed between transports, [layers](crate::Layer) and services.
#[derive(Debug)]
pub struct Call {
    method: &'static Method,
    kind: MethodKind,
    format: Format,
    system: RpcSystem,
    memory: MemoryBudget,
    body: Body,
    head: Head,
    extras: Option<Box<CallExtras>>,
}

/// The part of a call that most calls do not need.
#[derive(Debug)]
struct CallExtras {
    time: Option<CallTime>,
    any_types: &'static Types,
}

/// The messages of a call in one direction.
#[derive(Debug)]
#[non_exhaustive]
pub enum Body {
    /// One message.
    One(EncodedMessage),
    /// A stream of messages.
    Many(Streaming<Bytes>),
}

/// The answer to a successful call.
#[derive(Debug)]
pub struct Answer {
    body: Body,
    extras: HeadExtras,
}

impl Call {
    /// Creates a call, usually one received by a wire.
    #[inline]
    pub fn new(method: &'static Method, format: Format, head: Head, body: Body) -> Self {
        let (system, memory) = (RpcSystem::default(), MemoryBudget::default());
        Self { method, kind: method.kind, format, system, memory, body, head, extras: None }
    }

    /// Returns the called method.
    pub fn method(&self) -> &'static Method {
        self.method
    }

    /// Returns the streaming kind as seen by the caller. It differs from the kind of the method if the caller is
    /// mistaken.
    pub fn kind(&self) -> MethodKind {
        self.kind
    }

    pub(crate) fn with_kind(self, kind: MethodKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the format of the messages.
    #[inline]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the RPC system of the wire.
    pub fn system(&self) -> RpcSystem {
        self.system
    }

    #[inline]
    pub(crate) fn with_system(self, system: RpcSystem) -> Self {
        Self { system, ..self }
    }

    /// Returns the memory limit for each decoded message of the caller.
    pub fn memory_budget(&self) -> MemoryBudget {
        self.memory
    }

    #[inline]
    pub(crate) fn set_memory_budget(&mut self, memory: MemoryBudget) {
        self.memory = memory;
    }

    /// Returns more types for an `Any` in JSON, in addition to the types of its message.
    #[inline]
    pub(crate) fn any_types(&self) -> &'static Types {
        self.extras.as_ref().map_or(Types::WELL_KNOWN, |extras| extras.any_types)
    }

    /// Sets more types for an `Any`. Without effect on calls in other formats than JSON.
    #[inline]
    pub(crate) fn set_any_types(&mut self, any_types: &'static Types) {
        if self.format == Format::Json && !ptr::eq(any_types, Types::WELL_KNOWN) {
            self.extras_mut().any_types = any_types;
        }
    }

    fn extras_mut(&mut self) -> &mut CallExtras {
        self.extras.get_or_insert_with(|| Box::new(CallExtras { time: None, any_types: Types::WELL_KNOWN }))
    }

    /// Returns the head of the call: metadata, timeout and extensions.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns a mutable reference to the head.
    pub fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    /// Returns the messages of the caller.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Returns the length of a single message if it is large enough to count against memory limits.
    #[inline]
    pub(crate) fn counted_len(&self) -> Option<usize> {
        let len_min = if self.format == Format::Polyglot { COUNTED_PACKET_LEN } else { COUNTED_LEN };
        match &self.body {
            Body::One(content) => Some(content.len()).filter(|len| *len >= len_min),
            Body::Many(_) => None,
        }
    }

    /// Replaces the messages of the caller. Useful for layers that read or change them.
    pub fn map_body(self, change: impl FnOnce(Body) -> Body) -> Self {
        Self { body: change(self.body), ..self }
    }

    /// Replaces the messages of the caller, or fails.
    ///
    /// # Errors
    ///
    /// Returns the error of `change`. Useful for layers that check or rewrite messages.
    pub fn try_map_body<E>(self, change: impl FnOnce(Body) -> Result<Body, E>) -> Result<Self, E> {
        Ok(Self { body: change(self.body)?, ..self })
    }

    /// Splits the call into its head and its messages.
    #[inline]
    pub fn into_parts(self) -> (Head, Body) {
        (self.head, self.body)
    }

    /// Encodes a request as a call.
    pub(crate) fn of_request<M: Message>(
        method: &'static Method,
        format: Format,
        any_types: &'static Types,
        request: Request<M>,
    ) -> Result<Self, Status> {
        let (head, message) = request.into_parts();
        let body = Body::One(format.encode_with(&message, any_types)?);
        Ok(Self::new(method, format, head, body))
    }

    /// Encodes a request as a unary call whose message is copied soon.
    #[inline(always)] // The call is made where it is passed on.
    pub(crate) fn of_brief_request<M: Message>(
        method: &'static Method,
        format: Format,
        any_types: &'static Types,
        request: Request<M>,
    ) -> Result<Self, Status> {
        let (head, message) = request.into_parts();
        let body = Body::One(format.encode_briefly(&message, any_types)?);
        Ok(Self::new(method, format, head, body).with_kind(MethodKind::Unary))
    }

    /// Encodes a stream of requests as a call.
    pub(crate) fn of_stream<M: Message>(
        method: &'static Method,
        format: Format,
        any_types: &'static Types,
        request: Request<Streaming<M>>,
    ) -> Result<Self, Status> {
        let (head, messages) = request.into_parts();
        Ok(Self::new(method, format, head, Body::Many(messages.encoded_without_panics(format, any_types))))
    }

    /// Decodes the request of a method that takes one message.
    #[inline(always)]
    pub(crate) fn into_request<M: Message>(self) -> Result<Request<M>, Status> {
        let any_types = self.any_types();
        // Field by field, so that the call is not copied as a whole.
        let Self { method, format, memory, body, head, .. } = self;
        match body {
            Body::One(content) => {
                let message = decode_request(method, format, &content.into_bytes(), memory, any_types, &head)?;
                Ok(Request::from_parts(head, message))
            }
            Body::Many(_) => Err(Status::unimplemented("the method takes one message, not a stream")),
        }
    }

    /// Decodes the request of a method that takes a stream.
    pub(crate) fn into_stream_request<M: Message>(self) -> Result<Request<Streaming<M>>, Status> {
        let (any_types, Self { method, format, memory, body, head, .. }) = (self.any_types(), self);
        match body {
            Body::One(_) => Err(Status::unimplemented("the method takes a stream, not one message")),
            Body::Many(contents) => {
                let unknown = UnknownJson::of_caller(format, &head);
                let messages = contents.decoded(method, format, memory, unknown, any_types, request_decode_status);
                Ok(Request::from_parts(head, messages))
            }
        }
    }

    /// Returns the deadlines on the calling side. The deadline of a received call is in its [head](Head::deadline).
    pub fn time(&self) -> CallTime {
        let set = self.extras.as_ref().and_then(|extras| extras.time);
        set.unwrap_or_else(|| CallTime::start(self.head.timeout(), Duration::MAX))
    }

    /// Returns the call with these deadlines on the calling side.
    pub fn with_time(mut self, time: CallTime) -> Self {
        self.extras_mut().time = Some(time);
        self
    }
}

/// One contiguous message.
impl<T: Into<Bytes>> From<T> for Body {
    fn from(content: T) -> Self {
        Self::One(content.into().into())
    }
}

impl Body {
    /// Returns the length of the single message, or `None` for a stream.
    #[inline]
    pub fn content_len(&self) -> Option<usize> {
        match self {
            Self::One(content) => Some(content.len()),
            Self::Many(_) => None,
        }
    }
}

impl Answer {
    /// Creates an answer without metadata.
    #[inline]
    pub fn new(body: Body) -> Self {
        Self { body, extras: HeadExtras::default() }
    }

    /// Returns the messages.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Returns the messages and drops everything else.
    #[inline]
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Replaces the messages of the answer.
    pub fn map_body(self, change: impl FnOnce(Body) -> Body) -> Self {
        Self { body: change(self.body), extras: self.extras }
    }

    /// Replaces the messages of the answer, or fails.
    ///
    /// # Errors
    ///
    /// Returns the error of `change`.
    pub fn try_map_body<E>(self, change: impl FnOnce(Body) -> Result<Body, E>) -> Result<Self, E> {
        Ok(Self { body: change(self.body)?, extras: self.extras })
    }

    /// Calls `end` once with the outcome of the answer. For a stream: after the last message is read, when the stream
    /// fails, or when it is dropped early because the caller gives up ([`Streaming::on_end`]). For a single message:
    /// immediately. Useful for layers that measure or count calls.
    ///
    /// ```
    /// use frpc::{Answer, Call, Code, Layer, Next, Status};
    ///
    /// struct Stopwatch;
    ///
    /// impl Layer for Stopwatch {
    ///     async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
    ///         let (method, start) = (call.method(), std::time::Instant::now());
    ///         let told = move |end: Result<(), &Status>| {
    ///             println!("{method} took {:?}: {:?}", start.elapsed(), end.map_or_else(Status::code, |()| Code::Ok));
    ///         };
    ///         match next.run(call).await {
    ///             Ok(answer) => Ok(answer.on_end(told)),
    ///             Err(status) => {
    ///                 told(Err(&status));
    ///                 Err(status)
    ///             }
    ///         }
    ///     }
    /// }
    /// ```
    pub fn on_end(self, end: impl FnOnce(Result<(), &Status>) + Send + 'static) -> Self {
        self.map_body(|body| match body {
            Body::One(content) => {
                end(Ok(()));
                Body::One(content)
            }
            Body::Many(contents) => Body::Many(contents.on_end(end)),
        })
    }

    /// Returns the metadata sent before the messages.
    pub fn metadata(&self) -> &Metadata {
        self.extras.metadata()
    }

    /// Returns a mutable reference to the metadata.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        self.extras.metadata_mut()
    }

    /// Returns the trailers known before the last message. Trailers of a stream arrive with [its
    /// end](Streaming::trailers).
    pub fn trailers(&self) -> &Metadata {
        self.extras.trailers()
    }

    /// Returns a mutable reference to the trailers.
    pub fn trailers_mut(&mut self) -> &mut Metadata {
        self.extras.trailers_mut()
    }

    /// Returns the values attached for other code on this side.
    pub fn extensions(&self) -> &Extensions {
        self.extras.extensions()
    }

    /// Returns `true` if the answer consists of messages only.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.extras.is_none()
    }

    /// Returns the message if the answer consists of one message of at most `len_max` bytes. Otherwise returns the
    /// answer unchanged.
    #[inline]
    pub(crate) fn into_message(self, len_max: usize) -> Result<EncodedMessage, Self> {
        match self.body {
            Body::One(message) if self.extras.is_none() && message.len() <= len_max => Ok(message),
            body => Err(Self { body, extras: self.extras }),
        }
    }

    /// Removes the extensions, because only the side of the handler may see them.
    pub(crate) fn without_extensions(mut self) -> Self {
        self.extras.clear_extensions();
        self
    }

    /// Encodes a response as an answer.
    #[inline(always)]
    pub(crate) fn of_response<M: Message>(
        format: Format,
        any_types: &'static Types,
        response: Response<M>,
    ) -> Result<Self, Status> {
        let (extras, message) = response.into_parts();
        let message = format.encode_briefly(&message, any_types)?;
        Ok(Self { body: Body::One(message), extras })
    }

    /// Encodes a stream of responses as an answer.
    pub(crate) fn of_stream<M: Message>(
        format: Format,
        any_types: &'static Types,
        response: Response<Streaming<M>>,
    ) -> Self {
        let (extras, messages) = response.into_parts();
        Self { body: Body::Many(messages.encoded(format, any_types)), extras }
    }

    /// Decodes the response of a method that answers with one message.
    pub(crate) fn into_response<M: Message>(
        self,
        method: &'static Method,
        format: Format,
        memory: MemoryBudget,
        any_types: &'static Types,
    ) -> Result<Response<M>, Status> {
        match self.body {
            Body::One(content) => {
                let content = content.into_bytes();
                let message = match format {
                    Format::Json => {
                        let mut reading = DecodeContext { any_types, ..DecodeContext::within(memory) };
                        format
                            .decode_with(&content, &mut reading)
                            .map_err(|error| response_decode_status(method, error))?
                    }
                    format => decode_response(method, format, &content, memory)?,
                };
                Ok(Response::from_parts(self.extras, message))
            }
            Body::Many(_) => Err(Status::internal("the handler answered with a stream instead of one message")),
        }
    }

    /// Decodes the response of a method that answers with a stream.
    pub(crate) fn into_stream_response<M: Message>(
        self,
        method: &'static Method,
        format: Format,
        memory: MemoryBudget,
        any_types: &'static Types,
    ) -> Result<Response<Streaming<M>>, Status> {
        match self.body {
            Body::One(_) => Err(Status::internal("the handler answered with one message instead of a stream")),
            Body::Many(contents) => {
                let unknown = UnknownJson::Ignore;
                let messages = contents.decoded(method, format, memory, unknown, any_types, response_decode_status);
                Ok(Response::from_parts(self.extras, messages))
            }
        }
    }
}

/// Decodes a request message.
#[inline(always)]
fn decode_request<M: Message>(
    method: &'static Method,
    format: Format,
    content: &Bytes,
    memory: MemoryBudget,
    any_types: &'static Types,
    head: &Head,
) -> Result<M, Status> {
    // Nearly all gRPC calls are short, so that no account holds their memory.
    let is_held = format != Format::Proto || head.extensions().get::<MemoryHold>().is_some();
    if format == Format::Polyglot || !is_held {
        return format.decode_within(content, memory).map_err(|error| request_decode_status(method, error));
    }
    decode_held(method, format, content, memory, any_types, head)
}

/// Decodes a request message in JSON, or in protobuf if its memory is held, and accounts for its memory until the call is over.
#[cold]
fn decode_held<M: Message>(
    method: &'static Method,
    format: Format,
    content: &Bytes,
    memory: MemoryBudget,
    any_types: &'static Types,
    head: &Head,
) -> Result<M, Status> {
    let hold = head.extensions().get::<MemoryHold>();
    let mut reading = DecodeContext { is_counted: hold.is_some(), any_types, ..DecodeContext::within(memory) };
    let message = UnknownJson::of_caller(format, head)
        .decode(method, format, content, &mut reading)
        .map_err(|error| request_decode_status(method, error))?;
    let Some(hold) = hold else { return Ok(message) };
    let len = reading.memory_len;
    // Replaces the hold for the encoded bytes. Concurrent readers may exceed the limit, each by one message.
    if len >= HELD_LEN || len > 0 && !hold.is_empty() {
        hold.resize(len)?;
    }
    Ok(message)
}

/// Decodes a response message, or the status sent in its place.
#[inline(always)] // Moving a small message between stack frames takes longer than decoding it.
pub(crate) fn decode_response<M: Message>(
    method: &Method,
    format: Format,
    content: &Bytes,
    memory: MemoryBudget,
) -> Result<M, Status> {
    format.decode_within(content, memory).map_err(|error| response_decode_status(method, error))
}

/// Converts a decoding error of a request to a status that blames the caller. The error becomes the source of the
/// status. Wires use it to distinguish the status from one of the handler.
pub(crate) fn request_decode_status(method: &Method, error: CodecError) -> Status {
    let status = match &error {
        error if error.is_too_much_memory() => too_much_memory(method, "request", "server", error),
        CodecError::Unsupported { .. } => Status::unimplemented(error.to_string()),
        CodecError::OtherCodec { .. } => Status::unimplemented(format!("{method}: {error}")),
        error if error.is_mismatch() => Status::invalid_argument(mismatch_text(method, "request", error)),
        error => Status::invalid_argument(error.to_string()),
    };
    status.with_source(Arc::new(error) as Arc<_>)
}

/// Converts a decoding error of a response, or an error sent in its place, to a status.
pub(crate) fn response_decode_status(method: &Method, error: CodecError) -> Status {
    let status = if error.is_too_much_memory() {
        too_much_memory(method, "response", "channel", &error)
    } else if error.is_mismatch() {
        Status::internal(mismatch_text(method, "response", &error))
    } else {
        return error.into();
    };
    status.with_source(Arc::new(error) as Arc<_>)
}

fn too_much_memory(method: &Method, which: &str, side: &str, error: &CodecError) -> Status {
    let advice = format!("see `message_memory_max` of the {side}");
    Status::resource_exhausted(format!("the {which} of {method} is too large: {error} ({advice})"))
}

/// Adds the method and the direction to a decoding error, because the error names only the field. Peers with different
/// proto files usually use protobuf or JSON, so their mismatches end here.
fn mismatch_text(method: &Method, which: &str, error: &CodecError) -> String {
    format!("cannot decode the {which} of {method}: {error}")
}

/// The minimum length of a message whose decoded size is charged to an account. Shorter messages are bounded by the
/// number of calls.
const COUNTED_LEN: usize = 512;
/// The minimum decoded size that is charged. Accounts are shared between threads, so small messages do not touch them.
pub(crate) const HELD_LEN: usize = 16 << 10;
/// The minimum length in polyglot. Decoded polyglot takes at most 16 times its length plus 1 MiB, and each connection
/// has further limits.
const COUNTED_PACKET_LEN: usize = 64 << 10;
