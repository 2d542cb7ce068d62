//! The limits and timers of one connection.

use std::time::Duration;

use crate::{InvalidSetting, proto::HeaderFormat};

/// All settings of a connection. The defaults match the Go implementation where it has the same setting.
///
/// ```
/// use frisbee::Config;
///
/// let config = Config { content_len_max: 64 * 1024, ..Config::default() };
/// assert_eq!(config.streams_max, 1024);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The header format of every packet.
    ///
    /// With `None`, the default, an accepting side detects the format from the first bytes of each connection and
    /// sends nothing before them. A connecting side writes [`HeaderFormat::Magic10`].
    pub header: Option<HeaderFormat>,
    /// The largest content accepted and sent, inclusive. Default 5 MiB.
    ///
    /// Larger contents from a peer are discarded, up to [`Config::discard_len_max`]. In addition to the memory
    /// bounded by other limits, a connection holds the received part of one incomplete content, and of a second
    /// one if an extended peer sends it in pieces.
    pub content_len_max: u32,
    /// The largest content above [`Config::content_len_max`] to discard instead of disconnecting, inclusive.
    /// Default 64 MiB.
    ///
    /// The bytes are discarded on arrival, and no memory is reserved for them. The router learns of the packet and
    /// may answer it, and the connection stays open. A larger announcement disconnects the peer immediately with
    /// [`ProtocolError::ContentTooLarge`](crate::ProtocolError::ContentTooLarge). With zero, every content above
    /// `content_len_max` does so.
    pub discard_len_max: u32,
    /// The longest time for discarding one content, counted while this side reads. Default 30 s. The connection
    /// then ends with [`ProtocolError::ContentTooLarge`](crate::ProtocolError::ContentTooLarge).
    pub discard_time_max: Duration,
    /// Bytes queued for writing at which senders wait. Default 1 MiB.
    ///
    /// One packet, or one call of [`try_send_frames`], may exceed the limit. [`set_outbox`] changes the limit and the
    /// policy for one connection. While replies of this many bytes are queued, no handler starts, and handlers in place
    /// pause, until the peer reads. Contents of 64 KiB and more have a separate limit of the same size if smaller
    /// packets may [overtake](https://docs.rs/frisbee-net/latest/frisbee/enum.SendOrder.html) them; replies may exceed it
    /// by one content of the largest size.
    ///
    /// [`try_send_frames`]: https://docs.rs/frisbee-net/latest/frisbee/struct.Connection.html#method.try_send_frames
    /// [`set_outbox`]: https://docs.rs/frisbee-net/latest/frisbee/struct.Connection.html#method.set_outbox
    pub outbox_len_max: usize,
    /// The number of packets waiting for a handler at which reading pauses. Default 1024.
    ///
    /// [`Config::backlog_len_max`] bounds their contents. Reading goes on in two cases. If the router knows [how
    /// long peers wait], and packets have waited for more than half of that time, the oldest packet is refused
    /// instead. If this side awaits answers from the peer, these come after the waiting packets; then
    /// [`Config::handlers_len_max`] bounds the packets.
    ///
    /// [how long peers wait]: https://docs.rs/frisbee-net/latest/frisbee/trait.Router.html#method.packet_timeout
    pub backlog_max: usize,
    /// Bytes of packets waiting for a handler at which reading pauses, as for [`Config::backlog_max`]. Default 1
    /// MiB.
    ///
    /// Each packet counts as its content plus 64 bytes. One packet may exceed the limit.
    pub backlog_len_max: usize,
    /// The number of concurrent handlers of this connection. Default 1024. Further packets wait.
    pub handlers_max: usize,
    /// Bytes of packets held by running handlers of this connection. Default 32 MiB.
    ///
    /// Each packet counts as its content plus 64 bytes, until its handler ends. At the limit, further packets
    /// wait. A packet of any length gets its handler if no other handler runs. While this side awaits answers from
    /// the peer, waiting packets count too, and a packet above the limit is refused as
    /// [`Busy`](https://docs.rs/frisbee-net/latest/frisbee/enum.RefusalReason.html).
    pub handlers_len_max: usize,
    /// The time without progress after which waiting packets are refused, to break a deadlock. Default 500 ms.
    ///
    /// A deadlock is possible if at least as many answers are outstanding as handlers are running: both sides may
    /// be waiting for each other. If then no handler ends and no answer arrives for this time, waiting packets are
    /// refused as [`Busy`](https://docs.rs/frisbee-net/latest/frisbee/enum.RefusalReason.html). A longer time spares
    /// packets queued after handlers with slow calls to the peer, and prolongs real deadlocks.
    pub handlers_stall_max: Duration,
    /// The number of streams of this connection, including ended streams with a live handle. Default 1024. Further
    /// streams of the peer are closed immediately.
    pub streams_max: usize,
    /// The limit on unread data in one stream, in bytes. Default 1 MiB.
    ///
    /// Each packet counts as its content plus 64 bytes. A single packet always fits. An extended peer may send
    /// twice this amount before it has to wait if the reader is fast, because data being processed counts too. A
    /// plain peer cannot be slowed down on a single stream. Its stream above the limit pauses all reading from the
    /// connection, for [`Config::stream_stall_max`] at most.
    pub stream_queue_len_max: usize,
    /// The limit on data held by all streams of this connection together, in bytes. Default 32 MiB.
    ///
    /// Unread data counts, and so does the last packet of each reader until it reads again or drops its stream.
    /// Each packet counts as its content plus 64 bytes. A single packet always fits. Streams above the limit pause
    /// reading, for [`Config::stream_stall_max`] at most. Then the stream with the most data is closed with
    /// [`StreamEnd::Overflow`](crate::StreamEnd::Overflow), and its unread data is lost.
    ///
    /// Extended peers get credit only within this limit. One half is divided among the [`Config::streams_max`]
    /// possible streams, 16 KiB each by default; the last packet within a stream's share may have any length. The
    /// other half is for streams with fast readers and for packets above their share. Leave room for several
    /// contents of [`Config::content_len_max`]. Otherwise a few unread ones use up the limit.
    pub streams_len_max: usize,
    /// The longest time for which a stream may pause reading from the connection. Default 100 ms.
    ///
    /// The pause ends earlier once half of the unread data is read. After this time the stream is closed with
    /// [`StreamEnd::Overflow`](crate::StreamEnd::Overflow). A long time spares streams with slow readers and
    /// delays the rest of the connection. Zero has the opposite effect. An extended peer waits for credit before
    /// it gets to this point.
    pub stream_stall_max: Duration,
    /// The number of streams from the peer that may wait for [`accept_stream`]. Default 0: new streams are
    /// refused, like in the Go implementation without a stream handler.
    ///
    /// [`accept_stream`]: https://docs.rs/frisbee-net/latest/frisbee/struct.Connection.html#method.accept_stream
    pub accept_backlog: usize,
    /// The number of control packets a peer may send in one burst. Default 1000.
    ///
    /// Control packets are PING, PONG, reserved operations, and stream closes not caused by data of this side. The
    /// allowance refills by a tenth of this number per second, and by one for each packet with content.
    pub control_burst: u32,
    /// The number of packets a peer may withdraw in one burst. Default 1000.
    ///
    /// Dropped handlers have already cost work, so withdrawals are limited. The allowance refills by a tenth of
    /// this number per second, and by one for each packet with content sent by this side, such as an answer. An
    /// extended peer learns the limit and keeps to half of it.
    pub cancel_burst: u32,
    /// Enables the extended protocol (docs/protocol.md in the repository). Default true.
    ///
    /// A connecting side then starts with one packet ignored by plain peers and a PING, and an accepting side
    /// answers an extended peer. With false, every peer is treated as plain.
    pub extended: bool,
    /// Adds a checksum (CRC-32C) to each frame if an extended peer enables checksums too. Default false.
    ///
    /// Without TLS, only TCP's weak checksum detects changed bytes, and many changed frames decode to a wrong
    /// value. On a mismatch the connection closes with
    /// [`ProtocolError::BadChecksum`](crate::ProtocolError::BadChecksum), and the frame reaches no handler. Frames
    /// sent before the peer's first packet have no checksum. The cost is 8 bytes per frame and some time: unary
    /// calls of 32 bytes took 1.16 times as long in the bench `extended` of the repository. With TLS, checksums
    /// add nothing but cost.
    pub checksums: bool,
    /// The interval of PINGs, independent of other traffic. Default 500 ms. `None` sends none; Go peers then need
    /// other traffic at least every 5 s.
    pub ping_interval: Option<Duration>,
    /// The time without input after which the peer counts as dead. Default 5 s. `None` waits forever.
    pub silence_max: Option<Duration>,
    /// The longest time a write may make no progress before the connection fails. Default 5 s. After a socket
    /// failure, handlers of packets already received have the same time.
    pub write_stall_max: Duration,
    /// The time for which a closing side waits for the peer to close as well. Default 1 s. An earlier close could
    /// reset the connection and destroy the last packets.
    pub linger_max: Duration,
    /// The time limit of a TLS handshake. Default 10 s.
    pub handshake_max: Duration,
}

/// A limit on the bytes queued for writing on one connection, and the policy for a full outbox.
///
/// Applies to packets sent through the handle. Replies of handlers are bounded by [`Config::outbox_len_max`], and
/// data of streams always waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxLimit {
    /// The length of a full outbox in bytes, counted like [`Config::outbox_len_max`]. 0 counts as 1: an empty
    /// outbox takes one packet.
    pub len_max: usize,
    /// The policy for packets sent while the outbox is full.
    pub when_full: WhenFull,
}

/// The policy for packets sent while the outbox is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// Senders wait, or get the packet back from the `try_` methods.
    #[default]
    Refuse,
    /// The packet is dropped and counted ([`Counters::unsent`](crate::proto::Counters::unsent)). Senders do not
    /// wait and get [`SendError::OutboxFull`](crate::SendError::OutboxFull).
    Drop,
    /// The connection closes immediately with [`CloseReason::OutboxFull`](crate::CloseReason::OutboxFull), and
    /// queued packets are lost.
    Close,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            header: None,
            content_len_max: 5 * 1024 * 1024,
            discard_len_max: 64 * 1024 * 1024,
            discard_time_max: Duration::from_secs(30),
            outbox_len_max: 1024 * 1024,
            backlog_max: 1024,
            backlog_len_max: 1024 * 1024,
            handlers_max: 1024,
            handlers_len_max: 32 * 1024 * 1024,
            handlers_stall_max: Duration::from_millis(500),
            streams_max: 1024,
            stream_queue_len_max: 1024 * 1024,
            streams_len_max: 32 * 1024 * 1024,
            stream_stall_max: Duration::from_millis(100),
            accept_backlog: 0,
            control_burst: 1000,
            cancel_burst: 1000,
            extended: true,
            checksums: false,
            ping_interval: Some(Duration::from_millis(500)),
            silence_max: Some(Duration::from_secs(5)),
            write_stall_max: Duration::from_secs(5),
            linger_max: Duration::from_secs(1),
            handshake_max: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Returns an error for the first setting with an unusable value.
    ///
    /// Servers call this before they listen, clients before they connect.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::refuse_zero("content_len_max", &self.content_len_max, "no packet could have content")?;
        InvalidSetting::refuse_zero("outbox_len_max", &self.outbox_len_max, "every sender would wait forever")?;
        InvalidSetting::refuse_zero("backlog_max", &self.backlog_max, "nothing would ever be read")?;
        InvalidSetting::refuse_zero("backlog_len_max", &self.backlog_len_max, "nothing would ever be read")?;
        InvalidSetting::refuse_zero("handlers_max", &self.handlers_max, "no handler could ever start")?;
        InvalidSetting::refuse_zero(
            "control_burst",
            &self.control_burst,
            "the first PING of a peer would end its connection",
        )?;
        InvalidSetting::refuse_zero(
            "write_stall_max",
            &self.write_stall_max,
            "a full socket would end its connection at once",
        )?;
        InvalidSetting::refuse_zero("handshake_max", &self.handshake_max, "no TLS handshake could ever succeed")?;
        if let Some(ping_interval) = self.ping_interval {
            InvalidSetting::refuse_zero(
                "ping_interval",
                &ping_interval,
                "PINGs would be sent without a pause (None sends none)",
            )?;
        }
        if let Some(silence_max) = self.silence_max {
            InvalidSetting::refuse_zero(
                "silence_max",
                &silence_max,
                "every peer would count as dead at once (None waits forever)",
            )?;
        }
        match (self.ping_interval, self.silence_max) {
            (Some(ping_interval), Some(silence_max)) if silence_max <= ping_interval => {
                let why = format!(
                    "of {ping_interval:?} must be shorter than silence_max, {silence_max:?}: \
                     a peer with nothing to say would count as dead before it is asked"
                );
                Err(InvalidSetting::new("ping_interval", why))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(name: &str, config: Config) {
        let error = config.check().unwrap_err();
        assert_eq!(error.name(), name);
        assert!(error.to_string().starts_with(name), "{error}");
    }

    #[test]
    fn invalid_limits_are_rejected_by_name() {
        let config = Config::default;
        check_refused("content_len_max", Config { content_len_max: 0, ..config() });
        check_refused("outbox_len_max", Config { outbox_len_max: 0, ..config() });
        check_refused("backlog_max", Config { backlog_max: 0, ..config() });
        check_refused("backlog_len_max", Config { backlog_len_max: 0, ..config() });
        check_refused("handlers_max", Config { handlers_max: 0, ..config() });
        check_refused("control_burst", Config { control_burst: 0, ..config() });
        check_refused("write_stall_max", Config { write_stall_max: Duration::ZERO, ..config() });
        check_refused("handshake_max", Config { handshake_max: Duration::ZERO, ..config() });
        check_refused("ping_interval", Config { ping_interval: Some(Duration::ZERO), ..config() });
        check_refused("silence_max", Config { silence_max: Some(Duration::ZERO), ..config() });
        check_refused("ping_interval", Config { ping_interval: Some(Duration::from_secs(5)), ..config() });
    }

    #[test]
    fn zero_disables_optional_limits() {
        let off = Config {
            streams_max: 0,
            stream_queue_len_max: 0,
            stream_stall_max: Duration::ZERO,
            accept_backlog: 0,
            linger_max: Duration::ZERO,
            ping_interval: None,
            silence_max: None,
            ..Config::default()
        };
        assert_eq!(off.check(), Ok(()));
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn the_longest_durations_are_accepted() {
        let forever = Config {
            handlers_stall_max: Duration::MAX,
            stream_stall_max: Duration::MAX,
            ping_interval: Some(Duration::MAX - Duration::from_nanos(1)),
            silence_max: Some(Duration::MAX),
            write_stall_max: Duration::MAX,
            linger_max: Duration::MAX,
            handshake_max: Duration::MAX,
            ..Config::default()
        };
        assert_eq!(forever.check(), Ok(()));
    }
}
