//! Calls to methods with a user-defined codec.

use std::marker::PhantomData;

use super::Channel;
use crate::{
    call::{
        coded::{decoding, encoding},
        exchange::response_decode_status,
        method::Method,
        request::{IntoRequest, IntoStreamingRequest, Response},
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
        let request = request.into_request().try_map(encoding::<C, Q>(method, "request"))?;
        let response = self.channel.unary::<CodedMessage<C, Q>, CodedMessage<C, P>>(method, request).await?;
        response.try_map(decoding(method, response_decode_status))
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
        let request = request.into_request().try_map(encoding::<C, Q>(method, "request"))?;
        let responses =
            self.channel.server_streaming::<CodedMessage<C, Q>, CodedMessage<C, P>>(method, request).await?;
        Ok(responses.map(|all| all.map_messages(decoding(method, response_decode_status))))
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
        let requests =
            requests.into_streaming_request().map(|all| all.map_messages(encoding::<C, Q>(method, "request")));
        let response =
            self.channel.client_streaming::<CodedMessage<C, Q>, CodedMessage<C, P>>(method, requests).await?;
        response.try_map(decoding(method, response_decode_status))
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
        let requests =
            requests.into_streaming_request().map(|all| all.map_messages(encoding::<C, Q>(method, "request")));
        let responses = self.channel.bidirectional::<CodedMessage<C, Q>, CodedMessage<C, P>>(method, requests).await?;
        Ok(responses.map(|all| all.map_messages(decoding(method, response_decode_status))))
    }
}
