//! Calls with real NATS servers. Skipped without nats-server: `tests/nats/build.sh` installs it.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod calls;
mod common;
mod direct;
mod hostile;
mod lost;
mod micro;
mod outages;
