//! Event queues between a client's connection and its subscribers' tasks.

use std::{
    collections::VecDeque,
    mem,
    task::{Context, Poll, Waker},
};

use crate::{
    Message, SubscriptionEnd, SubscriptionEvent,
    lock::lock,
    sync::{Mutex, MutexGuard},
    wire::MESSAGE_COST,
};

/// A queue of events for one subscription. Bounded by twice the window, even if the broker ignores its credit.
#[derive(Debug)]
pub(super) struct EventFeed {
    window: u32,
    state: Mutex<FeedState>,
}

#[derive(Debug, Default)]
struct FeedState {
    events: VecDeque<SubscriptionEvent>,
    /// Cost of the queued messages.
    len: usize,
    end: Option<SubscriptionEnd>,
    waker: Option<Waker>,
}

impl EventFeed {
    pub(super) fn new(window: u32) -> Self {
        Self { window, state: Mutex::default() }
    }

    pub(super) fn window(&self) -> u32 {
        self.window
    }

    pub(super) fn push(&self, message: Message) {
        let cost = cost(&message);
        let mut state = lock(&self.state);
        // Twice the window: messages from before a reconnection may still be queued when a new window arrives.
        if state.len >= 2 * self.window as usize {
            self.add(state, SubscriptionEvent::Missing(1));
            return;
        }
        state.len += cost;
        self.add(state, SubscriptionEvent::Message(message));
    }

    pub(super) fn push_event(&self, event: SubscriptionEvent) {
        self.add(lock(&self.state), event);
    }

    /// Ends the subscription after the queued events.
    pub(super) fn end(&self, end: SubscriptionEnd) {
        let mut state = lock(&self.state);
        state.end.get_or_insert(end);
        Self::wake(state);
    }

    /// Moves all events into the empty queue `into`, or returns the reason for the end if none are left.
    pub(super) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        into: &mut VecDeque<SubscriptionEvent>,
    ) -> Poll<Result<(), SubscriptionEnd>> {
        debug_assert!(into.is_empty());
        let mut state = lock(&self.state);
        if !state.events.is_empty() {
            state.len = 0;
            mem::swap(&mut state.events, into);
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.clone()));
        }
        // Drop the former waker without the lock held, because its destructor is foreign code.
        let former = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(former);
        Poll::Pending
    }

    fn add(&self, mut state: MutexGuard<'_, FeedState>, event: SubscriptionEvent) {
        match (state.events.back_mut(), event) {
            (Some(SubscriptionEvent::Missing(before)), SubscriptionEvent::Missing(count)) => {
                *before = before.saturating_add(count)
            }
            (Some(SubscriptionEvent::Reconnected), SubscriptionEvent::Reconnected) => {}
            (_, event) => state.events.push_back(event),
        }
        Self::wake(state);
    }

    fn wake(mut state: MutexGuard<'_, FeedState>) {
        // Wake without the lock held, because the woken task takes it.
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Returns the cost of a message against the window: the content of its packet plus 64.
pub(super) fn cost(message: &Message) -> usize {
    let subject = |subject: &str| 1 + subject.len();
    let reply = message.reply.as_deref().map_or(0, subject);
    NUMBER_AND_FLAGS + subject(&message.subject) + reply + message.payload.len() + MESSAGE_COST
}

const NUMBER_AND_FLAGS: usize = 5;
