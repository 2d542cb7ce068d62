//! The interface between a channel and a transport.

use crate::{
    call::{
        exchange::{Answer, Call},
        status::Status,
    },
    codec::Format,
    service::boxed::BoxFuture,
};

/// A transport that makes the calls of a [`Channel`](crate::Channel).
pub trait Caller: Send + Sync + 'static {
    /// Returns the format required for messages.
    fn format(&self) -> Format;

    /// Makes a call.
    ///
    /// It fails if its [timeout](crate::Head::timeout) passes before the end of the answer, or if the request is not
    /// sent before the deadline of its [opening](crate::client::CallTime::opening).
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>>;
}
