//! Messages refused by a server, because this client may not publish to their subjects.

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

/// Unreported refusals, in order. A server names the subject of a refused message, but not the message.
#[derive(Default)]
pub(crate) struct UnreportedRefusals {
    /// Subjects with the number of their refusal.
    untold: Mutex<VecDeque<(u64, String)>>,
    count: AtomicU64,
    changed: Notify,
}

impl UnreportedRefusals {
    /// Records a refused message. With [`UNTOLD_MAX`] unreported refusals, only the log has it.
    pub(crate) fn note(&self, subject: &str) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let mut untold = lock(&self.untold);
        if untold.len() < UNTOLD_MAX {
            untold.push_back((number, subject.to_owned()));
        }
        drop(untold);
        self.changed.notify_waiters();
    }

    /// Returns the number of refusals so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Removes and returns a refusal of this subject with a number of at least `since`.
    pub(crate) fn take(&self, subject: &str, since: u64) -> Option<Refusal> {
        let mut untold = lock(&self.untold);
        let index = untold.iter().position(|(number, refused)| *number >= since && refused == subject)?;
        untold.remove(index).map(|(_, subject)| refusal(&subject))
    }

    /// Waits for a refusal of this subject with a number of at least `since`.
    pub(crate) async fn wait_for_refusal(&self, subject: &str, since: u64) -> Refusal {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Register before the check, so no change is missed.
            changed.as_mut().enable();
            if let Some(refusal) = self.take(subject, since) {
                return refusal;
            }
            changed.await;
        }
    }

    /// Returns the first refusal, and removes all.
    pub(crate) fn take_first(&self) -> Option<Refusal> {
        std::mem::take(&mut *lock(&self.untold)).front().map(|(_, subject)| refusal(subject))
    }
}

fn refusal(subject: &str) -> Refusal {
    Refusal::new(RefusalCode::Denied, format!("this client may not publish to {subject:?}"))
}

/// The maximum number of unreported refusals.
const UNTOLD_MAX: usize = 64;
