//! Limits of a server.

/// The limits of a [`NatsServer`](crate::NatsServer).
///
/// ```
/// use frpc_nats::NatsSettings;
///
/// let settings = NatsSettings { calls_max: 256, ..NatsSettings::default() };
/// # let _ = settings;
/// ```
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// The maximum number of calls in progress, streams included. Further calls are refused before they run, and other
    /// servers may take them. Default 4096.
    pub calls_max: u32,
    /// The maximum number of calls with streams or long messages in progress. Each holds up to 512 KiB of unread frames.
    /// Default 512.
    pub streams_max: u32,
    /// The maximum length of a request message in bytes. Default 4 MiB.
    pub message_len_max: usize,
}

impl Default for NatsSettings {
    fn default() -> Self {
        Self { calls_max: 4096, streams_max: 512, message_len_max: 4 * 1024 * 1024 }
    }
}
