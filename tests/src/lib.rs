//! What the tests across languages need: peers written in Go, and certificates for both sides.

mod certificate;
mod go;

pub use certificate::{SelfSigned, trusting};
pub use go::{GoPeers, GoServer};
