//! The only rooms that touch a socket.

mod tokio;

pub(crate) use self::tokio::{Bound, Listener, Scope, Wire, connect, drive};
