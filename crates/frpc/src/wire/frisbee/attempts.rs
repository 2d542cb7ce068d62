//! When a call is made again: if it is certain that it was not executed, and might be on another connection.

use std::time::Duration;

use bytes::Bytes;
use frisbee::{Backoff, CloseReason, Refusal};
use tokio::time::sleep;

use super::call_table::Reply;
use crate::{
    call::{deadline::Deadline, status::Status},
    codec,
    error::CallError,
};

/// The attempts to make one call, all of which have shown that it was not executed.
pub(crate) struct Attempts {
    deadline: Deadline,
    made: usize,
    backoff: Backoff,
}

impl Attempts {
    /// Begins with the first attempt.
    pub(crate) fn new(deadline: Deadline) -> Self {
        Self { deadline, made: 1, backoff: Backoff::new(REPEAT_PAUSE) }
    }

    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Begins another attempt after one that came to this status, with a pause unless it is the second. Fails with the status
    /// if the call may have been executed, or if there were enough.
    pub(crate) async fn begin_another(&mut self, status: Status) -> Result<(), Status> {
        if self.made >= ATTEMPTS_MAX || !needs_another_connection(&status) {
            return Err(status);
        }
        if self.made > 1 {
            let pause = async {
                sleep(self.backoff.pause()).await;
                Ok(())
            };
            self.deadline.bound_unsent(pause).await?;
        }
        self.made += 1;
        Ok(())
    }
}

/// Returns whether the call was not executed, and may be on another connection: not by a peer that speaks something else.
pub(crate) fn needs_another_connection(status: &Status) -> bool {
    match status.call_error() {
        Some(CallError::ConnectionLost { reason, may_have_executed: false }) => {
            !matches!(reason, CloseReason::Protocol(_))
        }
        Some(CallError::OutOfIds { .. } | CallError::GoingAway { .. }) => true,
        _ => is_draining(status),
    }
}

/// Returns whether the peer turned the call away because it shuts down.
pub(crate) fn is_draining(status: &Status) -> bool {
    matches!(status.call_error(), Some(CallError::Refused { why: Refusal::Draining }))
}

/// Makes the answer of a peer that shuts down the status that it is. Any other status stays in its place.
#[inline]
pub(crate) fn refused_or_not(answer: Result<Reply, Status>) -> Result<Reply, Status> {
    match &answer {
        Ok(Reply::Plain(content)) if codec::is_error(content) => refusal(content).map_or(answer, Err),
        _ => answer,
    }
}

#[cold]
fn refusal(content: &Bytes) -> Option<Status> {
    let status = codec::decode_error(content)?.ok().map(Status::from)?;
    is_draining(&status).then_some(status)
}

/// The number of attempts to make a call. Each is on a connection of its own, so more than two of them meet several servers
/// that shut down.
const ATTEMPTS_MAX: usize = 5;
/// The pause before the third attempt; see [`Backoff`] for those after it.
const REPEAT_PAUSE: Duration = Duration::from_millis(10);
