//! A call on the serving side: from bytes to a handler, and back to bytes.

use std::{
    future::Future,
    marker::PhantomData,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use frisbee::Connection;
use futures_core::Stream;
use futures_util::StreamExt;
use tracing::error;

use crate::{
    Method, Request, Response, Status, Streaming,
    codec::{self, Content, Message, Pieces},
    wire::frisbee::take_over::TakeOver,
};

/// A service that calls can be made to. Implemented by generated code.
pub trait Service: Send + Sync + 'static {
    /// The full name in the proto file.
    const NAME: &'static str;

    /// The methods, in the order of declaration.
    const METHODS: &'static [Method];

    /// Finds the method of a call and has it handled.
    fn call(&self, call: Call) -> impl Future<Output = Answer> + Send;
}

/// One call that arrived, still in bytes.
#[derive(Debug)]
pub struct Call {
    operation: u16,
    input: Flow,
    /// Where it came from, unless it came from within the process.
    connection: Option<Connection>,
}

/// What a call came to.
#[derive(Debug)]
pub struct Answer(pub(crate) Result<Flow, Status>);

/// One direction of a call: the content of one message, or of a stream of them.
#[derive(Debug)]
pub(crate) enum Flow {
    One(Pieces),
    /// The last answer on its connection.
    Last(Pieces, TakeOver),
    Many(Streaming<Bytes>),
}

impl Call {
    pub(crate) fn new(operation: u16, input: Flow, connection: Option<Connection>) -> Self {
        Self { operation, input, connection }
    }

    /// The operation that is called.
    pub fn operation(&self) -> u16 {
        self.operation
    }

    /// Has a unary method handle it.
    pub async fn unary<Q: Message, P: Message, F>(self, handler: impl FnOnce(Request<Q>) -> F) -> Answer
    where
        F: Future<Output = Result<Response<P>, Status>>,
    {
        Answer(async { Ok(answer(&handler(self.one()?).await?)) }.await)
    }

    /// Has a server-streaming method handle it.
    pub async fn server_streaming<Q: Message, P: Message, F>(self, handler: impl FnOnce(Request<Q>) -> F) -> Answer
    where
        F: Future<Output = Result<Response<Streaming<P>>, Status>>,
    {
        Answer(async { Ok(Flow::Many(contents(handler(self.one()?).await?.into_inner()))) }.await)
    }

    /// Has a client-streaming method handle it.
    pub async fn client_streaming<Q: Message, P: Message, F>(
        self,
        handler: impl FnOnce(Request<Streaming<Q>>) -> F,
    ) -> Answer
    where
        F: Future<Output = Result<Response<P>, Status>>,
    {
        Answer(async { Ok(Flow::One(codec::encode_pieces(handler(self.many()?).await?.get_ref()))) }.await)
    }

    /// Has a bidirectional method handle it.
    pub async fn bidirectional<Q: Message, P: Message, F>(
        self,
        handler: impl FnOnce(Request<Streaming<Q>>) -> F,
    ) -> Answer
    where
        F: Future<Output = Result<Response<Streaming<P>>, Status>>,
    {
        Answer(async { Ok(Flow::Many(contents(handler(self.many()?).await?.into_inner()))) }.await)
    }

    /// Answers that there is no such method.
    pub fn unknown(self) -> Answer {
        Answer(Err(Status::unimplemented(format!("no method has operation {}", self.operation))))
    }

    fn one<Q: Message>(self) -> Result<Request<Q>, Status> {
        match self.input {
            Flow::One(content) | Flow::Last(content, _) => {
                Ok(Request::received(request(&content.into_bytes())?, self.connection))
            }
            Flow::Many(_) => Err(Status::unimplemented("the method takes one message, not a stream")),
        }
    }

    fn many<Q: Message>(self) -> Result<Request<Streaming<Q>>, Status> {
        match self.input {
            Flow::One(_) | Flow::Last(..) => Err(Status::unimplemented("the method takes a stream, not one message")),
            Flow::Many(contents) => {
                let messages = Streaming::new(Each::new(contents, |content| request(&content)));
                Ok(Request::received(messages, self.connection))
            }
        }
    }
}

fn answer<M: Message>(response: &Response<M>) -> Flow {
    let content = codec::encode_pieces(response.get_ref());
    match response.take_over() {
        None => Flow::One(content),
        Some(take_over) => Flow::Last(content, take_over.clone()),
    }
}

pub(crate) fn contents<M: Message>(messages: Streaming<M>) -> Streaming<Bytes> {
    Streaming::new(Each::new(messages, |message| Ok(codec::encode(&message))))
}

/// The messages that a caller sends. If the stream of them panics, it ends with a status instead.
pub(crate) fn requests<M: Message>(messages: Streaming<M>) -> Streaming<Bytes> {
    let contents = Each::new(messages, |message| Ok(codec::encode(&message)));
    Streaming::new(AssertUnwindSafe(contents).catch_unwind().map(|content| {
        content.unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
            let message = message.unwrap_or("no message");
            error!(message, "a request stream panicked");
            Err(Status::internal(format!("the request stream panicked: {message}")))
        })
    }))
}

/// The message of a caller: it is the caller who sent what is none.
fn request<M: Message>(content: &Bytes) -> Result<M, Status> {
    open(content).map_err(|status| Status::invalid_argument(status.message()))
}

/// The message in a content, or the status in its place.
pub(crate) fn open<M: Message>(content: &Bytes) -> Result<M, Status> {
    match codec::decode(content)? {
        Content::Message(message) => Ok(message),
        Content::Error(failure) => Err(failure.into()),
    }
}

pub(crate) fn opened<M: Message>(contents: Streaming<Bytes>) -> Streaming<M> {
    Streaming::new(Each::new(contents, |content| open(&content)))
}

/// A stream with each message changed.
struct Each<A, B, F> {
    messages: Streaming<A>,
    change: F,
    result: PhantomData<fn() -> B>,
}

impl<A, B, F: Fn(A) -> Result<B, Status>> Each<A, B, F> {
    fn new(messages: Streaming<A>, change: F) -> Self {
        Self { messages, change, result: PhantomData }
    }
}

impl<A, B, F> Unpin for Each<A, B, F> {}

impl<A, B, F: Fn(A) -> Result<B, Status>> Stream for Each<A, B, F> {
    type Item = Result<B, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = Pin::new(&mut self.messages).poll_next(cx);
        next.map(|message| message.map(|message| message.and_then(&self.change)))
    }
}
