//! Settings of a channel.

use frisbee::{Dispatch, InvalidSetting};

use crate::wire::frisbee::calling::{connection::CallLimitPolicy, reconnecting::LostMetadata, table::CALLS_MAX};

/// Settings of a channel for the calls that it makes, and for handlers of the server's calls.
///
/// Fields may be added, so `..ChannelCallSettings::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug)]
pub struct ChannelCallSettings {
    /// The number of concurrent calls, without streaming calls. Default and maximum 32 768: half of the packet ids.
    pub calls_max: usize,
    /// The treatment of a call beyond [`calls_max`](Self::calls_max) or the server's limit
    /// ([`CallSettings::calls_max`](crate::CallSettings::calls_max)). Default [`CallLimitPolicy::Wait`].
    pub when_full: CallLimitPolicy,
    /// The treatment of a call with metadata if the peer cannot receive it. Default [`LostMetadata::Fail`].
    pub lost_metadata: LostMetadata,
    /// The mode in which handlers of the server's calls and packets run; see [`frisbee::Client::dispatch`]. Default
    /// [`Dispatch::InPlace`].
    pub dispatch: Dispatch,
    /// Counts calls for [`metrics`](crate::metrics). Default: yes. It costs 1 to 2 % of the instructions of a small call.
    pub metrics: bool,
}

impl Default for ChannelCallSettings {
    fn default() -> Self {
        Self {
            calls_max: CALLS_MAX,
            when_full: CallLimitPolicy::default(),
            lost_metadata: LostMetadata::default(),
            dispatch: Dispatch::default(),
            metrics: true,
        }
    }
}

impl ChannelCallSettings {
    pub(super) fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::refuse_zero("calls_max", &self.calls_max, "every call would wait for another to end")
    }
}
