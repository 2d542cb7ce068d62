//! The events of one subscription between the connection that they come from and the task that takes them.

use std::{
    collections::VecDeque,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::{Event, Message, SubscriptionEnd, wire::MESSAGE_COST};

/// A queue that holds no more than the window lets the broker send, whatever it sends.
#[derive(Debug)]
pub(super) struct Feed {
    window: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// The cost of the messages here.
    len: usize,
    end: Option<SubscriptionEnd>,
    waker: Option<Waker>,
}

impl Feed {
    pub(super) fn new(window: u32) -> Self {
        Self { window, state: Mutex::default() }
    }

    pub(super) fn window(&self) -> u32 {
        self.window
    }

    pub(super) fn push(&self, message: Message) {
        let cost = cost(&message);
        let mut state = self.state();
        // Messages from before the connection was lost may wait here with as much of the next.
        if state.len >= 2 * self.window as usize {
            self.add(state, Event::Missing(1));
            return;
        }
        state.len += cost;
        self.add(state, Event::Message(message));
    }

    pub(super) fn push_event(&self, event: Event) {
        self.add(self.state(), event);
    }

    /// Lets the task know that nothing follows on what is here.
    pub(super) fn end(&self, end: SubscriptionEnd) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        Self::wake(state);
    }

    /// Moves all events into `into`, which is empty, or returns why there will be none.
    pub(super) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        into: &mut VecDeque<Event>,
    ) -> Poll<Result<(), SubscriptionEnd>> {
        debug_assert!(into.is_empty());
        let mut state = self.state();
        if !state.events.is_empty() {
            state.len = 0;
            mem::swap(&mut state.events, into);
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.clone()));
        }
        let former = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(former);
        Poll::Pending
    }

    fn add(&self, mut state: MutexGuard<'_, State>, event: Event) {
        match (state.events.back_mut(), event) {
            (Some(Event::Missing(before)), Event::Missing(count)) => *before = before.saturating_add(count),
            (Some(Event::Reconnected), Event::Reconnected) => {}
            (_, event) => state.events.push_back(event),
        }
        Self::wake(state);
    }

    fn wake(mut state: MutexGuard<'_, State>) {
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock leaves it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what a message costs of its window: what its packet has behind the header, and 64.
pub(super) fn cost(message: &Message) -> usize {
    let subject = |subject: &str| 1 + subject.len();
    let reply = message.reply.as_deref().map_or(0, subject);
    NUMBER_AND_FLAGS + subject(&message.subject) + reply + message.payload.len() + MESSAGE_COST
}

const NUMBER_AND_FLAGS: usize = 5;
