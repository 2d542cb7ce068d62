//! Handling of calls to methods with a user-defined codec.

use std::{future::Future, marker::PhantomData};

use crate::{
    call::{
        exchange::{Answer, Call, request_decode_status, unwritable},
        method::Method,
        request::{Request, Response},
        status::Status,
        streaming::Streaming,
    },
    codec::{Codec, CodedMessage},
};

/// An incoming call with a [`Codec`] for all messages.
#[doc(hidden)]
#[derive(Debug)]
pub struct CodedCall<C> {
    call: Call,
    codec: PhantomData<fn() -> C>,
}

impl Call {
    /// Selects the codec for the messages of the call.
    #[doc(hidden)]
    pub fn with_codec<C>(self) -> CodedCall<C> {
        CodedCall { call: self, codec: PhantomData }
    }
}

impl<C> CodedCall<C> {
    /// Runs the handler of a unary method. Dropping the future drops the handler.
    pub async fn unary<Q, P, F>(self, handler: impl FnOnce(Request<Q>) -> F) -> Result<Answer, Status>
    where
        C: Codec<Q> + Codec<P>,
        Q: 'static,
        P: 'static,
        F: Future<Output = Result<Response<P>, Status>>,
    {
        let method = self.call.method();
        let handle = |request| async move { one::<C, P>(method, handler(asked::<C, Q>(method, request)?).await?) };
        self.call.unary(handle).await
    }

    /// Runs the handler of a server-streaming method. Dropping the future drops the handler.
    pub async fn server_streaming<Q, P, F>(self, handler: impl FnOnce(Request<Q>) -> F) -> Result<Answer, Status>
    where
        C: Codec<Q> + Codec<P>,
        Q: 'static,
        P: Send + 'static,
        F: Future<Output = Result<Response<Streaming<P>>, Status>>,
    {
        let method = self.call.method();
        let handle = |request| async move { Ok(many::<C, P>(method, handler(asked::<C, Q>(method, request)?).await?)) };
        self.call.server_streaming(handle).await
    }

    /// Runs the handler of a client-streaming method. Dropping the future drops the handler.
    pub async fn client_streaming<Q, P, F>(
        self,
        handler: impl FnOnce(Request<Streaming<Q>>) -> F,
    ) -> Result<Answer, Status>
    where
        C: Codec<Q> + Codec<P>,
        Q: 'static,
        P: 'static,
        F: Future<Output = Result<Response<P>, Status>>,
    {
        let method = self.call.method();
        let handle = |requests| async move { one::<C, P>(method, handler(streamed::<C, Q>(method, requests)).await?) };
        self.call.client_streaming(handle).await
    }

    /// Runs the handler of a bidirectional method. Dropping the future drops the handler.
    pub async fn bidirectional<Q, P, F>(
        self,
        handler: impl FnOnce(Request<Streaming<Q>>) -> F,
    ) -> Result<Answer, Status>
    where
        C: Codec<Q> + Codec<P>,
        Q: 'static,
        P: Send + 'static,
        F: Future<Output = Result<Response<Streaming<P>>, Status>>,
    {
        let method = self.call.method();
        let handle =
            |requests| async move { Ok(many::<C, P>(method, handler(streamed::<C, Q>(method, requests)).await?)) };
        self.call.bidirectional(handle).await
    }
}

/// Decodes the request.
fn asked<C: Codec<Q>, Q>(method: &Method, request: Request<CodedMessage<C, Q>>) -> Result<Request<Q>, Status> {
    let (head, coded) = request.into_parts();
    let message = coded.decode().map_err(|error| request_decode_status(method, error))?;
    Ok(Request::from_parts(head, message))
}

/// Decodes each request when the handler reads it.
fn streamed<C: Codec<Q>, Q: 'static>(
    method: &'static Method,
    requests: Request<Streaming<CodedMessage<C, Q>>>,
) -> Request<Streaming<Q>> {
    let read = |coded: CodedMessage<C, Q>| coded.decode().map_err(|error| request_decode_status(method, error));
    requests.map(|requests| requests.map_messages(read))
}

/// Encodes the response.
fn one<C: Codec<P>, P>(method: &Method, response: Response<P>) -> Result<Response<CodedMessage<C, P>>, Status> {
    let (extras, message) = response.into_parts();
    let coded = CodedMessage::encode(&message).map_err(|error| unwritable(method, "response", error))?;
    Ok(Response::from_parts(extras, coded))
}

/// Encodes each response when it is sent.
fn many<C: Codec<P>, P: Send + 'static>(
    method: &'static Method,
    responses: Response<Streaming<P>>,
) -> Response<Streaming<CodedMessage<C, P>>> {
    let write = |message: P| CodedMessage::encode(&message).map_err(|error| unwritable(method, "response", error));
    responses.map(|responses| responses.map_messages(write))
}
