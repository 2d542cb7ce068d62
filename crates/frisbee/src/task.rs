//! Handles of tasks that tokio lacks.

#[cfg(target_family = "wasm")]
pub use tokio::task::AbortOnDropHandle;
#[cfg(not(target_family = "wasm"))]
pub use tokio_util::task::AbortOnDropHandle;
