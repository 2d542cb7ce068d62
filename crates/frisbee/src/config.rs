//! The limits and timers of one connection.

use std::time::Duration;

use crate::{InvalidSetting, proto::HeaderFormat};

/// Everything about a connection that can be set, with the defaults of the Go implementation where it has one.
///
/// ```
/// use frisbee::Config;
///
/// let config = Config { content_len_max: 64 * 1024, ..Config::default() };
/// assert_eq!(config.streams_max, 1024);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The header in front of every packet. `None`, the default: an accepting side finds out from the first bytes of
    /// each connection and sends nothing before them; a connecting side writes [`HeaderFormat::Magic10`].
    pub header: Option<HeaderFormat>,
    /// The largest content accepted and sent, inclusive. Default 5 MiB. What a peer sends beyond that is discarded, up to
    /// [`Config::discard_len_max`]. Besides what other limits bound, a connection holds what has arrived of one content under
    /// way, and from an extended peer of another one that comes in pieces.
    pub content_len_max: u32,
    /// The largest content that is read past when it is larger than [`Config::content_len_max`], inclusive. Default
    /// 64 MiB. Its bytes are discarded as they arrive and nothing is reserved for them; the router learns of the packet
    /// and may answer it, and the connection goes on. A peer that announces more is disconnected at once, with
    /// [`ProtocolError::ContentTooLarge`](crate::ProtocolError::ContentTooLarge). Zero disconnects it for every content
    /// that is too large.
    pub discard_len_max: u32,
    /// The time that discarding a content may take, while this side reads. Default 30 s; then the connection ends with
    /// [`ProtocolError::ContentTooLarge`](crate::ProtocolError::ContentTooLarge).
    pub discard_time_max: Duration,
    /// Bytes queued for writing at which senders wait. Default 1 MiB, exceeded by at most one packet, or by what is sent
    /// together with [`try_send_frames`]; [`set_outbox`] sets it for one connection, and has senders do something else. With as many
    /// bytes of replies queued, handlers get no new packets, and those that run in place do not go on, until the peer
    /// reads some. Contents of 64 KiB and more that may be
    /// [overtaken](https://docs.rs/frisbee/latest/frisbee/trait.Router.html#method.interleaves) count by themselves: as
    /// much again of them may be queued, and of replies one of the largest in addition.
    ///
    /// [`try_send_frames`]: https://docs.rs/frisbee/latest/frisbee/struct.Connection.html#method.try_send_frames
    /// [`set_outbox`]: https://docs.rs/frisbee/latest/frisbee/struct.Connection.html#method.set_outbox
    pub outbox_len_max: usize,
    /// Packets received while no handler may start, at which reading pauses. Default 1024. Their contents are bounded
    /// by [`Config::backlog_len_max`]. Where the router knows [how long peers wait], and packets wait for more than half of that,
    /// the oldest is refused instead. Reading does not pause while this side waits for answers of the peer, which come
    /// behind those packets; then [`Config::handlers_len_max`] bounds them.
    ///
    /// [how long peers wait]: https://docs.rs/frisbee/latest/frisbee/trait.Router.html#method.packet_timeout
    pub backlog_max: usize,
    /// Bytes received while no handler may start, 64 counted on top of each packet, at which reading pauses as with
    /// [`Config::backlog_max`]. Default 1 MiB, exceeded by at most one packet.
    pub backlog_len_max: usize,
    /// Handlers of this connection that may be under way at once. Default 1024. At the limit, further packets wait.
    pub handlers_max: usize,
    /// Bytes of the packets that handlers of this connection are under way with, 64 counted on top of each. Default
    /// 32 MiB. A packet counts until its handler ends. At the limit, further packets wait; a packet of any length gets
    /// its handler when no other is under way. While this side waits for answers of the peer, packets that wait count as
    /// well, and a packet that goes over the limit is refused as
    /// [`Busy`](https://docs.rs/frisbee/latest/frisbee/enum.Refusal.html).
    pub handlers_len_max: usize,
    /// The time that packets may wait while no handler ends and no answer comes, if as many answers are outstanding as
    /// handlers under way: the peer may be waiting for those packets in turn. Default 500 ms; then they are refused as
    /// [`Busy`](https://docs.rs/frisbee/latest/frisbee/enum.Refusal.html). Longer spares the packets behind handlers that
    /// call the peer and are answered slowly; two sides that do wait for each other do so for as long.
    pub handlers_stall_max: Duration,
    /// Streams of this connection that may exist at once, ended ones that are still held included. Default 1024. A
    /// peer that opens more finds them closed at once.
    pub streams_max: usize,
    /// Bytes that may wait in one stream to be read, 64 counted on top of each packet. Default 1 MiB. A single packet
    /// always fits. An extended peer is let send twice that before the reader has read more, if the reader is fast: what it
    /// works on counts too. A plain peer cannot be slowed down on one stream, so one of its streams that goes over the
    /// limit holds up reading from the connection, for [`Config::stream_stall_max`] at most.
    pub stream_queue_len_max: usize,
    /// Bytes that all streams of this connection may hold together, 64 counted on top of each packet: what waits to be
    /// read, and what each reader took last, until it asks for more or lets go of its stream. Default 32 MiB. A single
    /// packet always fits. Streams that go over it hold up reading, for [`Config::stream_stall_max`] at most; then the
    /// one that holds most is closed with [`StreamEnd::Overflow`](crate::StreamEnd::Overflow) and loses what waits in it.
    ///
    /// Extended peers are not let send more. Half of it is shared by the [`Config::streams_max`] streams that may exist,
    /// 16 KiB each by default, and the last packet that a sender fits in may be of any length. The other half is for
    /// streams with fast readers, and for packets that go over. Make it hold a few contents of
    /// [`Config::content_len_max`], or a few of them that nobody reads use it up.
    pub streams_len_max: usize,
    /// The time that a stream may hold up the connection until half of what waits in it is read. Default 100 ms; then
    /// it is closed with [`StreamEnd::Overflow`](crate::StreamEnd::Overflow). Longer spares streams with slow readers
    /// at the cost of everything else on the connection, zero the reverse. An extended peer waits for slow readers
    /// before it comes to that.
    pub stream_stall_max: Duration,
    /// Streams opened by the peer that may wait for [`accept_stream`]. Default 0: a new stream is refused, as the Go
    /// implementation does without a stream handler.
    ///
    /// [`accept_stream`]: https://docs.rs/frisbee/latest/frisbee/struct.Connection.html#method.accept_stream
    pub accept_backlog: usize,
    /// Control packets (PING, PONG, reserved operations, closes of streams that answer nothing) a peer may send at
    /// once. Default 1000. The allowance refills at a tenth of this per second, and by one with each packet that has
    /// content.
    pub control_burst: u32,
    /// Packets that a peer may withdraw at once, for handlers that are dropped have cost something as well. Default 1000. The
    /// allowance refills at a tenth of this per second, and by one with each packet with content that this side sends, such as an
    /// answer. An extended peer is told, and keeps to half of it.
    pub cancel_burst: u32,
    /// True if this side says that it speaks the extended protocol (docs/protocol.md of the repository), and answers a peer
    /// that does. Default true: a connecting side begins with one packet that plain peers drop, and a PING. With false, every
    /// peer is taken for a plain one.
    pub extended: bool,
    /// True to add checksums (CRC-32C) to each frame, towards extended peers that are configured so as well. Default false.
    ///
    /// Without TLS, nothing but TCP's weak checksum notices bytes that change on their way, and many of them decode to a wrong
    /// value. A connection with a frame that changed closes with
    /// [`ProtocolError::BadChecksum`](crate::ProtocolError::BadChecksum), and the frame reaches no handler. Frames that each side
    /// sends before it has heard from the other have none. Costs 8 bytes per frame and some time: unary
    /// calls of 32 bytes took 1.16 times as long in the repository's bench `extended`. With TLS it only
    /// costs.
    pub checksums: bool,
    /// The time between two PINGs, traffic or not. Default 500 ms. `None` sends none; Go peers then need other traffic
    /// at least every 5 s.
    pub ping_interval: Option<Duration>,
    /// The time that a peer may be silent before it counts as dead. Default 5 s. `None` waits forever.
    pub silence_max: Option<Duration>,
    /// The time that a write may make no progress before the connection is given up. Default 5 s. Handlers of what had
    /// arrived before the socket failed may take as long.
    pub write_stall_max: Duration,
    /// The time that a closing side waits for the peer to close as well, so that the last packets are not destroyed by a
    /// reset. Default 1 s.
    pub linger_max: Duration,
    /// The time that a TLS handshake may take. Default 10 s.
    pub handshake_max: Duration,
}

/// The limit of what one connection has queued for writing, and what becomes of packets beyond it.
///
/// Of packets that are sent: replies of handlers have [`Config::outbox_len_max`], and data of streams waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxLimit {
    /// Bytes queued for writing at which the outbox is full, as [`Config::outbox_len_max`] counts them. 0 counts as 1: a packet
    /// is taken when nothing else waits.
    pub len_max: usize,
    /// The treatment of packets while it is full.
    pub when_full: WhenFull,
}

/// The treatment of packets that are sent while the outbox is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// Senders wait, or get the packet back if they do not want to.
    #[default]
    Refuse,
    /// The packet is let go, and counted ([`Counters::unsent`](crate::proto::Counters::unsent)). Nobody waits: senders get
    /// [`SendError::OutboxFull`](crate::SendError::OutboxFull).
    Drop,
    /// The connection closes at once with [`CloseReason::OutboxFull`](crate::CloseReason::OutboxFull), and what is queued is lost.
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
    /// Finds the first setting under which no connection could work. Servers check it before they listen, clients
    /// before they connect.
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
    fn limits_under_which_nothing_works_are_refused_by_name() {
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
    fn limits_that_turn_something_off_may_be_zero() {
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
    fn the_longest_durations_are_fine() {
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
