//! A call on the serving side: from bytes to a handler, and back to bytes.

use std::{
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_core::Stream;

use crate::{
    Method, Request, Response, Status, Streaming,
    codec::{self, Content, Message},
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
}

/// What a call came to.
#[derive(Debug)]
pub struct Answer(pub(crate) Result<Flow, Status>);

/// One direction of a call: the content of one message, or of a stream of them.
#[derive(Debug)]
pub(crate) enum Flow {
    One(Bytes),
    Many(Streaming<Bytes>),
}

impl Call {
    pub(crate) fn new(operation: u16, input: Flow) -> Self {
        Self { operation, input }
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
        Answer(async { Ok(one(handler(self.one()?).await?.get_ref())) }.await)
    }

    /// Has a server-streaming method handle it.
    pub async fn server_streaming<Q: Message, P: Message, F>(self, handler: impl FnOnce(Request<Q>) -> F) -> Answer
    where
        F: Future<Output = Result<Response<Streaming<P>>, Status>>,
    {
        Answer(async { Ok(many(handler(self.one()?).await?.into_inner())) }.await)
    }

    /// Has a client-streaming method handle it.
    pub async fn client_streaming<Q: Message, P: Message, F>(
        self,
        handler: impl FnOnce(Request<Streaming<Q>>) -> F,
    ) -> Answer
    where
        F: Future<Output = Result<Response<P>, Status>>,
    {
        Answer(async { Ok(one(handler(self.many()?).await?.get_ref())) }.await)
    }

    /// Has a bidirectional method handle it.
    pub async fn bidirectional<Q: Message, P: Message, F>(
        self,
        handler: impl FnOnce(Request<Streaming<Q>>) -> F,
    ) -> Answer
    where
        F: Future<Output = Result<Response<Streaming<P>>, Status>>,
    {
        Answer(async { Ok(many(handler(self.many()?).await?.into_inner())) }.await)
    }

    /// Answers that there is no such method.
    pub fn unknown(self) -> Answer {
        Answer(Err(Status::unimplemented(format!("no method has operation {}", self.operation))))
    }

    fn one<Q: Message>(self) -> Result<Request<Q>, Status> {
        match self.input {
            Flow::One(content) => {
                // It is the caller who sent what is not the request.
                let message = open(&content).map_err(|status| Status::invalid_argument(status.message()))?;
                Ok(Request::new(message))
            }
            Flow::Many(_) => Err(Status::unimplemented("the method takes one message, not a stream")),
        }
    }

    fn many<Q: Message>(self) -> Result<Request<Streaming<Q>>, Status> {
        match self.input {
            Flow::One(_) => Err(Status::unimplemented("the method takes a stream, not one message")),
            Flow::Many(contents) => Ok(Request::new(opened(contents))),
        }
    }
}

pub(crate) fn one<M: Message>(message: &M) -> Flow {
    Flow::One(codec::encode(message))
}

pub(crate) fn many<M: Message>(messages: Streaming<M>) -> Flow {
    Flow::Many(Streaming::new(Each::new(messages, |message| Ok(codec::encode(&message)))))
}

/// The message in a content. An error in its place is the status of a peer that has no codes.
pub(crate) fn open<M: Message>(content: &Bytes) -> Result<M, Status> {
    match codec::decode(content)? {
        Content::Message(message) => Ok(message),
        Content::Error(text) => Err(Status::unknown(text)),
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
