//! What a call is on any wire.

pub(crate) mod extensions;
pub(crate) mod metadata;
pub(crate) mod method;
pub(crate) mod request;
pub(crate) mod status;
pub(crate) mod streaming;
