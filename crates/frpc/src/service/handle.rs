//! The trait of services, and the handling of calls: decode, run the handler, encode.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use crate::{
    call::{
        exchange::{Answer, Call},
        method::Method,
        request::{Request, Response},
        status::Status,
        streaming::Streaming,
    },
    codec::{Format, Message, json::Types},
};

/// A service that can be called. Implemented by generated code.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not implement the trait `Service`",
    label = "expected the server type of generated code, such as `GreeterServer::new(..)`",
    note = "the implementation of a service's trait is wrapped first: `add_service(GreeterServer::new(implementation))`",
    note = "a `BoxService`, such as that of `Functions::service()`, is added with `add_services([service])`"
)]
pub trait Service: Send + Sync + 'static {
    /// The full name in the proto file.
    const NAME: &'static str;

    /// The methods, in the order of declaration.
    const METHODS: &'static [Method];

    /// Receives all methods served together with this service, including its own, in no particular order. Called before
    /// the first call, once for each place the service was added to.
    fn served_with(&self, methods: &[&'static Method]) {
        let _ = methods;
    }

    /// Called when the server begins to shut down. The shutdown waits for running calls, including streams.
    fn shutting_down(&self) {}

    /// Calls the method with this index in [`METHODS`](Self::METHODS).
    fn call(&self, method: usize, call: Call) -> impl Future<Output = Result<Answer, Status>> + Send;
}

impl Call {
    /// Handles the call with a unary method. Dropping the future drops the handler.
    // Not an async function: its state would contain one more copy of the call and of the handler.
    #[doc(hidden)]
    #[inline]
    pub fn unary<Q: Message, P: Message, F>(self, handler: impl FnOnce(Request<Q>) -> F) -> UnaryFuture<F>
    where
        F: Future<Output = Result<Response<P>, Status>>,
    {
        let format = match self.format() {
            Format::Polyglot => AnswerFormat::Polyglot,
            Format::Proto => AnswerFormat::Proto,
            Format::Json => AnswerFormat::Json(self.any_types()),
        };
        match self.into_request() {
            Ok(request) => UnaryFuture::Handled { format, handler: handler(request) },
            Err(status) => UnaryFuture::Refused { status: Some(status) },
        }
    }

    /// Handles the call with a server-streaming method. Dropping the future drops the handler.
    #[doc(hidden)]
    pub async fn server_streaming<Q: Message, P: Message, F>(
        self,
        handler: impl FnOnce(Request<Q>) -> F,
    ) -> Result<Answer, Status>
    where
        F: Future<Output = Result<Response<Streaming<P>>, Status>>,
    {
        let (format, any_types) = (self.format(), self.any_types());
        Ok(Answer::of_stream(format, any_types, handler(self.into_request()?).await?))
    }

    /// Handles the call with a client-streaming method. Dropping the future drops the handler.
    #[doc(hidden)]
    pub async fn client_streaming<Q: Message, P: Message, F>(
        self,
        handler: impl FnOnce(Request<Streaming<Q>>) -> F,
    ) -> Result<Answer, Status>
    where
        F: Future<Output = Result<Response<P>, Status>>,
    {
        let (format, any_types) = (self.format(), self.any_types());
        Answer::of_response(format, any_types, handler(self.into_stream_request()?).await?)
    }

    /// Handles the call with a bidirectional method. Dropping the future drops the handler.
    #[doc(hidden)]
    pub async fn bidirectional<Q: Message, P: Message, F>(
        self,
        handler: impl FnOnce(Request<Streaming<Q>>) -> F,
    ) -> Result<Answer, Status>
    where
        F: Future<Output = Result<Response<Streaming<P>>, Status>>,
    {
        let (format, any_types) = (self.format(), self.any_types());
        Ok(Answer::of_stream(format, any_types, handler(self.into_stream_request()?).await?))
    }

    /// Returns the error for an unknown method.
    #[doc(hidden)]
    pub fn unknown(self) -> Result<Answer, Status> {
        Err(Status::unimplemented(format!("the server has no method {}", self.method())))
    }
}

pin_project! {
    /// A running unary handler, or the reason why the request was refused.
    #[doc(hidden)]
    #[derive(Debug)]
    #[project = UnaryPinned]
    pub enum UnaryFuture<F> {
        Handled { format: AnswerFormat, #[pin] handler: F },
        Refused { status: Option<Status> },
    }
}

/// The format of an answer, with more types for an `Any` if it is JSON.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum AnswerFormat {
    Polyglot,
    Proto,
    Json(&'static Types),
}

impl<P: Message, F: Future<Output = Result<Response<P>, Status>>> Future for UnaryFuture<F> {
    type Output = Result<Answer, Status>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            UnaryPinned::Handled { format, handler } => {
                let response = ready!(handler.poll(cx))?;
                let (format, any_types) = match *format {
                    AnswerFormat::Polyglot => (Format::Polyglot, Types::WELL_KNOWN),
                    AnswerFormat::Proto => (Format::Proto, Types::WELL_KNOWN),
                    AnswerFormat::Json(any_types) => (Format::Json, any_types),
                };
                Poll::Ready(Answer::of_response(format, any_types, response))
            }
            UnaryPinned::Refused { status } => {
                Poll::Ready(Err(status.take().expect("the future was polled after its end")))
            }
        }
    }
}
