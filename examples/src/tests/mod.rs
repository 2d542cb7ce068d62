//! Here and not in `tests`, as with integration tests cargo builds the programs of all examples.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod browser;
mod functions;
mod postgres_proxy;
