//! Publish and subscribe: brokers, clients and peers with hand-written packets. In virtual time, except for sockets.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod accounting;
mod basics;
mod beside;
mod party;
mod policies;
mod reconnects;
mod sockets;
mod wire;
