//! The handlers of one connection that are under way, in the mode its dispatch asks for.

use std::{
    any::Any,
    collections::VecDeque,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, Stream as _};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{backlog::cost, permits::Held, scope::Scope};
use crate::{
    Config, Dispatch, Outcome, Packet, PacketName, Stream,
    proto::{GoAway, Peer},
    router::Refused,
    seldom::Seldom,
};

/// The end of a handler.
pub(super) enum Finished {
    Handler(Outcome),
    /// No handler got the packet.
    Refused(Outcome),
    /// The handler was dropped because the peer withdrew its packet.
    Withdrawn(PacketName),
    Stream,
    Panicked(Arc<str>),
}

/// The handlers of a connection, whatever the type of their futures.
pub(super) trait Handling {
    /// Returns the number of handlers of packets that are under way.
    fn len(&self) -> usize;

    /// Tells whether nothing is under way, handlers of streams included.
    fn is_idle(&self) -> bool;

    /// Returns the cost of the packets that handlers are under way with.
    fn held_len(&self) -> usize;

    /// Checks whether a handler may start on a packet of this [cost]. If not, the task is woken when one may.
    fn poll_free(&mut self, cx: &mut Context<'_>, cost: usize) -> Poll<()>;

    /// Gives back the permits that this turn took and that no handler needs now.
    fn end_turn(&mut self);

    /// Returns the number of packets of the peer that the router waits for.
    fn awaited(&self) -> Result<usize, Finished>;

    /// Returns how long the peer waits for the answer to a packet, as far as the router knows.
    fn timeout_of(&self, packet: &Packet) -> Option<Duration>;

    /// Returns whether one handler runs after the other, in the order of arrival.
    fn is_ordered(&self) -> bool;

    /// Offers a packet to the router, which gives it back if it needs a handler.
    fn offer(&self, packet: Packet) -> Result<Option<Packet>, Finished>;

    /// Lets the router take packets from the front of those that arrived together with one that it took. Returns how many it took.
    fn offer_more(&self, packets: &mut VecDeque<Packet>) -> Result<usize, Finished>;

    /// Has the router answer a packet that no handler gets.
    fn refuse(&self, refused: Refused) -> Finished;

    /// Tells the router that all that was read, and all that handlers ended with, has been dealt with.
    fn tell_received(&self) -> Option<Finished>;

    /// Tells the router of something.
    fn tell(&mut self, news: News) -> Option<Finished>;

    /// Drops the handler of a packet, which ends as [`Finished::Withdrawn`]. Returns whether there was one.
    fn withdraw(&mut self, packet: PacketName) -> bool;

    /// Starts a handler, in place or as a task. `None` if it has to wait, or is done and there is nothing to do for it.
    fn start(&mut self, cx: &mut Context<'_>, packet: Packet) -> Option<Finished>;

    /// Starts the handler of a stream, or what turns it away. One that is done at once never becomes a task.
    fn start_stream(&mut self, cx: &mut Context<'_>, stream: Stream, entry: Entry) -> Option<Finished>;

    /// Takes the next handler that ended.
    fn poll_finished(&mut self, cx: &mut Context<'_>) -> Poll<Finished>;
}

/// The treatment of a stream that the peer opened.
#[derive(Clone, Copy)]
pub(super) enum Entry {
    Served,
    Refused,
}

/// Something that the router hears of besides packets and streams.
pub(super) enum News {
    /// The outbox takes packets again.
    Writable,
    Recognized(Peer),
    GoingAway(GoAway),
    Withdrawn(PacketName),
}

/// The ways into a router: at once, a future for this task, one for a task of its own, and one for a stream.
pub(super) struct Entrances<Q, T, M, E, X, N, A, L, P, D, S> {
    pub(super) is_request: Q,
    pub(super) intercept: T,
    pub(super) intercept_more: M,
    pub(super) received: E,
    pub(super) refuse: X,
    pub(super) news: N,
    pub(super) awaited: A,
    pub(super) timeout: L,
    pub(super) in_place: P,
    pub(super) detached: D,
    pub(super) stream: S,
}

pub(super) struct Handlers<F, Q, T, M, E, X, N, A, L, P, D, S> {
    entrances: Entrances<Q, T, M, E, X, N, A, L, P, D, S>,
    dispatch: Dispatch,
    /// The number of handlers that may be under way.
    limit: usize,
    /// The cost of packets that handlers may be under way with, and what it is now.
    len_max: usize,
    held_len: usize,
    /// The place in which the next handler is polled. Its allocation goes to the handler if that has to wait.
    place: Option<Pin<Box<Option<F>>>>,
    /// Handlers in place that were not ready at once.
    waiting: FuturesUnordered<InPlace<F>>,
    tasks: JoinSet<Task>,
    /// The number of `tasks` that handle packets. The others serve streams.
    handler_tasks: usize,
    /// True if the peer can withdraw packets, so that their tasks have to be found.
    may_withdraw: bool,
    /// The tasks that handle packets of a peer that can withdraw them, with what the packets cost.
    by_name: Seldom<PacketName, (AbortHandle, usize)>,
    /// Tasks that were aborted and have not ended.
    aborted: Seldom<Id, (PacketName, usize)>,
    permits: Held,
}

enum Task {
    /// With the name and the cost of its packet.
    Handler(Outcome, PacketName, usize),
    Stream,
}

impl<F, Q, T, M, E, X, N, A, L, P, D, S> Handlers<F, Q, T, M, E, X, N, A, L, P, D, S>
where
    F: Future<Output = Outcome>,
    P: Fn(Packet) -> F,
{
    pub(super) fn new(scope: &Scope, config: &Config, entrances: Entrances<Q, T, M, E, X, N, A, L, P, D, S>) -> Self {
        Self {
            entrances,
            dispatch: scope.dispatch,
            limit: config.handlers_max,
            len_max: config.handlers_len_max,
            held_len: 0,
            place: None,
            waiting: FuturesUnordered::new(),
            tasks: JoinSet::new(),
            handler_tasks: 0,
            may_withdraw: false,
            by_name: Seldom::default(),
            aborted: Seldom::default(),
            permits: Held::new(scope.permits.clone()),
        }
    }

    /// Drops the handlers that are not tasks of their own.
    pub(super) fn drop_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Gives back the permits of handlers that will not start any more.
    pub(super) fn give_back_permits(&mut self) {
        self.permits.stop_waiting();
        self.permits.keep(self.waiting.len());
    }

    fn start_in_place(&mut self, cx: &mut Context<'_>, packet: Packet) -> Option<Finished> {
        let mut place = self.place.take().unwrap_or_else(|| Box::pin(None));
        let (name, cost) = (packet.name(), cost(&packet));
        // The call itself may panic too, before there is a future. What a panic leaves behind is dropped with the place,
        // and the connection ends, so that nothing sees it half changed.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            place.set(Some((self.entrances.in_place)(packet)));
            poll_in(&mut place, cx)
        }));
        match polled {
            Ok(Poll::Ready(outcome)) => {
                place.set(None);
                self.place = Some(place);
                match outcome {
                    Outcome::Nothing => None,
                    outcome => Some(Finished::Handler(outcome)),
                }
            }
            Ok(Poll::Pending) => {
                self.held_len += cost;
                self.waiting.push(InPlace { place, name, cost, waker: None, is_withdrawn: false });
                None
            }
            Err(panic) => Some(Finished::Panicked(message(&*panic))),
        }
    }

    fn finished_task(&mut self, result: Result<(Id, Task), JoinError>) -> Finished {
        match result {
            Ok((id, Task::Handler(outcome, name, cost))) => {
                self.end_task(cost);
                if self.aborted.remove(&id).is_none() {
                    self.by_name.remove(&name);
                }
                Finished::Handler(outcome)
            }
            Ok((_, Task::Stream)) => Finished::Stream,
            Err(error) if error.is_cancelled() && self.aborted.contains_key(&error.id()) => {
                let (name, cost) = self.aborted.remove(&error.id()).expect("it was just found");
                self.end_task(cost);
                Finished::Withdrawn(name)
            }
            Err(error) => Finished::Panicked(match error.try_into_panic() {
                Ok(panic) => message(&*panic),
                Err(error) => error.to_string().into(),
            }),
        }
    }
}

impl<F, Q, T, M, E, X, N, A, L, P, D, S> Handlers<F, Q, T, M, E, X, N, A, L, P, D, S> {
    fn end_task(&mut self, cost: usize) {
        debug_assert!(self.handler_tasks > 0 && self.held_len >= cost, "a handler ends once");
        self.handler_tasks -= 1;
        self.held_len -= cost;
    }
}

impl<F, Q, T, M, E, X, N, A, L, P, D, S, DF, SF> Handling for Handlers<F, Q, T, M, E, X, N, A, L, P, D, S>
where
    Q: Fn(&Packet) -> bool,
    T: Fn(Packet) -> Option<Packet>,
    M: Fn(&mut VecDeque<Packet>) -> usize,
    E: Fn(),
    X: Fn(Refused) -> Outcome,
    N: Fn(News),
    A: Fn() -> usize,
    L: Fn(&Packet) -> Option<Duration>,
    F: Future<Output = Outcome>,
    P: Fn(Packet) -> F,
    D: Fn(Packet) -> DF,
    DF: Future<Output = Outcome> + Send + 'static,
    S: Fn(Stream, Entry) -> SF,
    SF: Future<Output = ()> + Send + 'static,
{
    fn len(&self) -> usize {
        self.waiting.len() + self.handler_tasks
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.tasks.is_empty()
    }

    fn held_len(&self) -> usize {
        self.held_len
    }

    fn awaited(&self) -> Result<usize, Finished> {
        catch_unwind(AssertUnwindSafe(|| (self.entrances.awaited)()))
            .map_err(|panic| Finished::Panicked(message(&*panic)))
    }

    fn timeout_of(&self, packet: &Packet) -> Option<Duration> {
        // A panic has told of itself. The packet waits as one without a time.
        catch_unwind(AssertUnwindSafe(|| (self.entrances.timeout)(packet))).unwrap_or(None)
    }

    fn is_ordered(&self) -> bool {
        self.dispatch == Dispatch::Ordered
    }

    fn poll_free(&mut self, cx: &mut Context<'_>, cost: usize) -> Poll<()> {
        // The end of one of this connection's own handlers wakes the task.
        if self.held_len > 0 && self.held_len + cost > self.len_max {
            return Poll::Pending;
        }
        // A handler in place may be ready at once, and then needs no permit: it is enough to hold one for each that waits
        // already. A task holds its permit from the start.
        let (limit, permits) = match self.dispatch {
            Dispatch::Ordered => (1, self.len()),
            Dispatch::InPlace => (self.limit, self.len()),
            Dispatch::Spawned | Dispatch::Limited(_) => (self.limit, 1),
        };
        match self.len() < limit {
            true if permits == 0 => Poll::Ready(()),
            true => self.permits.poll_hold(cx, permits),
            false => Poll::Pending,
        }
    }

    fn end_turn(&mut self) {
        let needed = match self.dispatch {
            Dispatch::Ordered | Dispatch::InPlace => self.waiting.len(),
            // Tasks have theirs. The next one may have a place in the queue.
            Dispatch::Spawned | Dispatch::Limited(_) => usize::from(self.permits.is_waiting()),
        };
        self.permits.keep(needed);
    }

    #[inline]
    fn offer(&self, packet: Packet) -> Result<Option<Packet>, Finished> {
        if (self.entrances.is_request)(&packet) {
            return Ok(Some(packet));
        }
        let intercepted = catch_unwind(AssertUnwindSafe(|| (self.entrances.intercept)(packet)));
        intercepted.map_err(|panic| Finished::Panicked(message(&*panic)))
    }

    fn offer_more(&self, packets: &mut VecDeque<Packet>) -> Result<usize, Finished> {
        let intercepted = catch_unwind(AssertUnwindSafe(|| (self.entrances.intercept_more)(packets)));
        intercepted.map_err(|panic| Finished::Panicked(message(&*panic)))
    }

    fn refuse(&self, refused: Refused) -> Finished {
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.entrances.refuse)(refused)));
        outcome.map_or_else(|panic| Finished::Panicked(message(&*panic)), Finished::Refused)
    }

    #[inline(always)] // Nothing at all for most routers.
    fn tell_received(&self) -> Option<Finished> {
        let told = catch_unwind(AssertUnwindSafe(|| (self.entrances.received)()));
        told.err().map(|panic| Finished::Panicked(message(&*panic)))
    }

    fn tell(&mut self, news: News) -> Option<Finished> {
        if let News::Recognized(Peer::Extended(_)) = news {
            self.may_withdraw = true;
        }
        let told = catch_unwind(AssertUnwindSafe(|| (self.entrances.news)(news)));
        told.err().map(|panic| Finished::Panicked(message(&*panic)))
    }

    fn withdraw(&mut self, name: PacketName) -> bool {
        if let Some((task, cost)) = self.by_name.remove(&name) {
            task.abort();
            self.aborted.insert(task.id(), (name, cost));
            return true;
        }
        let mut waiting = Pin::new(&mut self.waiting).iter_pin_mut();
        let Some(found) = waiting.find(|handler| handler.name == name && !handler.is_withdrawn) else { return false };
        // Its turn to be polled drops the future.
        let handler = found.get_mut();
        handler.is_withdrawn = true;
        handler.waker.take().into_iter().for_each(Waker::wake);
        true
    }

    fn start(&mut self, cx: &mut Context<'_>, packet: Packet) -> Option<Finished> {
        match self.dispatch {
            Dispatch::InPlace | Dispatch::Ordered => self.start_in_place(cx, packet),
            Dispatch::Spawned | Dispatch::Limited(_) => {
                let (name, cost) = (packet.name(), cost(&packet));
                let (handler, permit) = ((self.entrances.detached)(packet), self.permits.part());
                self.handler_tasks += 1;
                self.held_len += cost;
                let task = self.tasks.spawn(async move {
                    let outcome = handler.await;
                    // Before the driver hears of the end, which may be later: others wait for the permit.
                    drop(permit);
                    Task::Handler(outcome, name, cost)
                });
                if self.may_withdraw {
                    self.by_name.insert(name, (task, cost));
                }
                None
            }
        }
    }

    fn start_stream(&mut self, cx: &mut Context<'_>, stream: Stream, entry: Entry) -> Option<Finished> {
        let mut handler = Box::pin((self.entrances.stream)(stream, entry));
        match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
            Ok(Poll::Ready(())) => {}
            Ok(Poll::Pending) => {
                self.tasks.spawn(async move {
                    handler.await;
                    Task::Stream
                });
            }
            Err(panic) => return Some(Finished::Panicked(message(&*panic))),
        }
        None
    }

    fn poll_finished(&mut self, cx: &mut Context<'_>) -> Poll<Finished> {
        if !self.waiting.is_empty()
            && let Poll::Ready(Some((finished, cost))) = Pin::new(&mut self.waiting).poll_next(cx)
        {
            self.held_len -= cost;
            return Poll::Ready(finished);
        }
        if !self.tasks.is_empty()
            && let Some(result) = ready!(self.tasks.poll_join_next_with_id(cx))
        {
            return Poll::Ready(self.finished_task(result));
        }
        Poll::Pending
    }
}

/// Lets everything under way end. What it ends with is dropped.
pub(super) async fn finish(mut handlers: impl Handling, kill: &CancellationToken) {
    let rest = poll_fn(|cx| {
        while !handlers.is_idle() {
            let finished = handlers.poll_finished(cx);
            handlers.end_turn();
            // A handler that panics now has no connection left to end.
            let _ = ready!(finished);
        }
        Poll::Ready(())
    });
    kill.run_until_cancelled(rest).await;
}

/// A handler that was polled in place and has to wait.
struct InPlace<F> {
    place: Pin<Box<Option<F>>>,
    /// The name and the cost of its packet.
    name: PacketName,
    cost: usize,
    /// Polls it again when its packet is withdrawn.
    waker: Option<Waker>,
    is_withdrawn: bool,
}

impl<F: Future<Output = Outcome>> Future for InPlace<F> {
    type Output = (Finished, usize);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let polled = match catch_unwind(AssertUnwindSafe(|| match this.is_withdrawn {
            true => {
                this.place.set(None);
                Poll::Ready(Finished::Withdrawn(this.name))
            }
            false => poll_in(&mut this.place, cx).map(Finished::Handler),
        })) {
            Ok(polled) => polled,
            Err(panic) => Poll::Ready(Finished::Panicked(message(&*panic))),
        };
        if polled.is_pending() && !this.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            this.waker = Some(cx.waker().clone());
        }
        polled.map(|finished| (finished, this.cost))
    }
}

fn poll_in<F: Future<Output = Outcome>>(place: &mut Pin<Box<Option<F>>>, cx: &mut Context<'_>) -> Poll<Outcome> {
    place.as_mut().as_pin_mut().expect("a handler stays in its place until it is done").poll(cx)
}

pub(super) fn message(panic: &(dyn Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").into()
}
