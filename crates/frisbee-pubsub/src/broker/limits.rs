//! The limits of a broker.

use std::time::Duration;

use frisbee::InvalidSetting;

/// Everything that clients can make grow at a broker, and how far. Where bytes of messages count, each has 64 on top.
///
/// ```
/// use frisbee_pubsub::Limits;
///
/// let limits = Limits { queue_len_max: 64 * 1024, ..Limits::default() };
/// assert_eq!(limits.subscriptions_max, 1024);
/// ```
#[derive(Clone, Debug)]
pub struct Limits {
    /// Subscriptions of one connection. Default 1024.
    pub subscriptions_max: usize,
    /// Patterns, and members of queue groups, over all connections. Default 1,000,000. Connections that share a pattern count once.
    pub patterns_max: usize,
    /// Shapes of the patterns of one connection: sets of places at which a pattern has a `*`. Default 32.
    pub shapes_max: usize,
    /// Shapes of all patterns. Default 512. To find the subscribers of a subject takes at most 17 steps for each shape that there is.
    pub all_shapes_max: usize,
    /// Bytes of messages that wait for one subscription, beyond what its window and the outbox of the connection take. Default 1 MiB.
    /// Then its [`Policy`](crate::Policy) says what happens.
    pub queue_len_max: usize,
    /// Bytes of messages that wait for all subscriptions together. Default 256 MiB. Then the policies act as if each queue were full, and
    /// a publisher with messages that wait for [`Policy::Block`](crate::Policy::Block) waits until they are taken. Subscribers to the
    /// same pattern share the bytes of a message, and each adds 64.
    pub queued_len_max: usize,
    /// Bytes of one publisher that may wait for subscribers with [`Policy::Block`](crate::Policy::Block). Default 1 MiB, exceeded by
    /// what came in one read. Publishers that keep to credit begin with as much of it; reading from any other pauses.
    pub publish_window: u32,
    /// The time for which a subscriber may block its publishers and take nothing. Default 30 s; then its subscription ends.
    pub stall_max: Duration,
    /// Subjects with a retained value. Default 10,000. Values of further subjects are refused.
    pub retained_max: usize,
    /// Bytes of all retained values. Default 64 MiB. A value that does not fit is refused.
    pub retained_len_max: usize,
    /// Subjects whose subscribers are remembered for one publishing connection, with 16 patterns or queue groups each on average. Default
    /// 4096; beyond, all of them are looked up anew.
    pub routes_max: usize,
    /// Answers that wait for room in the outbox of one connection. Default 256. Then its publications and subscriptions wait.
    pub answers_max: usize,
    /// Prefixes of subjects with numbers of their own in [`Metrics`](crate::Metrics). Default 64; the others share one.
    pub prefixes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            subscriptions_max: 1024,
            patterns_max: 1_000_000,
            shapes_max: 32,
            all_shapes_max: 512,
            queue_len_max: 1024 * 1024,
            queued_len_max: 256 * 1024 * 1024,
            publish_window: 1024 * 1024,
            stall_max: Duration::from_secs(30),
            retained_max: 10_000,
            retained_len_max: 64 * 1024 * 1024,
            routes_max: 4096,
            answers_max: 256,
            prefixes_max: 64,
        }
    }
}

impl Limits {
    /// Finds the first limit under which nothing could be published or subscribed to.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::refuse_zero("publish_window", &self.publish_window, "nobody could publish anything")?;
        InvalidSetting::refuse_zero("routes_max", &self.routes_max, "nobody could publish anything")?;
        InvalidSetting::refuse_zero("answers_max", &self.answers_max, "nobody could publish anything")?;
        InvalidSetting::refuse_zero("stall_max", &self.stall_max, "every subscriber that blocks would be ended at once")
    }
}
