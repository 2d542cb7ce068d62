//! HTTP servers, tested by peers that write raw HTTP or use the bare `h2` crate.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod codecs;
mod connect;
#[cfg(all(feature = "http2", feature = "tower"))]
mod differential;
#[cfg(feature = "http2")]
mod engine;
#[cfg(feature = "http2")]
mod floods;
mod grpc;
mod grpc_web;
mod h2_caller;
mod h2spec;
#[cfg(feature = "http2")]
mod handler_tasks;
mod hostile1;
mod hostile2;
mod http1;
#[cfg(feature = "tower")]
mod mounted;
mod mounts;
mod plain;
mod port;
mod probe;
mod remainder;
mod rest;
mod silence;
mod strict_json;
mod twirp;
mod websocket;
mod websocket_clients;
