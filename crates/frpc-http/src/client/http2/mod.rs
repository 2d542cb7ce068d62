//! HTTP/2 connections of clients, driven by [`frpc_http2`].
//!
//! ```text
//!   driver   the task of a connection: owns the socket and the protocol core
//!   calls    open calls of a connection
//!   call     one call: the arrived part of its response
//!   request  the heads of requests, with blocks for repeated ones
//!   plain    responses of one message, which need no further reading
//! ```

mod call;
mod calls;
mod driver;
mod plain;
mod request;
#[cfg(test)]
mod tests;

pub(super) use self::{
    call::{Http2Body, Http2Failure, Http2Response, ShortCall, ShortOutcome, ShortResponse},
    driver::Http2Sender,
    plain::PlainResponse,
    request::{AddedHeaders, CallHead, Http2Content, Http2Request, MethodHead, ShortMessage},
};
