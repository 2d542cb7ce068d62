//! The head of a call, which goes with its messages.

use std::{
    any::Any,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    extensions::{Extensions, Extras},
    metadata::Metadata,
};

/// The head of a call, which goes with its messages: metadata, the time it may take, and values for other code on this side.
///
/// [`Request`](crate::Request) has the same, with the message.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub(crate) extras: Extras,
    time: Time,
    origin: Option<Origin>,
}

/// The time that a call may take, as far as its head says so.
#[derive(Clone, Copy, Debug, Default)]
enum Time {
    #[default]
    Unset,
    /// From the beginning of the call on: the wish of its caller.
    Timeout(Duration),
    /// Of a call that has begun.
    Deadline(Instant),
}

/// The connection that a call came on. Only its wire knows the type.
#[derive(Clone)]
pub(crate) struct Origin(Arc<dyn Any + Send + Sync>);

impl Head {
    /// Makes the head of a call that arrived.
    #[inline]
    pub(crate) fn received(origin: Option<Origin>, deadline: Option<Instant>) -> Self {
        let time = deadline.map_or(Time::Unset, Time::Deadline);
        Self { extras: Extras::default(), time, origin }
    }

    /// Returns the names and values that travel with the call.
    pub fn metadata(&self) -> &Metadata {
        self.extras.metadata()
    }

    /// Returns the metadata, to be changed.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        self.extras.metadata_mut()
    }

    /// Returns the values for other code on this side.
    pub fn extensions(&self) -> &Extensions {
        self.extras.extensions()
    }

    /// Returns the extensions, to be changed.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        self.extras.extensions_mut()
    }

    /// Returns how long the call may take: what the caller asked for, or, once the call has arrived, what is left of it.
    pub fn timeout(&self) -> Option<Duration> {
        match self.time {
            Time::Unset => None,
            Time::Timeout(timeout) => Some(timeout),
            Time::Deadline(at) => Some(at.saturating_duration_since(now())),
        }
    }

    /// Sets how long the call may take, streams included.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.time = Time::Timeout(timeout);
    }

    /// Returns when a call that has arrived is given up by its caller, if the wire says so.
    pub fn deadline(&self) -> Option<Instant> {
        match self.time {
            Time::Deadline(at) => Some(at),
            _ => None,
        }
    }

    /// Says when the caller gives up a call that has arrived, for wires of one's own. A time of tokio's clock.
    pub fn set_deadline(&mut self, at: Instant) {
        self.time = Time::Deadline(at);
    }

    /// Tells whoever asks ([`Request::cancelled`](crate::Request::cancelled)) that the caller has given up, once the guard is
    /// dropped: for wires of one's own, which drop the handler then as well.
    pub fn cancel_on_drop(&mut self) -> CancelGuard {
        let token = CancellationToken::new();
        self.set_cancellation(token.clone());
        CancelGuard(token.drop_guard())
    }

    /// Returns a token that is cancelled once the caller has given up, if the wire tells of it.
    pub(crate) fn cancellation(&self) -> Option<&CancellationToken> {
        self.extensions().get::<Cancellation>().map(|Cancellation(token)| token)
    }

    pub(crate) fn set_cancellation(&mut self, token: CancellationToken) {
        self.extensions_mut().insert(Cancellation(token));
    }

    pub(crate) fn set_origin(&mut self, origin: Origin) {
        self.origin = Some(origin);
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }
}

/// Says when it is dropped that a call was given up. Made by [`Head::cancel_on_drop`].
#[derive(Debug)]
pub struct CancelGuard(DropGuard);

impl CancelGuard {
    /// Lets the call end without having been given up.
    pub fn disarm(self) {
        self.0.disarm();
    }
}

/// Kept among the extensions, since most calls have none.
struct Cancellation(CancellationToken);

impl Origin {
    #[inline]
    pub(crate) fn new(connection: Arc<dyn Any + Send + Sync>) -> Self {
        Self(connection)
    }

    pub(crate) fn get(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.0
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Origin")
    }
}

/// Returns the time of tokio's clock, which tests can stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
