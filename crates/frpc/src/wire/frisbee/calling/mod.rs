//! Calls made from this side of a connection.

pub(crate) mod connection;
pub(crate) mod pending;
pub(crate) mod reconnecting;
pub(crate) mod request;
mod route;
mod schema_check;
mod streams;
pub(crate) mod table;
pub(crate) mod unary;

use std::sync::Arc;

use self::{
    reconnecting::FrisbeeCaller,
    streams::{ServerStreamCall, StreamCall},
    unary::UnaryCall,
};
use crate::{
    call::{
        deadline::CallTime,
        exchange::{Answer, Body, Call},
        method::MethodKind,
        status::Status,
    },
    client::caller::Caller,
    codec::Format,
    service::boxed::BoxFuture,
};

/// Calls of every kind, as made by layers and by callers without types. Unary calls without layers use `FrisbeeCaller`
/// directly, without a box.
impl Caller for Arc<FrisbeeCaller> {
    fn format(&self) -> Format {
        Format::Polyglot
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        Box::pin(async move {
            let (method, format, kind, time) = (call.method(), call.format(), call.kind(), call.time());
            let CallTime { opening, whole } = time;
            let (head, body) = call.into_parts();
            if let (MethodKind::Unary, Body::One(content)) = (kind, &body) {
                let call = UnaryCall::new(self, method, Some(format), &head, content, time);
                return call.answer(self.unary(&call, None).await?.0);
            }
            // The channel's timeout bounds only the opening of a stream.
            let contents = match (kind, body) {
                (MethodKind::ServerStreaming, Body::One(content)) => {
                    let content = content.into_bytes();
                    self.server_streaming(ServerStreamCall { method, format, head, content, opening, whole }).await?
                }
                (MethodKind::ClientStreaming, Body::Many(contents)) => {
                    let call = StreamCall { method, format, head: &head, timeout: whole, opening, whole };
                    let (connection, opened) = self.open_stream(&call).await?;
                    return connection.client_streaming(opened, contents, opening, whole).await;
                }
                (MethodKind::Bidirectional, Body::Many(contents)) => {
                    let call = StreamCall { method, format, head: &head, timeout: whole, opening, whole };
                    let (connection, opened) = self.open_stream(&call).await?;
                    connection.bidirectional(opened, contents, whole)
                }
                _ => return Err(Status::internal("the call does not have the messages of its kind")),
            };
            Ok(Answer::new(Body::Many(contents)))
        })
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(FrisbeeCaller::lost(self))
    }
}
