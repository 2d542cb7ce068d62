//! The account of what a publisher has under way at the broker, and how long it has to wait for subscribers that block it.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::Notify;

use crate::broker::{answers::Answers, gauge::Gauge};

/// The account of one publisher.
///
/// ```text
///   credit ──PUBLISH──▶ unreturned ┬─ held by queues of subscribers that block ──taken──▶┐
///      ▲                           └──────────────────────────────────────────────────────┴─▶ free
///      └───────────────────────────────────── ALLOW ──────────────────────────────────────────┘
/// ```
#[derive(Debug)]
pub(super) struct Account {
    window: usize,
    gauge: Arc<Gauge>,
    /// The cost of what was published and not given back as credit.
    unreturned: AtomicUsize,
    /// The cost of what waits for subscribers that block.
    held: AtomicUsize,
    /// Set by a publisher that keeps to credit.
    keeps_to_credit: AtomicBool,
    /// Notified when less is held.
    pub(super) freed: Notify,
    answers: Weak<Answers>,
}

impl Account {
    /// Makes the account of a publisher that is told of its credit by these answers.
    pub(super) fn new(window: u32, gauge: Arc<Gauge>, answers: Weak<Answers>) -> Self {
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

    /// Returns whether as much waits for subscribers that block as may: as much of this publisher as its window allows, or anything
    /// of it while all queues together are full. Either ends when its messages are taken, of which `freed` tells.
    pub(super) fn is_full(&self) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        held >= self.window || (held > 0 && self.gauge.left() == 0)
    }

    /// Notes what was published.
    pub(super) fn spend(&self, cost: usize) {
        if self.keeps_to_credit.load(Ordering::Relaxed) {
            self.unreturned.fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// Gives credit back for what no subscriber holds, if it is worth a packet.
    pub(super) fn settle(&self) {
        // Both numbers may change meanwhile. Who changes them settles as well, so nothing is forgotten, and what is taken from
        // `unreturned` is taken once.
        let unreturned = self.unreturned.load(Ordering::Relaxed);
        let free = unreturned.saturating_sub(self.held.load(Ordering::Relaxed));
        if free * 2 < self.window || free == 0 || self.is_full() {
            return;
        }
        let taken =
            self.unreturned.compare_exchange(unreturned, unreturned - free, Ordering::Relaxed, Ordering::Relaxed);
        match (taken, self.answers.upgrade()) {
            (Ok(_), Some(answers)) => answers.allow(free),
            (Err(_), Some(_)) => self.settle(),
            (_, None) => {}
        }
    }
}

/// A message that waits for subscribers that block its publisher. All of them share it.
#[derive(Debug)]
pub(super) struct Hold {
    account: Arc<Account>,
    cost: usize,
}

impl Hold {
    pub(super) fn new(account: Arc<Account>, cost: usize) -> Self {
        account.held.fetch_add(cost, Ordering::Relaxed);
        Self { account, cost }
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.account.held.fetch_sub(self.cost, Ordering::Relaxed);
        self.account.freed.notify_waiters();
        self.account.settle();
    }
}
