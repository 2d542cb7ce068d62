//! The services and messages of a server.

mod files;
mod reflection;
mod services;
mod sources;

pub(crate) use reflection::Unreflected;
pub(crate) use services::{Schema, kind, path, split};
pub(crate) use sources::Sources;
