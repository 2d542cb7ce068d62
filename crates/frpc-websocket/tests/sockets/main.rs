//! WebSockets in memory and in virtual time, tested with each other and with peers that write raw bytes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod hostile;
mod messages;
mod peer;
mod streams;
