//! The head of a call, sent along with its messages.

use std::{any::Any, fmt, sync::Arc, time::Duration};

use frisbee::clock::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    extensions::{Extensions, HeadExtras},
    metadata::Metadata,
};

/// The metadata, time limit and extensions of a call.
///
/// [`Request`](crate::Request) combines a head with a message.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub(crate) extras: HeadExtras,
    time: TimeSetting,
    origin: Option<CallOrigin>,
}

/// The time limit stored in a head.
#[derive(Clone, Copy, Debug, Default)]
enum TimeSetting {
    #[default]
    Unset,
    /// Requested by the caller, counted from the start of the call.
    Timeout(Duration),
    /// The deadline of a running call.
    Deadline(Instant),
}

/// The connection a call arrived on. Only its wire knows the type.
#[derive(Clone)]
pub(crate) struct CallOrigin(Arc<dyn Any + Send + Sync>);

impl Head {
    /// Creates the head of a received call.
    #[inline]
    pub(crate) fn received(origin: Option<CallOrigin>, deadline: Option<Instant>) -> Self {
        let time = deadline.map_or(TimeSetting::Unset, TimeSetting::Deadline);
        Self { extras: HeadExtras::default(), time, origin }
    }

    /// Returns the metadata sent along with the call.
    pub fn metadata(&self) -> &Metadata {
        self.extras.metadata()
    }

    /// Returns a mutable reference to the metadata.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        self.extras.metadata_mut()
    }

    /// Returns the values attached for other code on this side.
    pub fn extensions(&self) -> &Extensions {
        self.extras.extensions()
    }

    /// Returns a mutable reference to the extensions.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        self.extras.extensions_mut()
    }

    /// Returns the timeout of the call. For a received call, returns the remaining time.
    pub fn timeout(&self) -> Option<Duration> {
        match self.time {
            TimeSetting::Unset => None,
            TimeSetting::Timeout(timeout) => Some(timeout),
            TimeSetting::Deadline(at) => Some(at.saturating_duration_since(now())),
        }
    }

    /// Limits the duration of the call, streams included.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.time = TimeSetting::Timeout(timeout);
    }

    /// Returns the deadline of a received call, if the wire carries one.
    pub fn deadline(&self) -> Option<Instant> {
        match self.time {
            TimeSetting::Deadline(at) => Some(at),
            _ => None,
        }
    }

    /// Sets the deadline of a received call, for custom wires. `at` must be a time of tokio's clock.
    pub fn set_deadline(&mut self, at: Instant) {
        self.time = TimeSetting::Deadline(at);
    }

    /// Returns a guard that signals cancellation to [`Request::cancelled`](crate::Request::cancelled) when it is
    /// dropped. If the caller cancels the call, a custom wire drops the guard and the handler.
    pub fn cancel_on_drop(&mut self) -> CancelGuard {
        let token = CancellationToken::new();
        self.set_cancellation(token.clone());
        CancelGuard(token.drop_guard())
    }

    /// Returns a token that is cancelled when the caller cancels the call, if the wire reports cancellations.
    pub(crate) fn cancellation(&self) -> Option<&CancellationToken> {
        self.extensions().get::<HeadCancellation>().map(|HeadCancellation(token)| token)
    }

    pub(crate) fn set_cancellation(&mut self, token: CancellationToken) {
        self.extensions_mut().insert(HeadCancellation(token));
    }

    pub(crate) fn set_origin(&mut self, origin: CallOrigin) {
        self.origin = Some(origin);
    }

    pub(crate) fn origin(&self) -> Option<&CallOrigin> {
        self.origin.as_ref()
    }
}

/// Signals the cancellation of a call when dropped. Created by [`Head::cancel_on_drop`].
#[derive(Debug)]
pub struct CancelGuard(DropGuard);

impl CancelGuard {
    /// Drops the guard without a cancellation.
    pub fn disarm(self) {
        self.0.disarm();
    }
}

/// An extension of the head, because most calls have none.
struct HeadCancellation(CancellationToken);

impl CallOrigin {
    #[inline]
    pub(crate) fn new(connection: Arc<dyn Any + Send + Sync>) -> Self {
        Self(connection)
    }

    pub(crate) fn get(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.0
    }
}

impl fmt::Debug for CallOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Origin")
    }
}

/// Returns the time of tokio's clock, because tests can pause it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
