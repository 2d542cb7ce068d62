//! Servers that speak HTTP, against peers that write HTTP by hand or with bare h2.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod grpc;
mod h2_caller;
