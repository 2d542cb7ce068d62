//! The contents of headers and trailers.

pub(crate) mod metadata;
pub(crate) mod percent;
pub(crate) mod timeout;
