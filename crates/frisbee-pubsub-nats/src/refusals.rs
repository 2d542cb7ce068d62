//! Messages that a server did not take, because this client may not publish to their subjects.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use frisbee_pubsub::{Refusal, RefusalCode};
use tokio::sync::Notify;

use crate::subscription::lock;

/// The refusals that nobody was told yet, in order. A server says only the subject, not which message it was.
#[derive(Default)]
pub(crate) struct Refusals {
    /// Each with its number.
    untold: Mutex<VecDeque<(u64, String)>>,
    count: AtomicU64,
    changed: Notify,
}

impl Refusals {
    /// Notes that a message was refused. Beyond [`UNTOLD_MAX`] of which nobody was told, the log alone has it.
    pub(crate) fn note(&self, subject: &str) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let mut untold = lock(&self.untold);
        if untold.len() < UNTOLD_MAX {
            untold.push_back((number, subject.to_owned()));
        }
        drop(untold);
        self.changed.notify_waiters();
    }

    /// Returns how many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns a refusal of this subject since there were so many, and tells it nobody else.
    pub(crate) fn take(&self, subject: &str, since: u64) -> Option<Refusal> {
        let mut untold = lock(&self.untold);
        let index = untold.iter().position(|(number, refused)| *number >= since && refused == subject)?;
        untold.remove(index).map(|(_, subject)| refusal(&subject))
    }

    /// Waits for such a refusal.
    pub(crate) async fn of(&self, subject: &str, since: u64) -> Refusal {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before the look at what is there, so that no change is missed.
            changed.as_mut().enable();
            if let Some(refusal) = self.take(subject, since) {
                return refusal;
            }
            changed.await;
        }
    }

    /// Returns the first refusal, and forgets all.
    pub(crate) fn take_first(&self) -> Option<Refusal> {
        std::mem::take(&mut *lock(&self.untold)).front().map(|(_, subject)| refusal(subject))
    }
}

fn refusal(subject: &str) -> Refusal {
    Refusal::new(RefusalCode::Denied, format!("this client may not publish to {subject:?}"))
}

/// The most refusals that are kept until somebody is told.
const UNTOLD_MAX: usize = 64;
