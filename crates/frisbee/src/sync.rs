//! Locks and atomics of the code with models. Built with `--cfg loom`, they are those of loom, which tries the orders in
//! which threads can run.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize},
};

#[cfg(not(loom))]
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::sync::futures::Notified;

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize},
};

#[cfg(loom)]
pub use self::model::Notify;
#[cfg(loom)]
pub(crate) use self::model::OnceLock;

/// Types that loom does not have. Before each access, it can switch threads.
#[cfg(loom)]
mod model {
    use std::sync;

    use loom::sync::atomic::{AtomicBool, Ordering};

    use super::Notified;

    /// A point at which loom switches threads.
    #[derive(Debug)]
    struct SwitchPoint(AtomicBool);

    impl SwitchPoint {
        fn new() -> Self {
            Self(AtomicBool::new(false))
        }

        fn read(&self) {
            self.0.load(Ordering::Acquire);
        }

        fn write(&self) {
            self.0.swap(true, Ordering::AcqRel);
        }
    }

    pub(crate) struct OnceLock<T> {
        switch: SwitchPoint,
        value: sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            Self { switch: SwitchPoint::new(), value: sync::OnceLock::new() }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            self.switch.read();
            self.value.get()
        }

        pub(crate) fn set(&self, value: T) -> Result<(), T> {
            self.switch.write();
            self.value.set(value)
        }
    }

    impl<T> From<T> for OnceLock<T> {
        fn from(value: T) -> Self {
            Self { switch: SwitchPoint::new(), value: value.into() }
        }
    }

    /// A `Notify` of tokio for models.
    #[derive(Debug)]
    pub struct Notify {
        switch: SwitchPoint,
        notify: tokio::sync::Notify,
    }

    #[allow(clippy::new_without_default, missing_docs, reason = "as in tokio")]
    impl Notify {
        pub fn new() -> Self {
            Self { switch: SwitchPoint::new(), notify: tokio::sync::Notify::new() }
        }

        pub fn notified(&self) -> Notified<'_> {
            self.switch.write();
            self.notify.notified()
        }

        pub fn notify_one(&self) {
            self.switch.write();
            self.notify.notify_one();
        }

        pub fn notify_waiters(&self) {
            self.switch.write();
            self.notify.notify_waiters();
        }
    }
}
