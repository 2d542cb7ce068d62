//! The event loop of the browser, with the interface of `tokio::runtime`.

use crate::task::{self, JoinHandle};

/// The event loop of this thread.
#[derive(Clone, Debug)]
pub struct Handle(());

/// An error of [`Handle::try_current`]. It never occurs: a page always has an event loop.
#[derive(Debug)]
pub struct TryCurrentError(());

/// The number of a runtime. There is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(());

/// The guard of [`Handle::enter`].
#[derive(Debug)]
pub struct EnterGuard<'a>(#[expect(dead_code, reason = "as in tokio, it borrows the handle")] &'a Handle);

impl Handle {
    /// Returns the event loop of this thread.
    pub fn current() -> Self {
        Self(())
    }

    /// Returns the event loop of this thread.
    pub fn try_current() -> Result<Self, TryCurrentError> {
        Ok(Self(()))
    }

    /// Returns the number of the runtime.
    pub fn id(&self) -> Id {
        Id(())
    }

    /// Returns a guard without an effect: there is one runtime.
    pub fn enter(&self) -> EnterGuard<'_> {
        EnterGuard(self)
    }

    /// Starts a task.
    pub fn spawn<F: Future<Output: Send> + Send + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        task::spawn(future)
    }
}
