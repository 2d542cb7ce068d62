//! The channel to a collector.

use frpc::{Channel, ChannelCallSettings};

use crate::{error::OtlpError, settings::OtlpSettings};

/// Connects to the collector of these settings in the background. The channel reconnects, and its calls fail after the
/// timeout.
pub(crate) fn connect(settings: &OtlpSettings) -> Result<Channel, OtlpError> {
    check(settings)?;
    // This channel has no metrics: counting exports would make an idle process export for ever.
    let calls = ChannelCallSettings { metrics: false, ..ChannelCallSettings::default() };
    let builder = Channel::builder().transport(frpc_http::transport()).calls(calls).timeout(settings.timeout);
    builder.connect_lazy(&*settings.endpoint).map_err(OtlpError::Endpoint)
}

/// Returns an error for settings that would keep every export from being sent.
pub(crate) fn check(settings: &OtlpSettings) -> Result<(), OtlpError> {
    let times = [("interval", settings.interval), ("timeout", settings.timeout)];
    match times.into_iter().find(|(_, time)| time.is_zero()) {
        Some((name, _)) => Err(OtlpError::Zero(name)),
        None => Ok(()),
    }
}
