//! Clients with lost, full or slow connections and with refusing servers. The peers are our servers and hand-written
//! HTTP/2 servers.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod compression;
mod frames;
#[cfg(feature = "http2")]
mod hostile;
mod http2;
mod losses;
mod network;
