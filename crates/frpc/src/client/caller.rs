//! The transport that makes the calls of a channel.

use crate::{
    call::{
        exchange::{Answer, Call},
        status::Status,
    },
    codec::Format,
    service::boxed::BoxFuture,
};

/// A transport, as a [`Channel`](crate::Channel) uses it: it takes calls to wherever they are answered.
pub trait Caller: Send + Sync + 'static {
    /// Returns the format that the messages of a call have.
    fn format(&self) -> Format;

    /// Makes a call. It fails when its [timeout](crate::Head::timeout) is up before the end of its answer, and when the request
    /// is not sent before the deadline of its [opening](crate::client::CallTime::opening).
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>>;
}
