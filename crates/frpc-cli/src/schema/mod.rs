//! Schemas: services and messages, from servers or files.

mod files;
mod reflection;
mod services;
mod sources;

pub(crate) use reflection::Unreflected;
pub(crate) use services::{Schema, kind, path, split};
pub(crate) use sources::Sources;
