//! Connections: the handles, the state that they share with the driver, and streams.

mod core;
mod handle;
mod sending;
mod shared;
mod states;
mod stream;
mod waiting;

pub(crate) use self::{core::Core, sending::Next, shared::Shared};
pub use self::{
    handle::{Connection, ConnectionMetrics},
    sending::Sent,
    stream::{Stream, StreamReader, StreamSender},
};
