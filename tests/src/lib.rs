//! What several tests need: peers written in Go, certificates for both sides, the services that the peers know, the
//! engines that can be had, and an ear for the log.

mod certificate;
mod engines;
mod go;
pub mod interop;
mod log;

pub use certificate::{SelfSigned, trusting};
pub use engines::{can_be_had, engines, rings};
pub use go::{GoPeers, GoServer};
pub use log::{ThreadLog, hear_log};
