//! The limits of a connection.

use std::time::Duration;

/// Limits and timeouts of one side of a connection.
///
/// Every quantity that a peer can grow has a limit here. The defaults suit a server on the public network.
///
/// ```
/// let settings = frpc_http2::Settings { streams_max: 1000, ..Default::default() };
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// Concurrent streams the peer may open: SETTINGS_MAX_CONCURRENT_STREAMS. Further ones are refused.
    pub streams_max: u32,
    /// Unreleased data per stream, in bytes: SETTINGS_INITIAL_WINDOW_SIZE. At most 2^31-1.
    pub stream_window: u32,
    /// Unreleased data of all streams, in bytes. At least 65,535 and at most 2^31-1.
    pub connection_window: u32,
    /// Payload of a received frame, in bytes: SETTINGS_MAX_FRAME_SIZE. From 16,384 to 16,777,215. More than 16,384 are
    /// allowed after the first DATA frame of this length.
    pub frame_len_max: u32,
    /// Memory of the peer's dynamic table, in bytes: SETTINGS_HEADER_TABLE_SIZE.
    pub header_table_max: u32,
    /// Memory of the dynamic table for sending, in bytes. The peer may lower it.
    pub encoder_table_max: u32,
    /// Compressed header block over all its frames, in bytes. A longer one fails the connection.
    pub header_block_max: usize,
    /// Decoded header list, in bytes: SETTINGS_MAX_HEADER_LIST_SIZE. A server answers a larger one with status 431.
    pub header_list_max: u32,
    /// Data queued for sending per stream, in bytes. A single larger chunk is accepted by an empty queue.
    pub stream_queue_max: usize,
    /// Data queued for sending on all streams, in bytes. A single larger chunk is accepted by an empty queue.
    pub connection_queue_max: usize,
    /// Data in one batch of output, in bytes. Streams share a batch, one frame each in turn.
    pub batch_max: usize,
    /// Unsent output at which the connection stops reading, in bytes. Above twice `batch_max`, a peer cannot cause it
    /// with data that it asked for.
    pub output_max: usize,
    /// Streams reset by a client, or because of its errors, in excess of completed streams. More fail the connection.
    pub resets_max: u32,
    /// Frames without content, in excess of frames with content. More fail the connection.
    pub empty_frames_max: u32,
    /// DATA frames cut below 256 bytes by the windows of the peer, in excess of other ones. More fail the connection.
    pub small_frames_max: u32,
    /// PING, SETTINGS, PRIORITY and unknown frames per second, and in one burst. Each value in SETTINGS counts like a
    /// frame. More fail the connection.
    pub control_frames_max: u32,
    /// Recently reset streams whose late frames are ignored.
    pub recent_resets_max: usize,
    /// Time without input after which a PING is sent.
    pub keepalive_interval: Option<Duration>,
    /// Time without input after a PING that fails the connection.
    pub keepalive_timeout: Duration,
    /// `true` if PING is also sent while no stream is open.
    pub keepalive_while_idle: bool,
    /// Time for the preface and SETTINGS of the peer, and for a header block over several frames.
    pub handshake_timeout: Duration,
    /// Time for the PONG between the two GOAWAY frames of a server's shutdown.
    pub shutdown_timeout: Duration,
    /// Time in which the peer opens the window of a stream for 32 KiB, or for the rest of its data. A slower peer loses
    /// the stream, or the connection if its window is the cause.
    pub stall_timeout: Option<Duration>,
    /// `true` if a server passes CONNECT requests to its application. Otherwise it resets their streams.
    pub accepts_connect: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streams_max: 250,
            stream_window: 1 << 20,
            connection_window: 4 << 20,
            frame_len_max: FRAME_LEN_MIN,
            header_table_max: 4096,
            encoder_table_max: 4096,
            header_block_max: 32 << 10,
            header_list_max: 16 << 10,
            stream_queue_max: 256 << 10,
            connection_queue_max: 4 << 20,
            batch_max: 256 << 10,
            output_max: 768 << 10,
            resets_max: 1000,
            empty_frames_max: 1000,
            small_frames_max: 1000,
            control_frames_max: 1000,
            recent_resets_max: 128,
            keepalive_interval: None,
            keepalive_timeout: Duration::from_secs(20),
            keepalive_while_idle: true,
            handshake_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(1),
            stall_timeout: Some(Duration::from_secs(300)),
            accepts_connect: false,
        }
    }
}

impl Settings {
    /// Returns these settings with each value moved into its range: that of the protocol, or that of a clock.
    pub(crate) fn in_range(mut self) -> Self {
        self.stream_window = self.stream_window.min(WINDOW_MAX);
        self.connection_window = self.connection_window.clamp(INITIAL_WINDOW, WINDOW_MAX);
        self.frame_len_max = self.frame_len_max.clamp(FRAME_LEN_MIN, (1 << 24) - 1);
        for time in [&mut self.keepalive_timeout, &mut self.handshake_timeout, &mut self.shutdown_timeout] {
            *time = (*time).min(TIME_MAX);
        }
        self.keepalive_interval = self.keepalive_interval.map(|time| time.min(TIME_MAX));
        self.stall_timeout = self.stall_timeout.map(|time| time.min(TIME_MAX));
        self
    }
}

/// The length of frames that every peer accepts, in bytes.
pub(crate) const FRAME_LEN_MIN: u32 = 16_384;

/// The window of the protocol before any SETTINGS or WINDOW_UPDATE, in bytes.
pub(crate) const INITIAL_WINDOW: u32 = 65_535;

/// The largest window of the protocol, in bytes.
pub(crate) const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Longer than any wait, and short enough to be added to an [`Instant`](std::time::Instant).
const TIME_MAX: Duration = Duration::from_secs(60 * 60 * 24 * 365);

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::Connection;

    #[test]
    fn values_move_into_the_range_of_the_protocol() {
        let low =
            Settings { stream_window: 0, connection_window: 0, frame_len_max: 0, ..Default::default() }.in_range();
        assert_eq!((low.stream_window, low.connection_window, low.frame_len_max), (0, 65_535, 16_384));
        let (stream_window, connection_window, frame_len_max) = (u32::MAX, u32::MAX, u32::MAX);
        let high = Settings { stream_window, connection_window, frame_len_max, ..Default::default() }.in_range();
        assert_eq!((high.stream_window, high.connection_window), (WINDOW_MAX, WINDOW_MAX));
        assert_eq!(high.frame_len_max, 16_777_215);
    }

    #[test]
    fn the_longest_times_can_be_added_to_a_clock() {
        let (longest, now) = (Duration::MAX, Instant::now());
        let settings = Settings {
            keepalive_interval: Some(longest),
            keepalive_timeout: longest,
            handshake_timeout: longest,
            shutdown_timeout: longest,
            stall_timeout: Some(longest),
            ..Default::default()
        };
        let mut server = Connection::server(settings, now);
        assert_eq!(server.poll_timeout(), Some(now + TIME_MAX));
        server.shut_down();
        assert_eq!(server.handle_timeout(now), Ok(()));
    }
}
