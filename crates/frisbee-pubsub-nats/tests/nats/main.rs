//! Clients and bridges over real NATS servers.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bridge;
mod cluster;
mod core;
mod durable;
mod source;
