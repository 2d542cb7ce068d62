//! Connections: the handles, the state that they share with the driver, and streams.

mod core;
mod handle;
#[cfg(loom)]
mod model;
mod sending;
mod shared;
mod space;
mod states;
mod stream;
mod waiting;

#[cfg(loom)]
pub use self::model::ConnectionModel;
pub(crate) use self::{core::ConnectionCore, sending::WriteStep, shared::ConnectionShared};
pub use self::{
    handle::{Connection, ConnectionMetrics},
    sending::SendPosition,
    stream::{Stream, StreamReader, StreamSender},
};
