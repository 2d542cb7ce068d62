//! Permissions of clients.

use frisbee::Connection;

/// An action of a client on a subject or pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Publish under a subject.
    Publish,
    /// Publish under a subject and retain the message as its last value.
    Retain,
    /// Subscribe to a pattern. Permission for a pattern covers all subjects it matches.
    Subscribe,
}

/// Decides which actions clients may perform. Implemented for functions with the same arguments.
///
/// The broker caches the answer for each connection and subject until
/// [`Broker::reauthorize`](crate::Broker::reauthorize) is called or the set of subscribed patterns changes. The answer
/// should therefore depend only on the arguments. An implementation must not block, because the connection waits for
/// it. It may call the broker: the only lock held is the one of the connection's publications.
///
/// To identify a client, read a value that an earlier call left on its connection ([`Connection::set_state`]). A client
/// in the same process has such a value if it was created by [`Broker::client_as`](crate::Broker::client_as).
pub trait Authorize: Send + Sync + 'static {
    /// Allows the action, or returns the reason for the refusal. The client receives that text.
    fn authorize(&self, connection: &Connection, action: Action, subject: &str) -> Result<(), String>;
}

impl<F> Authorize for F
where
    F: Fn(&Connection, Action, &str) -> Result<(), String> + Send + Sync + 'static,
{
    fn authorize(&self, connection: &Connection, action: Action, subject: &str) -> Result<(), String> {
        self(connection, action, subject)
    }
}
