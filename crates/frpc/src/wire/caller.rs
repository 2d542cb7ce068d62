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

    /// Makes a call. It fails when its [timeout](crate::Head::timeout) is up before the end of its answer, and when it is not
    /// under way within its [opening timeout](Call::opening_timeout).
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>>;
}
