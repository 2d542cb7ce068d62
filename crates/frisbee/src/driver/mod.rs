//! The only rooms that touch a socket.

mod tokio;
#[cfg(all(feature = "uring", target_os = "linux"))]
pub(crate) mod uring;
#[cfg(not(all(feature = "uring", target_os = "linux")))]
#[path = "no_uring.rs"]
pub(crate) mod uring;

pub(crate) use self::tokio::{Bound, Listener, Scope, Wire, connect, drive};
