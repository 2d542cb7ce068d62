//! Clients and bridges over real nats-servers.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bridge;
mod core;
mod durable;
