//! Retries of calls: another attempt is made only if the last was certainly not executed.

use std::{io, time::Duration};

use frisbee::{Backoff, CloseReason, RefusalReason};
use tokio::time::sleep;

use crate::{
    call::{deadline::Deadline, status::Status},
    error::CallError,
};

/// The attempts of one call. None of them was executed.
#[derive(Debug)]
pub struct CallAttempts {
    deadline: Deadline,
    made: usize,
    backoff: Backoff,
    repeats_busy: bool,
}

impl CallAttempts {
    /// Starts with the first attempt of a call. The call has to be sent before this deadline.
    pub fn new(deadline: Deadline) -> Self {
        Self { deadline, made: 1, backoff: Backoff::new(REPEAT_PAUSE), repeats_busy: false }
    }

    /// Also retries calls refused by a busy server.
    ///
    /// For transports without an announced limit on calls, whose servers refuse single calls instead.
    pub fn repeat_busy(self) -> Self {
        Self { repeats_busy: true, ..self }
    }

    /// Returns the deadline of the call.
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Returns `true` for the first attempt.
    pub fn is_first(&self) -> bool {
        self.made == 1
    }

    /// Begins another attempt after a failed one. Pauses before the third and later attempts.
    ///
    /// # Errors
    ///
    /// The same status if the call may have been executed, or if no attempts are left. [`CallError::NotSent`] if the
    /// deadline passes during the pause.
    pub async fn begin_another(&mut self, status: Status) -> Result<(), Status> {
        let is_repeatable =
            needs_another_connection(&status) || self.repeats_busy && is_refused(&status, RefusalReason::Busy);
        if self.made >= ATTEMPTS_MAX || !is_repeatable {
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

/// Returns whether a call was certainly not executed and may succeed on another connection.
///
/// A protocol error is excluded: a server without frisbee would refuse the next connection too.
pub(crate) fn needs_another_connection(status: &Status) -> bool {
    match status.call_error() {
        Some(CallError::ConnectionLost { reason, may_have_executed: false }) => !is_foreign(reason),
        Some(CallError::OutOfIds { .. } | CallError::GoingAway { .. }) => true,
        _ => is_draining(status),
    }
}

/// Returns whether the peer refused the call because it shuts down.
pub(crate) fn is_draining(status: &Status) -> bool {
    is_refused(status, RefusalReason::Draining)
}

/// Returns `true` if the server speaks another protocol, or sent invalid data.
fn is_foreign(reason: &CloseReason) -> bool {
    match reason {
        CloseReason::Protocol(_) => true,
        CloseReason::Io(error) => error.kind() == io::ErrorKind::InvalidData,
        _ => false,
    }
}

fn is_refused(status: &Status, refusal: RefusalReason) -> bool {
    matches!(status.call_error(), Some(CallError::Refused { why }) if *why == refusal)
}

/// The maximum number of attempts per call. Each uses its own connection, so more than two mean several servers in
/// shutdown.
const ATTEMPTS_MAX: usize = 5;
/// The pause before the third attempt. [`Backoff`] computes the later pauses.
const REPEAT_PAUSE: Duration = Duration::from_millis(10);
