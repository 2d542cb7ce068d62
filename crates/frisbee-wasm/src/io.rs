//! The traits of `tokio::io`, and the readiness of sockets for code that names it.

pub use tokio::io::*;

/// Events of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Interest(());

impl Interest {
    /// Data to read.
    pub const READABLE: Self = Self(());
}

/// The readiness of a socket. No value of this type exists.
#[derive(Clone, Copy, Debug)]
pub enum Ready {}

impl Ready {
    /// Never called.
    pub fn is_read_closed(self) -> bool {
        match self {}
    }
}
