//! The handlers of one connection that are under way, in the mode its dispatch asks for.

use std::{
    any::Any,
    collections::VecDeque,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, Stream as _};
use tokio::{
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{backlog::cost, permits::Held, scope::Scope};
use crate::{
    Connection, Dispatch, Outcome, Packet, PacketName, Router, Stream,
    arrival::arrived_at,
    router::{Arrivals, Event, Refusal, Refused},
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

/// The function that has the router handle a packet in place. The type of its future has no name.
pub(super) trait InPlaceRoute: Fn(Packet) -> Self::Handler {
    type Handler: Future<Output = Outcome>;
}

impl<P, F> InPlaceRoute for P
where
    P: Fn(Packet) -> F,
    F: Future<Output = Outcome>,
{
    type Handler = F;
}

/// The router of a connection, and its handlers that are under way.
pub(super) struct Handlers<'a, R, P: InPlaceRoute> {
    router: &'a Arc<R>,
    connection: &'a Connection,
    route_in_place: P,
    /// For the tasks of this connection, if there are any, so that they share no count of references with others.
    owned: OnceLock<Arc<(Arc<R>, Connection)>>,
    dispatch: Dispatch,
    /// The number of handlers that may be under way.
    limit: usize,
    /// The cost of packets that handlers may be under way with, and what it is now.
    len_max: usize,
    held_len: usize,
    /// The place in which the next handler is polled. Its allocation goes to the handler if that has to wait.
    place: Option<Pin<Box<Option<P::Handler>>>>,
    /// Handlers in place that were not ready at once.
    waiting: FuturesUnordered<InPlace<P::Handler>>,
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

impl<'a, R: Router, P: InPlaceRoute> Handlers<'a, R, P> {
    pub(super) fn new(scope: &Scope, connection: &'a Connection, router: &'a Arc<R>, route_in_place: P) -> Self {
        let config = connection.config();
        Self {
            router,
            connection,
            route_in_place,
            owned: OnceLock::new(),
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
            place.set(Some((self.route_in_place)(packet)));
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

    fn end_task(&mut self, cost: usize) {
        debug_assert!(self.handler_tasks > 0 && self.held_len >= cost, "a handler ends once");
        self.handler_tasks -= 1;
        self.held_len -= cost;
    }

    /// Returns the number of handlers of packets that are under way.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.handler_tasks
    }

    /// Returns `true` if nothing is under way, handlers of streams included.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.tasks.is_empty()
    }

    /// Returns the cost of the packets that handlers are under way with.
    pub(super) fn held_len(&self) -> usize {
        self.held_len
    }

    /// Returns the number of packets of the peer that the router waits for.
    pub(super) fn awaited(&self) -> Result<usize, Finished> {
        guarded(|| self.router.awaited(self.connection))
    }

    /// Returns how long the peer waits for the answer to a packet, as far as the router knows.
    pub(super) fn timeout_of(&self, packet: &Packet) -> Option<Duration> {
        // A panic has told of itself. The packet waits as one without a time.
        guarded(|| self.router.packet_timeout(packet, self.connection)).unwrap_or(None)
    }

    /// Returns whether one handler runs after the other, in the order of arrival.
    pub(super) fn is_ordered(&self) -> bool {
        self.dispatch == Dispatch::Ordered
    }

    /// Checks whether a handler may start on a packet of this [cost]. If not, the task is woken when one may.
    #[inline]
    pub(super) fn poll_free(&mut self, cx: &mut Context<'_>, cost: usize) -> Poll<()> {
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

    /// Gives back the permits that this turn took and that no handler needs now.
    pub(super) fn end_turn(&mut self) {
        let needed = match self.dispatch {
            Dispatch::Ordered | Dispatch::InPlace => self.waiting.len(),
            // Tasks have theirs. The next one may have a place in the queue.
            Dispatch::Spawned | Dispatch::Limited(_) => usize::from(self.permits.is_waiting()),
        };
        self.permits.keep(needed);
    }

    /// Has the router take packets that need no handler from the front of those that arrived.
    #[inline(always)]
    pub(super) fn intercept(&self, packets: &mut VecDeque<Packet>) -> Result<(), Finished> {
        guarded(|| self.router.intercept(&mut Arrivals::new(packets, self.connection), self.connection))
    }

    /// Has the router answer a packet that no handler gets.
    pub(super) fn refuse(&self, refused: Refused) -> Finished {
        let outcome = guarded(|| self.router.refuse(refused, self.connection));
        outcome.map_or_else(|panicked| panicked, Finished::Refused)
    }

    /// Tells the router what happened to the connection.
    #[inline(always)] // Nothing at all for most routers and events.
    pub(super) fn tell(&self, event: Event<'_>) -> Option<Finished> {
        guarded(|| self.router.event(self.connection, event)).err()
    }

    /// Notes that the peer can withdraw packets.
    pub(super) fn expect_withdrawals(&mut self) {
        self.may_withdraw = true;
    }

    /// Drops the handler of a packet, which ends as [`Finished::Withdrawn`]. Returns whether there was one.
    pub(super) fn withdraw(&mut self, name: PacketName) -> bool {
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

    /// Starts a handler, in place or as a task. `None` if it has to wait, or is done and there is nothing to do for it.
    pub(super) fn start(&mut self, cx: &mut Context<'_>, packet: Packet) -> Option<Finished> {
        match self.dispatch {
            Dispatch::InPlace | Dispatch::Ordered => self.start_in_place(cx, packet),
            Dispatch::Spawned | Dispatch::Limited(_) => {
                let (name, cost) = (packet.name(), cost(&packet));
                let (owned, arrived, timeout) = (self.owned(), self.connection.turn(), self.timeout_of(&packet));
                let (due, permit) = (timeout.and_then(|timeout| arrived.checked_add(timeout)), self.permits.part());
                self.handler_tasks += 1;
                self.held_len += cost;
                let task = self.tasks.spawn(async move {
                    let (router, connection) = &*owned;
                    // The task may have waited for its thread.
                    let outcome = if due.is_some_and(|due| due <= Instant::now().into_std()) {
                        let Packet { id, operation, .. } = packet;
                        router.refuse(Refused { id, operation, why: Refusal::Expired }, connection)
                    } else {
                        arrived_at(arrived, || router.route(packet, connection)).await
                    };
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

    /// Starts the handler of a stream, which only turns it away if there is a refusal. One that is done at once never becomes a
    /// task.
    pub(super) fn start_stream(
        &mut self,
        cx: &mut Context<'_>,
        stream: Stream,
        refusal: Option<Refusal>,
    ) -> Option<Finished> {
        let owned = self.owned();
        let mut handler = Box::pin(async move {
            let (router, connection) = &*owned;
            router.stream(stream, refusal, connection).await;
        });
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

    /// Takes the next handler that ended.
    pub(super) fn poll_finished(&mut self, cx: &mut Context<'_>) -> Poll<Finished> {
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

    fn owned(&self) -> Arc<(Arc<R>, Connection)> {
        self.owned.get_or_init(|| Arc::new((self.router.clone(), self.connection.clone()))).clone()
    }
}

/// Calls the router. What a panic leaves behind is the router's own, and the connection ends.
#[inline(always)]
fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Finished> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| Finished::Panicked(message(&*panic)))
}

/// Lets everything under way end. What it ends with is dropped.
pub(super) async fn finish<R: Router, P: InPlaceRoute>(mut handlers: Handlers<'_, R, P>, kill: &CancellationToken) {
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
