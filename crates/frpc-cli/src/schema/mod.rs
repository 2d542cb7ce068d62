//! Schemas: services and messages, from servers or files.

mod files;
mod reflection;
mod services;
mod sources;

#[cfg(feature = "proto")]
pub(crate) use files::proto_dirs;
pub(crate) use reflection::ReflectionError;
pub(crate) use services::{ServerSchema, kind, path, split};
pub(crate) use sources::SchemaSources;
