//! Methods by path or operation, called with bytes.

#[allow(clippy::module_inception)]
pub(crate) mod service;
pub(crate) mod services;
