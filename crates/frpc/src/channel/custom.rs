//! Calls to methods with a user-defined codec.

use std::marker::PhantomData;

use super::Channel;
use crate::{
    call::{
        exchange::{response_decode_status, unwritable},
        method::Method,
        request::{IntoRequest, IntoStreamingRequest, Request, Response},
        status::Status,
        streaming::Streaming,
    },
    codec::{Codec, CodedMessage},
};

/// A channel with a [`Codec`] for all messages.
#[doc(hidden)]
#[derive(Debug)]
pub struct CodedChannel<'a, C> {
    channel: &'a Channel,
    codec: PhantomData<fn() -> C>,
}

impl Channel {
    /// Selects the codec for the messages of a call.
    #[doc(hidden)]
    pub fn with_codec<C>(&self) -> CodedChannel<'_, C> {
        CodedChannel { channel: self, codec: PhantomData }
    }
}

impl<C> CodedChannel<'_, C> {
    /// Makes a unary call.
    pub async fn unary<Q, P>(self, method: &'static Method, request: impl IntoRequest<Q>) -> Result<Response<P>, Status>
    where
        C: Codec<Q> + Codec<P>,
        Q: 'static,
        P: 'static,
    {
        let request = one::<C, Q>(method, request.into_request())?;
        let response = self.channel.unary::<CodedMessage<C, Q>, CodedMessage<C, P>>(method, request).await?;
        answered(method, response)
    }

    /// Makes a server-streaming call.
    pub async fn server_streaming<Q, P>(
        self,
        method: &'static Method,
        request: impl IntoRequest<Q>,
    ) -> Result<Response<Streaming<P>>, Status>
    where
        C: Codec<Q> + Codec<P>,
        Q: 'static,
        P: 'static,
    {
        let request = one::<C, Q>(method, request.into_request())?;
        let responses =
            self.channel.server_streaming::<CodedMessage<C, Q>, CodedMessage<C, P>>(method, request).await?;
        Ok(streamed(method, responses))
    }

    /// Makes a client-streaming call.
    pub async fn client_streaming<Q, P>(
        self,
        method: &'static Method,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<P>, Status>
    where
        C: Codec<Q> + Codec<P>,
        Q: Send + 'static,
        P: 'static,
    {
        let requests = many::<C, Q>(method, requests.into_streaming_request());
        let response =
            self.channel.client_streaming::<CodedMessage<C, Q>, CodedMessage<C, P>>(method, requests).await?;
        answered(method, response)
    }

    /// Makes a bidirectional call.
    pub async fn bidirectional<Q, P>(
        self,
        method: &'static Method,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<Streaming<P>>, Status>
    where
        C: Codec<Q> + Codec<P>,
        Q: Send + 'static,
        P: 'static,
    {
        let requests = many::<C, Q>(method, requests.into_streaming_request());
        let responses = self.channel.bidirectional::<CodedMessage<C, Q>, CodedMessage<C, P>>(method, requests).await?;
        Ok(streamed(method, responses))
    }
}

/// Encodes the request.
fn one<C: Codec<Q>, Q>(method: &Method, request: Request<Q>) -> Result<Request<CodedMessage<C, Q>>, Status> {
    let (head, message) = request.into_parts();
    let coded = CodedMessage::encode(&message).map_err(|error| unwritable(method, "request", error))?;
    Ok(Request::from_parts(head, coded))
}

/// Encodes each request when it is sent.
fn many<C: Codec<Q>, Q: Send + 'static>(
    method: &'static Method,
    requests: Request<Streaming<Q>>,
) -> Request<Streaming<CodedMessage<C, Q>>> {
    let write = |message: Q| CodedMessage::encode(&message).map_err(|error| unwritable(method, "request", error));
    requests.map(|requests| requests.map_messages(write))
}

/// Decodes the response.
fn answered<C: Codec<P>, P>(method: &Method, response: Response<CodedMessage<C, P>>) -> Result<Response<P>, Status> {
    let (extras, coded) = response.into_parts();
    let message = coded.decode().map_err(|error| response_decode_status(method, error))?;
    Ok(Response::from_parts(extras, message))
}

/// Decodes each response when it is received.
fn streamed<C: Codec<P>, P: 'static>(
    method: &'static Method,
    responses: Response<Streaming<CodedMessage<C, P>>>,
) -> Response<Streaming<P>> {
    let read = |coded: CodedMessage<C, P>| coded.decode().map_err(|error| response_decode_status(method, error));
    responses.map(|responses| responses.map_messages(read))
}
