//! Rules shared by all transports, for authors of a [`Transport`](crate::Transport): deadlines, retries and reconnects.

pub(crate) mod caller;
mod deadline;
mod dial;
pub(crate) mod frames;
mod reconnect;
mod retry;
mod stream;
pub(crate) mod transport;

pub(crate) use self::retry::{is_draining, needs_another_connection};
pub use self::{
    deadline::{end_at_deadline, with_own_timeout},
    dial::connect,
    frames::{FrameMeter, FrameReport},
    reconnect::{ReconnectingTransport, Redial, RedialPauses, open},
    retry::CallAttempts,
    stream::StreamConnector,
};
pub use crate::call::{
    arrival::note_arrival,
    deadline::{CallTime, Deadline, DeadlineFuture},
};
