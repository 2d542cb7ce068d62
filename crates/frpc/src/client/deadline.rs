//! Deadlines on the calling side.

use bytes::Bytes;
use futures_util::{
    Stream, TryStreamExt,
    stream::{self, BoxStream},
};

use crate::{
    call::{
        deadline::{Deadline, DeadlineFuture},
        status::{Code, Status},
    },
    error::CallError,
};

impl Deadline {
    /// Limits the wait for an answer. After the deadline it fails with [`CallError::TimedOut`].
    pub fn bound<F>(self, future: F) -> DeadlineFuture<F> {
        self.bound_with(future, Self::passed)
    }

    /// Limits a step before the request is sent. After the deadline it fails with [`CallError::NotSent`].
    pub fn bound_unsent<F>(self, future: F) -> DeadlineFuture<F> {
        self.bound_with(future, Self::passed_unsent)
    }

    /// Returns the status of a call without an answer at its deadline.
    pub fn passed(self) -> Status {
        CallError::TimedOut { limit: self.limit }.into()
    }

    /// Returns the status of a call that was not sent before its deadline.
    pub fn passed_unsent(self) -> Status {
        CallError::NotSent { limit: self.limit }.into()
    }
}

/// Replaces the status of a server that ended the call at its deadline by the timeout status of this side.
///
/// Both sides watch the deadline. The caller gets the same error, whichever side is faster.
pub fn with_own_timeout(status: Status, deadline: Option<Deadline>) -> Status {
    match deadline {
        Some(deadline) if may_be_server_deadline(&status) && deadline.is_over() => deadline.passed(),
        _ => status,
    }
}

/// Returns whether the server may have ended the call at its deadline. A stream that it resets has the code `Cancelled`.
fn may_be_server_deadline(status: &Status) -> bool {
    status.call_error().is_none() && matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled)
}

/// Ends the messages of an answer at the deadline of the call.
///
/// It ends them even if more messages are ready: a server as fast as its reader would never be late.
pub fn end_at_deadline(
    messages: BoxStream<'static, Result<Bytes, Status>>,
    deadline: Deadline,
) -> impl Stream<Item = Result<Bytes, Status>> + Send + 'static {
    stream::try_unfold(messages, move |mut messages| async move {
        if deadline.is_over() {
            return Err(deadline.passed());
        }
        let next = deadline.bound(messages.try_next()).await;
        let next = next.map_err(|status| with_own_timeout(status, Some(deadline)))?;
        Ok(next.map(|message| (message, messages)))
    })
}
