//! Handling of calls to methods with a user-defined codec.

use std::{future::Future, marker::PhantomData};

use crate::{
    call::{
        coded::{decoding, encoding},
        exchange::{Answer, Call, request_decode_status},
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
        let handle = |request: Request<CodedMessage<C, Q>>| async move {
            let response = handler(request.try_map(decoding::<C, Q>(method, request_decode_status))?).await?;
            response.try_map(encoding::<C, P>(method, "response"))
        };
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
        let handle = |request: Request<CodedMessage<C, Q>>| async move {
            let responses = handler(request.try_map(decoding::<C, Q>(method, request_decode_status))?).await?;
            Ok(responses.map(|all| all.map_messages(encoding::<C, P>(method, "response"))))
        };
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
        let handle = |requests: Request<Streaming<CodedMessage<C, Q>>>| async move {
            let response =
                handler(requests.map(|all| all.map_messages(decoding::<C, Q>(method, request_decode_status)))).await?;
            response.try_map(encoding::<C, P>(method, "response"))
        };
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
        let handle = |requests: Request<Streaming<CodedMessage<C, Q>>>| async move {
            let responses =
                handler(requests.map(|all| all.map_messages(decoding::<C, Q>(method, request_decode_status)))).await?;
            Ok(responses.map(|all| all.map_messages(encoding::<C, P>(method, "response"))))
        };
        self.call.bidirectional(handle).await
    }
}
