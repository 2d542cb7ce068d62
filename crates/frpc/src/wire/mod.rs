//! The transports that calls go over.

pub(crate) mod caller;
pub(crate) mod frisbee;
pub(crate) mod local;
pub(crate) mod peer;
pub(crate) mod server_wire;
pub(crate) mod transport;
