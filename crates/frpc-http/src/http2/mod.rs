//! HTTP/2 connections of a server: our driver of [`frpc_http2`], or parts missing from hyper.

#[cfg(not(feature = "http2"))]
mod answers;
#[cfg(feature = "http2")]
mod connection;
mod preface;
#[cfg(feature = "http2")]
mod request;
#[cfg(feature = "http2")]
mod request_body;
#[cfg(feature = "http2")]
mod response;
#[cfg(feature = "http2")]
mod streams;
#[cfg(feature = "http2")]
mod wakes;

#[cfg(not(feature = "http2"))]
pub(crate) use self::answers::{PiecewiseBody, ResponseExecutor};
#[cfg(feature = "http2")]
pub(crate) use self::connection::serve;
pub(crate) use self::preface::read_preface;
