//! The command `frpc`, run as a process. It also starts the server.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bench;
mod calls;
mod declarations;
mod editions;
#[cfg(feature = "proto")]
mod lock;
mod mistakes;
mod new;
#[cfg(feature = "proto")]
mod openapi;
mod output;
#[cfg(feature = "proto")]
mod plain;
#[cfg(feature = "proto")]
mod plain_go;
mod program;
#[cfg(feature = "pubsub")]
mod pubsub;
mod replay;
mod tls;
mod top;
