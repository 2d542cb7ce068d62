//! The command `frpc`, as a process, with a server that it started itself.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bench;
mod calls;
mod declarations;
mod lock;
mod mistakes;
mod plain;
mod plain_go;
mod program;
mod tls;
