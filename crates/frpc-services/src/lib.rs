//! Standard services for [frpc]: [gRPC health checks](Health) with a [watcher](HealthWatcher) for channels, and [server reflection](Reflection), on all wires of a
//! server including frisbee.
//!
//! ```
//! use frpc::Server;
//! use frpc_services::{Health, Reflection};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let health = Health::new();
//! let server = Server::builder()
//!     .add_service(health.clone())
//!     .add_service(Reflection::v1())
//!     .add_service(Reflection::v1alpha());
//! # let server = server.bind("mem:ready").await?;
//! # Ok(())
//! # }
//! ```
//!
//! The module [protos] contains the generated code of both, including clients.
#![forbid(unsafe_code)]

mod catalog;
mod health;
pub mod protos;
mod reflection;
mod watcher;

pub use health::{Health, ServingStatus};
pub use reflection::{Reflection, V1, V1Alpha, Version};
pub use watcher::HealthWatcher;
