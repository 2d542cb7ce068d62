//! What the tests across languages need: peers written in Go, certificates for both sides, and the services that the
//! peers know.

mod certificate;
mod go;
pub mod interop;

pub use certificate::{SelfSigned, trusting};
pub use go::{GoPeers, GoServer};
