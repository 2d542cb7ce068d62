//! The bytes around messages: frames and compression. No headers, no sockets.

pub(crate) mod compression;
pub(crate) mod envelope;
pub(crate) mod greeting;
