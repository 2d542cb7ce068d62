//! Transports in this crate: frisbee, and calls within a process.

pub(crate) mod call_limit;
pub(crate) mod frisbee;
pub(crate) mod local;
pub(crate) mod peer;
pub(crate) mod server_wire;
