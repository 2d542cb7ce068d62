//! Conversion of messages with a user-defined codec.

use std::sync::Arc;

use super::{method::Method, status::Status};
use crate::codec::{Codec, CodecError, CodedMessage};

/// Returns a function that encodes messages. `which` names them in errors: "request" or "response".
pub(crate) fn encoding<C: Codec<M>, M: 'static>(
    method: &'static Method,
    which: &'static str,
) -> impl Fn(M) -> Result<CodedMessage<C, M>, Status> + Send + 'static {
    // The fault is on this side.
    let failed = move |error: CodecError| {
        let text = format!("the {which} of {method} cannot be sent: {error}");
        Status::internal(text).with_source(Arc::new(error) as Arc<_>)
    };
    move |message| CodedMessage::encode(&message).map_err(failed)
}

/// Returns a function that decodes messages. `status` converts an error.
pub(crate) fn decoding<C: Codec<M>, M: 'static>(
    method: &'static Method,
    status: fn(&Method, CodecError) -> Status,
) -> impl Fn(CodedMessage<C, M>) -> Result<M, Status> + Send + 'static {
    move |coded| coded.decode().map_err(|error| status(method, error))
}
