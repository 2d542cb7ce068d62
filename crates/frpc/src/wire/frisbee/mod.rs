//! Calls as frisbee packets and streams, as frpc-go puts them on the wire.

pub(crate) mod answers;
pub(crate) mod client;
pub(crate) mod peer;
pub(crate) mod pending;
pub(crate) mod reconnect;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod stream_framing;
pub(crate) mod take_over;
