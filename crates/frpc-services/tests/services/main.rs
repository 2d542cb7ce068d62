//! Tests of the services, over frisbee and in process.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod either;
mod health;
mod reflection;
mod watcher;
