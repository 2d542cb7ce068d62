//! Timers and tasks of the browser with the interface of tokio, for frisbee and fRPC on `wasm32-unknown-unknown`.
//!
//! The timers and tasks of tokio need a clock and a thread, and this target has neither. frisbee and fRPC use this crate
//! under the name `tokio` there: the modules without a runtime come from tokio, timers run on `setTimeout`, and tasks
//! in the event loop of the browser. Applications use `frisbee-rpc` and `frisbee-rpc-websocket` instead of this crate.
//!
//! On other targets the crate is empty.
#![cfg(target_family = "wasm")]

pub mod io;
pub mod net;
pub mod runtime;
pub mod task;
pub mod time;
mod timers;

pub use task::spawn;
pub use tokio::{join, pin, select, sync, try_join};
pub use web_time;
