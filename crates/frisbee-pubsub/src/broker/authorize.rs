//! The permissions of clients.

use frisbee::Connection;

/// An action of a client on a subject or pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// It publishes under a subject.
    Publish,
    /// It publishes under a subject, and the message is to be its last value.
    Retain,
    /// It subscribes to a pattern. Whoever allows a pattern allows all subjects that it stands for.
    Subscribe,
}

/// Decides what clients are allowed to do. A function of the same arguments is one.
///
/// The answer for a subject is remembered for the connection until [`Broker::reauthorize`](crate::Broker::reauthorize) or until
/// patterns of the broker change, so it should not depend on anything else. It must not block, for its connection waits. It may use the
/// broker: no lock is held but that of what the connection publishes.
///
/// The identity of a client stands on its connection, such as a value that an earlier call has left there ([`Connection::set_state`]). A
/// client in the same process has one by [`Broker::client_as`](crate::Broker::client_as).
pub trait Authorize: Send + Sync + 'static {
    /// Returns whether a client may do this, or the reason why it may not, which it is told.
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
