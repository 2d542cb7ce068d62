//! HTTP/2 connections of clients, driven by [`frpc_http2`].
//!
//! ```text
//!   driver   the task of a connection: owns the socket and the protocol core
//!   calls    open calls of a connection
//!   call     one call: the arrived part of its response
//!   request  the heads of requests, with blocks for repeated ones
//! ```

mod call;
mod calls;
mod driver;
mod request;
#[cfg(test)]
mod tests;

pub(super) use self::{
    call::{Http2Body, Http2Failure, Http2Response, ShortOutcome, ShortResponse},
    driver::Http2Sender,
    request::{Http2Content, Http2Request, MethodHead, ShortMessage},
};
