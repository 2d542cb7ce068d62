//! Settings of a recorder.

use std::{fmt, sync::Arc};

use frpc::Method;

/// The limits of a [`Recorder`](crate::Recorder), and the methods that it records.
///
/// Fields may be added, so `..RecordSettings::default()` belongs at the end of a literal.
#[derive(Clone)]
pub struct RecordSettings {
    /// The maximum number of bytes in the queue of the thread. Default: 16 MiB. A single longer record fits into an empty
    /// queue.
    pub queue_len_max: usize,
    /// The maximum length of the file in bytes. Default: 256 MiB. A reader needs as much memory.
    pub recording_len_max: u64,
    /// Returns `true` for methods to be recorded. Default: all methods.
    pub methods: Arc<dyn Fn(&Method) -> bool + Send + Sync>,
}

impl Default for RecordSettings {
    fn default() -> Self {
        Self { queue_len_max: 16 << 20, recording_len_max: 256 << 20, methods: Arc::new(|_| true) }
    }
}

impl fmt::Debug for RecordSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue_len_max, recording_len_max, methods: _ } = self;
        let mut debug = f.debug_struct("RecordSettings");
        debug
            .field("queue_len_max", queue_len_max)
            .field("recording_len_max", recording_len_max)
            .finish_non_exhaustive()
    }
}
