//! Calls of the peer, answered by the services of this side.

mod failures;
pub(crate) mod origin;
pub(crate) mod router;
mod streams;
mod takeover;
mod unary;
