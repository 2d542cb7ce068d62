//! Publish and subscribe: brokers, clients and peers that write the wire by hand. In virtual time, but for sockets.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod basics;
mod party;
mod policies;
mod reconnects;
mod wire;
