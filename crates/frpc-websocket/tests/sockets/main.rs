//! WebSockets in memory and in virtual time, against each other and against peers that write bytes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod hostile;
mod messages;
mod peer;
mod streams;
