//! Conversations over every kind of address, plain and with TLS, on both engines, and what only real sockets show.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod addresses;
mod calls;
mod certificates;
mod conversations;
mod place;
mod shutdowns;
mod tls;
