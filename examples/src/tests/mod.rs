//! Tests of the examples. Integration tests in `tests` would make cargo build the binaries of all examples.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod browser;
mod etcd_proxy;
mod functions;
mod gateway;
mod pages;
mod postgres_proxy;
mod redis_proxy;
