//! The bytes of packets and streams. Performs no I/O.

pub(crate) mod compressed;
pub(crate) mod envelope;
pub(crate) mod hello;
pub(crate) mod schema;
pub(crate) mod stream_framing;
