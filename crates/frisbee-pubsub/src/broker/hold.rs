//! A publisher's account at the broker: its credit, and the messages held by blocking subscribers.

use std::sync::{Arc, Weak, atomic::Ordering};

use crate::{
    broker::{answers::AnswerQueue, gauge::QueueGauge},
    sync::{AtomicBool, AtomicUsize, Notify},
};

/// The account of one publisher.
///
/// ```text
///   credit ──PUBLISH──▶ unreturned ┬─ held by queues of subscribers that block ──taken──▶┐
///      ▲                           └──────────────────────────────────────────────────────┴─▶ free
///      └───────────────────────────────────── ALLOW ──────────────────────────────────────────┘
/// ```
#[derive(Debug)]
pub(super) struct PublisherAccount {
    window: usize,
    gauge: Arc<QueueGauge>,
    /// Cost of published messages not returned as credit yet.
    unreturned: AtomicUsize,
    /// Cost of messages in the queues of blocking subscribers.
    held: AtomicUsize,
    /// Set once the publisher has sent HELLO and therefore respects its credit.
    keeps_to_credit: AtomicBool,
    /// Notified when `held` falls.
    pub(super) freed: Notify,
    answers: Weak<AnswerQueue>,
}

impl PublisherAccount {
    /// Creates an account. The broker grants credit through `answers`.
    pub(super) fn new(window: u32, gauge: Arc<QueueGauge>, answers: Weak<AnswerQueue>) -> Self {
        Self {
            window: window as usize,
            gauge,
            unreturned: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            keeps_to_credit: AtomicBool::new(false),
            freed: Notify::new(),
            answers,
        }
    }

    pub(super) fn keep_to_credit(&self) {
        self.keeps_to_credit.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the publisher has to wait for blocking subscribers. That is the case when they hold its whole
    /// window, or when they hold anything at all while the broker's queues are full. `freed` is notified when they take
    /// its messages.
    pub(super) fn is_full(&self) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        held >= self.window || (held > 0 && self.gauge.left() == 0)
    }

    /// Charges a publication to the account.
    pub(super) fn spend(&self, cost: usize) {
        if self.keeps_to_credit.load(Ordering::Relaxed) {
            self.unreturned.fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// Returns credit for messages that are no longer held, if the amount justifies a packet.
    pub(super) fn return_credit(&self) {
        // Both counters may change concurrently. Every change is followed by another `return_credit`, so no credit is lost,
        // and `compare_exchange` lets only one thread return it.
        let unreturned = self.unreturned.load(Ordering::Relaxed);
        let free = unreturned.saturating_sub(self.held.load(Ordering::Relaxed));
        if free * 2 < self.window || free == 0 || self.is_full() {
            return;
        }
        let taken =
            self.unreturned.compare_exchange(unreturned, unreturned - free, Ordering::Relaxed, Ordering::Relaxed);
        match (taken, self.answers.upgrade()) {
            (Ok(_), Some(answers)) => answers.allow(free),
            (Err(_), Some(_)) => self.return_credit(),
            (_, None) => {}
        }
    }
}

/// A message in the queues of blocking subscribers. All these queues share it; its cost is held until the last of them
/// drops it.
#[derive(Debug)]
pub(super) struct MessageHold {
    account: Arc<PublisherAccount>,
    cost: usize,
}

impl MessageHold {
    pub(super) fn new(account: Arc<PublisherAccount>, cost: usize) -> Self {
        account.held.fetch_add(cost, Ordering::Relaxed);
        Self { account, cost }
    }

    pub(super) fn account(&self) -> &Arc<PublisherAccount> {
        &self.account
    }
}

impl Drop for MessageHold {
    fn drop(&mut self) {
        self.account.held.fetch_sub(self.cost, Ordering::Relaxed);
        self.account.freed.notify_waiters();
        self.account.return_credit();
    }
}

#[cfg(loom)]
#[cfg(test)]
mod models {
    use loom::{model, thread};

    use super::*;
    use crate::wire::{BASE, OperationBase};

    const WINDOW: u32 = 4;

    #[test]
    fn credit_is_neither_lost_nor_granted_twice() {
        model(|| {
            let answers = Arc::new(AnswerQueue::new(OperationBase::new(BASE), 1, None));
            let gauge = Arc::new(QueueGauge::new(usize::MAX));
            let account = Arc::new(PublisherAccount::new(WINDOW, gauge, Arc::downgrade(&answers)));
            account.keep_to_credit();
            // A subscriber blocks. The next message is not for it, and uses up the window.
            account.spend(2);
            let hold = MessageHold::new(account.clone(), 2);
            let taker = thread::spawn(move || drop(hold));
            account.spend(2);
            account.return_credit();
            taker.join().unwrap();
            let unreturned = account.unreturned.load(Ordering::Relaxed);
            assert!(unreturned < WINDOW as usize, "the publisher waits forever");
            assert_eq!(unreturned + answers.allowed(), WINDOW as usize);
        });
    }
}
