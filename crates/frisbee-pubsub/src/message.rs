//! Messages: as they are published, and as subscribers get them.

use bytes::Bytes;

use crate::Subject;

/// A message that was published under a subject.
///
/// The payload may be a slice of the buffer that it was read into; copy a small one that is kept for long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The subject under which it was published.
    pub subject: Subject,
    /// The subject under which an answer is awaited, if one is: the message is a request.
    pub reply: Option<Subject>,
    /// The message itself.
    pub payload: Bytes,
    /// True if this is the last value of the subject, which was published before the subscription began.
    pub is_retained: bool,
}

impl Message {
    /// Makes a message that asks for no answer.
    pub fn new(subject: Subject, payload: impl Into<Bytes>) -> Self {
        Self { subject, reply: None, payload: payload.into(), is_retained: false }
    }
}

/// A message on its way to the broker. What a [`Backend`](crate::Backend) publishes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Publication<'a> {
    /// The subject, checked by whoever calls the backend.
    pub subject: &'a str,
    /// The subject under which an answer is awaited, checked as well.
    pub reply: Option<&'a str>,
    /// The message itself.
    pub payload: Bytes,
    /// True if the broker keeps it as the last value of the subject. An empty payload removes that.
    pub retain: bool,
}

impl<'a> Publication<'a> {
    /// Makes a publication of a message that asks for no answer and is not retained.
    pub fn new(subject: &'a str, payload: impl Into<Bytes>) -> Self {
        Self { subject, reply: None, payload: payload.into(), retain: false }
    }

    /// Names the subject under which an answer is awaited.
    pub fn reply(mut self, reply: &'a str) -> Self {
        self.reply = Some(reply);
        self
    }

    /// Has the broker keep the message as the last value of the subject, for those who subscribe later.
    pub fn retain(mut self) -> Self {
        self.retain = true;
        self
    }
}

/// One item of a [`Subscription`](crate::Subscription).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A message.
    Message(Message),
    /// At this place, as many messages were dropped, because this side took them too slowly.
    Missing(u64),
    /// The connection was lost, and there is another on which the subscription goes on. What was published in between is
    /// missing here, and nobody counted it.
    Reconnected,
}

impl Event {
    /// Returns the message, if it is one.
    pub fn message(self) -> Option<Message> {
        match self {
            Self::Message(message) => Some(message),
            _ => None,
        }
    }
}

/// The fate of messages for a subscriber that does not take them as fast as they come. Until its queue at the broker is
/// full, all of them wait; every message that is dropped is counted, and told at its place ([`Event::Missing`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The messages that come are dropped. What waits is delivered: a subscriber sees the beginning of a burst.
    #[default]
    DropNewest,
    /// The messages that have waited longest are dropped: a subscriber sees the end of a burst.
    DropOldest,
    /// Of each subject, only the last message waits, from the first that has to wait. For values of which only the current one
    /// counts.
    KeepLatest,
    /// Publishers wait. The slowest such subscriber sets the pace for all who publish what it subscribed to, and one that takes
    /// nothing for too long is treated as by [`Disconnect`](Self::Disconnect).
    Block,
    /// The subscription ends, as [too slow](crate::SubscriptionEnd::TooSlow).
    Disconnect,
}
