//! Calls and answers with their messages as bytes.

use std::{fmt::Display, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    account::MemoryHold,
    deadline::CallTime,
    extensions::{Extensions, Extras},
    head::Head,
    metadata::Metadata,
    method::{Method, MethodKind},
    request::{Request, Response},
    status::Status,
    streaming::Streaming,
    unknown_json::UnknownJson,
};
use crate::codec::{CodecError, Format, MemoryBudget, Message, Pieces, Reading};

/// A call on its way to a service: what transports, [layers](crate::Layer) and services hand on.
#[derive(Debug)]
pub struct Call {
    method: &'static Method,
    kind: MethodKind,
    format: Format,
    memory: MemoryBudget,
    body: Body,
    head: Head,
    time: Option<Box<CallTime>>,
}

/// The messages of one direction of a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Body {
    /// One message.
    One(Pieces),
    /// A stream of messages.
    Many(Streaming<Bytes>),
}

/// The answer to a call that did not fail.
#[derive(Debug)]
pub struct Answer {
    body: Body,
    extras: Extras,
}

impl Call {
    /// Makes a call that arrived.
    #[inline]
    pub fn new(method: &'static Method, format: Format, head: Head, body: Body) -> Self {
        Self { method, kind: method.kind, format, memory: MemoryBudget::default(), body, head, time: None }
    }

    /// Returns the method that is called.
    pub fn method(&self) -> &'static Method {
        self.method
    }

    /// Returns which sides send more than one message, as its caller sees it: the kind of the method, unless the caller is
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

    /// Returns how much memory each message of the caller may take when it is read.
    pub fn memory_budget(&self) -> MemoryBudget {
        self.memory
    }

    #[inline]
    pub(crate) fn set_memory_budget(&mut self, memory: MemoryBudget) {
        self.memory = memory;
    }

    /// Returns what goes with the messages.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns what goes with the messages, to be changed.
    pub fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    /// Returns the messages that the caller sends.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Returns the length of its message, if there is one and it is so long that what it takes in memory counts.
    #[inline]
    pub(crate) fn counted_len(&self) -> Option<usize> {
        let len_min = if self.format == Format::Polyglot { COUNTED_PACKET_LEN } else { COUNTED_LEN };
        match &self.body {
            Body::One(content) => Some(content.len()).filter(|len| *len >= len_min),
            Body::Many(_) => None,
        }
    }

    /// Takes the call apart.
    pub fn into_parts(self) -> (Head, Body) {
        (self.head, self.body)
    }

    /// Makes the call of a request.
    pub(crate) fn of_request<M: Message>(
        method: &'static Method,
        format: Format,
        request: Request<M>,
    ) -> Result<Self, Status> {
        let (head, message) = request.into_parts();
        let body = Body::One(format.encode(&message)?);
        Ok(Self::new(method, format, head, body))
    }

    /// Makes the call of a stream of requests.
    pub(crate) fn of_stream<M: Message>(
        method: &'static Method,
        format: Format,
        request: Request<Streaming<M>>,
    ) -> Self {
        let (head, messages) = request.into_parts();
        Self::new(method, format, head, Body::Many(messages.encoded_without_panics(format)))
    }

    /// Returns the request of a method that takes one message.
    #[inline]
    pub(crate) fn into_request<M: Message>(self) -> Result<Request<M>, Status> {
        match self.body {
            Body::One(content) => {
                let message = decode_request(self.method, self.format, &content.into_bytes(), self.memory, &self.head)?;
                Ok(Request::from_parts(self.head, message))
            }
            Body::Many(_) => Err(Status::unimplemented("the method takes one message, not a stream")),
        }
    }

    /// Returns the request of a method that takes a stream.
    pub(crate) fn into_stream_request<M: Message>(self) -> Result<Request<Streaming<M>>, Status> {
        let (method, format, memory) = (self.method, self.format, self.memory);
        match self.body {
            Body::One(_) => Err(Status::unimplemented("the method takes a stream, not one message")),
            Body::Many(contents) => {
                let unknown = UnknownJson::of_caller(format, &self.head);
                let messages = contents.decoded(method, format, memory, unknown, request_misfit);
                Ok(Request::from_parts(self.head, messages))
            }
        }
    }

    /// Returns the deadlines of a call on the calling side. A call that has arrived has its deadline in its [head](Head::deadline).
    pub fn time(&self) -> CallTime {
        self.time.as_deref().copied().unwrap_or_else(|| CallTime::start(self.head.timeout(), Duration::MAX))
    }

    pub(crate) fn set_time(&mut self, time: CallTime) {
        self.time = Some(Box::new(time));
    }
}

/// One message in one piece.
impl<T: Into<Bytes>> From<T> for Body {
    fn from(content: T) -> Self {
        Self::One(content.into().into())
    }
}

impl Body {
    /// Returns how many bytes its one message has. `None` for a stream.
    pub fn content_len(&self) -> Option<usize> {
        match self {
            Self::One(content) => Some(content.len()),
            Self::Many(_) => None,
        }
    }
}

impl Answer {
    /// Makes an answer of its messages.
    #[inline]
    pub fn new(body: Body) -> Self {
        Self { body, extras: Extras::default() }
    }

    /// Returns the messages.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Returns the messages alone.
    #[inline]
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Returns the same answer with other messages.
    pub fn map_body(self, change: impl FnOnce(Body) -> Body) -> Self {
        Self { body: change(self.body), extras: self.extras }
    }

    /// Calls `end` once all messages have been taken from the answer, or when a stream of them fails or is dropped before its end,
    /// as happens when the caller gives up ([`Streaming::on_end`]). At once for an answer of one message. For layers that time calls
    /// or count them.
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

    /// Returns the names and values in front of the messages.
    pub fn metadata(&self) -> &Metadata {
        self.extras.metadata()
    }

    /// Returns the metadata, to be changed.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        self.extras.metadata_mut()
    }

    /// Returns the names and values behind the messages, as far as they were known before the last of them. Those of a
    /// stream come with [its end](Streaming::trailers).
    pub fn trailers(&self) -> &Metadata {
        self.extras.trailers()
    }

    /// Returns the trailers, to be changed.
    pub fn trailers_mut(&mut self) -> &mut Metadata {
        self.extras.trailers_mut()
    }

    /// Returns the values for other code on this side.
    pub fn extensions(&self) -> &Extensions {
        self.extras.extensions()
    }

    /// Returns whether the answer is nothing but its messages.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.extras.is_none()
    }

    /// Returns the message, if the answer is nothing but one of at most this length, or gives itself back.
    #[inline]
    pub(crate) fn into_message(self, len_max: usize) -> Result<Pieces, Self> {
        match self.body {
            Body::One(message) if self.extras.is_none() && message.len() <= len_max => Ok(message),
            body => Err(Self { body, extras: self.extras }),
        }
    }

    /// Returns what leaves the side of the handler.
    pub(crate) fn without_extensions(mut self) -> Self {
        self.extras.clear_extensions();
        self
    }

    /// Makes the answer of a response.
    #[inline]
    pub(crate) fn of_response<M: Message>(format: Format, response: Response<M>) -> Result<Self, Status> {
        let (extras, message) = response.into_parts();
        Ok(Self { body: Body::One(format.encode_small(&message)?), extras })
    }

    /// Makes the answer of a stream of responses.
    pub(crate) fn of_stream<M: Message>(format: Format, response: Response<Streaming<M>>) -> Self {
        let (extras, messages) = response.into_parts();
        Self { body: Body::Many(messages.encoded(format)), extras }
    }

    /// Returns the response of a method that answers with one message.
    pub(crate) fn into_response<M: Message>(
        self,
        method: &'static Method,
        format: Format,
        memory: MemoryBudget,
    ) -> Result<Response<M>, Status> {
        match self.body {
            Body::One(content) => {
                let message = decode_response(method, format, &content.into_bytes(), memory)?;
                Ok(Response::from_parts(self.extras, message))
            }
            Body::Many(_) => Err(Status::internal("the handler answered with a stream")),
        }
    }

    /// Returns the response of a method that answers with a stream.
    pub(crate) fn into_stream_response<M: Message>(
        self,
        method: &'static Method,
        format: Format,
        memory: MemoryBudget,
    ) -> Result<Response<Streaming<M>>, Status> {
        match self.body {
            Body::One(_) => Err(Status::internal("the handler answered with one message")),
            Body::Many(contents) => {
                let messages = contents.decoded(method, format, memory, UnknownJson::Ignore, response_misfit);
                Ok(Response::from_parts(self.extras, messages))
            }
        }
    }
}

/// Reads the message of a caller.
#[inline]
fn decode_request<M: Message>(
    method: &'static Method,
    format: Format,
    content: &Bytes,
    memory: MemoryBudget,
    head: &Head,
) -> Result<M, Status> {
    if format == Format::Polyglot {
        return format.decode_within(content, memory).map_err(|error| request_misfit(method, error));
    }
    decode_held(method, format, content, memory, head)
}

/// Reads the message of a caller in a format other than polyglot, and has what it takes in memory held until the call is over.
#[cold]
fn decode_held<M: Message>(
    method: &'static Method,
    format: Format,
    content: &Bytes,
    memory: MemoryBudget,
    head: &Head,
) -> Result<M, Status> {
    let hold = head.extensions().get::<MemoryHold>();
    let mut reading = Reading { is_counted: hold.is_some(), ..Reading::within(memory) };
    let message = UnknownJson::of_caller(format, head)
        .decode(method, format, content, &mut reading)
        .map_err(|error| request_misfit(method, error))?;
    let Some(hold) = hold else { return Ok(message) };
    let len = reading.memory_len;
    // Threads that read at the same time may go over the limit, each by one message.
    // In place of its bytes, which are dropped with the call.
    if len >= HELD_LEN || len > 0 && !hold.is_empty() {
        hold.resize(len)?;
    }
    Ok(message)
}

/// Reads the message of a service, or the status in its place.
#[inline]
pub(crate) fn decode_response<M: Message>(
    method: &Method,
    format: Format,
    content: &Bytes,
    memory: MemoryBudget,
) -> Result<M, Status> {
    format.decode_within(content, memory).map_err(|error| response_misfit(method, error))
}

/// Returns the status of a request that cannot be read: the fault is the caller's. The error is its source, by which a wire can
/// tell it from one of the handler.
pub(crate) fn request_misfit(method: &Method, error: CodecError) -> Status {
    let status = match &error {
        error if error.is_too_much_memory() => too_much_memory(method, "request", "server", error),
        CodecError::Unsupported { .. } => Status::unimplemented(error.to_string()),
        CodecError::OtherCodec { .. } => Status::unimplemented(format!("{method}: {error}")),
        error @ CodecError::Custom { .. } => Status::invalid_argument(misfit(method, "request", error)),
        CodecError::Proto(error) => Status::invalid_argument(misfit(method, "request", error)),
        CodecError::Json(error) => Status::invalid_argument(misfit(method, "request", error)),
        error => Status::invalid_argument(error.to_string()),
    };
    status.with_source(Arc::new(error) as Arc<_>)
}

/// Returns the status of a response that cannot be read, or stands for one.
pub(crate) fn response_misfit(method: &Method, error: CodecError) -> Status {
    match error {
        error if error.is_too_much_memory() => {
            too_much_memory(method, "response", "channel", &error).with_source(Arc::new(error) as Arc<_>)
        }
        CodecError::Proto(cause) => {
            let message = misfit(method, "response", &cause);
            Status::internal(message).with_source(Arc::new(CodecError::Proto(cause)) as Arc<_>)
        }
        CodecError::Json(cause) => {
            let message = misfit(method, "response", &cause);
            Status::internal(message).with_source(Arc::new(CodecError::Json(cause)) as Arc<_>)
        }
        CodecError::Custom { .. } => {
            Status::internal(misfit(method, "response", &error)).with_source(Arc::new(error) as Arc<_>)
        }
        error => error.into(),
    }
}

/// Returns the status of a message that the codec of a method cannot write: the fault is on this side.
pub(crate) fn unwritable(method: &Method, which: &str, error: CodecError) -> Status {
    let text = format!("the {which} of {method} cannot be sent: {error}");
    Status::internal(text).with_source(Arc::new(error) as Arc<_>)
}

fn too_much_memory(method: &Method, which: &str, side: &str, error: &CodecError) -> Status {
    let advice = format!("see `message_memory_max` of the {side}");
    Status::resource_exhausted(format!("the {which} of {method} is too large: {error} ({advice})"))
}

/// Says which message does not fit. Protocol buffers and JSON are what two sides speak whose proto files differ, so the user has
/// to know where; the error names the field.
fn misfit(method: &Method, which: &str, error: &dyn Display) -> String {
    format!("the {which} of {method} is not what this side takes it for: {error}")
}

/// The length from which on what a message takes when it is read may count. What shorter ones take is bounded by how many there are.
const COUNTED_LEN: usize = 512;
/// The memory from which on it counts: the accounts are shared, so small messages leave them alone.
pub(crate) const HELD_LEN: usize = 16 << 10;
/// The same for polyglot, whose messages take at most 16 times their length and 1 MiB, and which has limits of each connection.
const COUNTED_PACKET_LEN: usize = 64 << 10;
