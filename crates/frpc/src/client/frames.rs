//! Frames of the connections of transports.

use std::{fmt, sync::Arc};

use frisbee::FrameCounts;

use crate::call::meter::CallMeter;

/// Counts the frames of connections for the [metrics](crate::metrics::MetricsSnapshot::frames) of the target of a channel.
///
/// Channels pass it to each [`Transport`](crate::Transport) in [`ConnectSettings`](crate::ConnectSettings). The default
/// counts nothing.
///
/// ```
/// use frpc::{ConnectSettings, frisbee::FrameCounts};
///
/// let settings = ConnectSettings::default();
/// let report = settings.frames.report(|| {
///     let mut counts = FrameCounts::default();
///     counts.add("HEADERS", 3, 1);
///     counts
/// });
/// // At the end of the connection:
/// drop(report);
/// ```
#[derive(Clone, Default)]
pub struct FrameMeter(Option<Arc<CallMeter>>);

/// A connection whose frames count until this is dropped. Its last counts are kept.
#[must_use = "the frames count until this is dropped"]
pub struct FrameReport {
    meter: Option<Arc<CallMeter>>,
    number: u64,
}

impl FrameMeter {
    pub(crate) fn new(meter: Option<Arc<CallMeter>>) -> Self {
        Self(meter)
    }

    /// Adds a connection. `read` is called for each snapshot and at the end, and must return quickly.
    pub fn report(&self, read: impl Fn() -> FrameCounts + Send + Sync + 'static) -> FrameReport {
        let meter = self.0.clone();
        let number = meter.as_ref().map_or(0, |meter| meter.frames().begin(Box::new(read)));
        FrameReport { meter, number }
    }
}

impl Drop for FrameReport {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            meter.frames().end(self.number);
        }
    }
}

impl fmt::Debug for FrameMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameMeter").finish_non_exhaustive()
    }
}

impl fmt::Debug for FrameReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReport").finish_non_exhaustive()
    }
}
