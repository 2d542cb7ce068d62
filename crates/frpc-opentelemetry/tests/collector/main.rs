//! The exporters against a collector made with frpc.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod fake;
mod metrics;
#[cfg(feature = "traces")]
mod traces;
