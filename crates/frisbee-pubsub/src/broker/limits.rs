//! Limits of a broker.

use std::time::Duration;

use frisbee::InvalidSetting;

/// Limits on everything clients can make grow at a broker. Each message counts with its bytes and 64 more.
///
/// ```
/// use frisbee_pubsub::BrokerLimits;
///
/// let limits = BrokerLimits { queue_len_max: 64 * 1024, ..BrokerLimits::default() };
/// assert_eq!(limits.subscriptions_max, 1024);
/// ```
#[derive(Clone, Debug)]
pub struct BrokerLimits {
    /// Subscriptions per connection. Default 1024.
    pub subscriptions_max: usize,
    /// Patterns, plus members of queue groups, over all connections. Default 1,000,000. Connections with the same
    /// pattern share one.
    pub patterns_max: usize,
    /// Shapes of patterns per connection. A shape is the set of positions with a `*`. Default 32.
    pub shapes_max: usize,
    /// Shapes of patterns over all connections. Default 512. Finding the subscribers of a subject takes at most 17
    /// steps per shape.
    pub all_shapes_max: usize,
    /// Bytes queued for one subscription, in addition to its window and the outbox of the connection. Default 1 MiB.
    /// When the queue is full, the [`Policy`](crate::Policy) applies.
    pub queue_len_max: usize,
    /// Bytes queued for all subscriptions together. Default 256 MiB. When they reach this limit, every policy acts as
    /// if its queue were full, and publishers with messages queued for [`Policy::Block`](crate::Policy::Block) wait
    /// until those are taken. Subscribers to the same pattern share the bytes of a message; each adds 64.
    pub queued_len_max: usize,
    /// Bytes of one publisher queued for subscribers with [`Policy::Block`](crate::Policy::Block). Default 1 MiB. The
    /// messages of a single read may exceed it. A publisher that respects credit starts with this amount. For any other
    /// publisher the broker pauses reading.
    pub publish_window: u32,
    /// Time a subscriber may block publishers without taking a message. Default 30 s. Then its subscription ends.
    pub stall_max: Duration,
    /// Subjects with a retained value. Default 10,000. The broker refuses values of further subjects.
    pub retained_max: usize,
    /// Bytes of all retained values. Default 64 MiB. The broker refuses a value beyond this limit.
    pub retained_len_max: usize,
    /// Subjects with cached subscribers per publishing connection. Default 4096, with 16 patterns or queue groups each
    /// on average. Beyond that, the connection clears its cache and looks them up again.
    pub routes_max: usize,
    /// Answers queued for room in the outbox of one connection. Default 256. Then the broker delays the connection's
    /// publications and subscriptions.
    pub answers_max: usize,
    /// First tokens with their own counters in [`BrokerMetrics`](crate::BrokerMetrics). Default 64. All further ones share one
    /// entry.
    pub prefixes_max: usize,
}

impl Default for BrokerLimits {
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

impl BrokerLimits {
    /// Returns an error for the first limit that rules out all publications or subscriptions.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::refuse_zero("publish_window", &self.publish_window, "clients could not publish")?;
        InvalidSetting::refuse_zero("routes_max", &self.routes_max, "clients could not publish")?;
        InvalidSetting::refuse_zero("answers_max", &self.answers_max, "clients could not publish")?;
        InvalidSetting::refuse_zero("stall_max", &self.stall_max, "every blocking subscription would end immediately")
    }
}
