//! JSON-RPC servers, tested by peers that write raw bytes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod caller;
mod functions;
#[cfg(feature = "http")]
mod giving_up;
mod hostile;
mod http;
#[cfg(feature = "http")]
mod inheriting;
#[cfg(feature = "http")]
mod layers;
#[cfg(feature = "http")]
mod leaving;
mod limits;
mod schemas;
mod service;
mod services;
mod specification;
mod strict_json;
mod subscriptions;
#[cfg(feature = "http")]
mod websocket;
