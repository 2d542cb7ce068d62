//! Messages of serde, and the codec of either side that writes them as JSON: that of tonic is the one of its example `json-codec`.

use std::{error::Error, marker::PhantomData};

use bytes::{Buf, BufMut, Bytes};
use frpc::codec;
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::{Ours, Theirs, ours, theirs};

/// A message of callers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Question {
    /// The question.
    pub text: String,
}

/// A message of services.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Answer {
    /// True if there is an answer.
    pub known: Option<bool>,
    /// The answer.
    pub text: String,
}

/// Returns the answer of both sides.
fn answer(question: Question) -> Answer {
    Answer { known: (!question.text.is_empty()).then_some(true), text: format!("{}!", question.text) }
}

/// Writes JSON for frpc.
#[derive(Debug)]
pub struct JsonCodec;

impl<M: Serialize + DeserializeOwned> codec::Codec<M> for JsonCodec {
    const NAME: &'static str = "json";

    fn encode(message: &M, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_writer(out, message)?)
    }

    fn decode(content: &Bytes) -> Result<M, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::from_slice(content)?)
    }
}

impl ours::oracle::oracle_server::Oracle for Ours {
    async fn ask(&self, request: frpc::Request<Question>) -> Result<frpc::Response<Answer>, frpc::Status> {
        Ok(answer(request.into_inner()).into())
    }

    async fn ask_often(
        &self,
        request: frpc::Request<frpc::Streaming<Question>>,
    ) -> Result<frpc::Response<frpc::Streaming<Answer>>, frpc::Status> {
        Ok(frpc::Streaming::new(request.into_inner().map_ok(answer)).into())
    }
}

/// Writes JSON for tonic.
#[derive(Debug)]
pub struct TonicCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for TonicCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// One direction of it.
#[derive(Debug)]
pub struct TonicHalf<T>(PhantomData<T>);

impl<T: Serialize + Send + 'static, U: DeserializeOwned + Send + 'static> Codec for TonicCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = TonicHalf<T>;
    type Decoder = TonicHalf<U>;

    fn encoder(&mut self) -> TonicHalf<T> {
        TonicHalf(PhantomData)
    }

    fn decoder(&mut self) -> TonicHalf<U> {
        TonicHalf(PhantomData)
    }
}

impl<T: Serialize> Encoder for TonicHalf<T> {
    type Item = T;
    type Error = tonic::Status;

    fn encode(&mut self, item: T, buf: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        serde_json::to_writer(buf.writer(), &item).map_err(|error| tonic::Status::internal(error.to_string()))
    }
}

impl<U: DeserializeOwned> Decoder for TonicHalf<U> {
    type Item = U;
    type Error = tonic::Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, tonic::Status> {
        if !buf.has_remaining() {
            return Ok(None);
        }
        serde_json::from_reader(buf.reader()).map(Some).map_err(|error| tonic::Status::internal(error.to_string()))
    }
}

#[tonic::async_trait]
impl theirs::oracle::oracle_server::Oracle for Theirs {
    type AskOftenStream = std::pin::Pin<Box<dyn futures_util::Stream<Item = Result<Answer, tonic::Status>> + Send>>;

    async fn ask(&self, request: tonic::Request<Question>) -> Result<tonic::Response<Answer>, tonic::Status> {
        Ok(tonic::Response::new(answer(request.into_inner())))
    }

    async fn ask_often(
        &self,
        request: tonic::Request<tonic::Streaming<Question>>,
    ) -> Result<tonic::Response<Self::AskOftenStream>, tonic::Status> {
        Ok(tonic::Response::new(Box::pin(request.into_inner().map_ok(answer))))
    }
}
