//! Conversations over every kind of address, plain and with TLS, on every engine, and effects visible only on real
//! sockets.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod addresses;
mod calls;
mod channels;
mod compression;
mod conversations;
#[cfg(target_os = "linux")]
mod dns;
#[cfg(target_os = "linux")]
mod engines;
mod extended;
mod fleet;
mod foreign;
#[cfg(target_os = "linux")]
mod handover;
mod keepalive;
mod metrics;
mod pem;
mod plain_posts;
#[cfg(target_os = "linux")]
mod processes;
mod random_calls;
mod reconnecting;
mod redials;
mod refusals;
#[cfg(target_os = "linux")]
mod replicas;
mod required;
mod restarts;
mod shutdowns;
#[cfg(unix)]
mod starting;
#[cfg(target_os = "linux")]
mod stops;
#[cfg(target_os = "linux")]
mod systemd;
mod tls;
mod traces;
mod wires;
