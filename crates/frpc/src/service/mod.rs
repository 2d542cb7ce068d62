//! Services as seen by every transport: methods found by path or operation, called with encoded messages.

mod access_log;
pub(crate) mod boxed;
pub(crate) mod custom;
pub(crate) mod ending;
pub(crate) mod endpoint;
pub(crate) mod handle;
pub(crate) mod layer;
pub mod layers;
mod log_writer;
mod overload;
mod rate;
mod report;
pub(crate) mod services;
pub(crate) mod set;
pub(crate) mod settings;
pub(crate) mod table;
#[cfg(feature = "tower")]
pub(crate) mod tower;
mod trace;
