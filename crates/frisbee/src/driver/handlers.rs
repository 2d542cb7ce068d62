//! The running handlers of one connection, in any dispatch mode.

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

use super::{backlog::cost, permits::HeldPermits, scope::DriverScope};
use crate::{
    Connection, Dispatch, Outcome, Packet, PacketName, Router, Stream,
    arrival::arrived_at,
    lazy_map::LazyMap,
    proto::StreamKey,
    router::{Arrivals, Event, RefusalReason, RefusedPacket},
};

/// The result of a handler.
pub(super) enum FinishedHandler {
    Handler(Outcome),
    /// The packet was refused before it reached a handler.
    Refused(Outcome),
    /// The handler was dropped because the peer withdrew its packet.
    Withdrawn(PacketName),
    Stream,
    Panicked(Arc<str>),
}

/// A function that calls the router for a packet in place. Abstracts over the unnameable type of its future.
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

/// The router of a connection and its running handlers.
pub(super) struct Handlers<'a, R, P: InPlaceRoute> {
    router: &'a Arc<R>,
    connection: &'a Connection,
    route_in_place: P,
    /// Router and connection for the tasks of this connection, created for the first task. A separate `Arc` avoids
    /// contention with other connections on a reference count.
    owned: OnceLock<Arc<(Arc<R>, Connection)>>,
    dispatch: Dispatch,
    is_server: bool,
    /// Maximum number of running handlers.
    limit: usize,
    /// Maximum total cost of the packets of running handlers, and the current cost.
    len_max: usize,
    held_len: usize,
    /// Reused allocation for the next handler's future. A handler that is not ready immediately keeps it.
    place: Option<Pin<Box<Option<P::Handler>>>>,
    /// Handlers in place that were not ready immediately.
    waiting: FuturesUnordered<InPlaceHandler<P::Handler>>,
    tasks: JoinSet<FinishedTask>,
    /// Number of `tasks` that handle packets. All other tasks serve streams.
    handler_tasks: usize,
    /// `true` if the peer can withdraw packets, so that their tasks must be found by name.
    pub(super) may_withdraw: bool,
    /// Tasks for packets of a peer that can withdraw them, with the cost of each packet.
    by_name: LazyMap<PacketName, (AbortHandle, usize)>,
    /// Aborted tasks that have not ended yet.
    aborted: LazyMap<Id, (PacketName, usize)>,
    permits: HeldPermits,
}

enum FinishedTask {
    /// Outcome of the handler, with the name and cost of its packet.
    Handler(Outcome, PacketName, usize),
    Stream,
}

impl<'a, R: Router, P: InPlaceRoute> Handlers<'a, R, P> {
    pub(super) fn new(scope: &DriverScope, connection: &'a Connection, router: &'a Arc<R>, route_in_place: P) -> Self {
        let config = connection.config();
        Self {
            router,
            connection,
            route_in_place,
            owned: OnceLock::new(),
            dispatch: scope.dispatch,
            is_server: scope.is_server,
            limit: config.handlers_max,
            len_max: config.handlers_len_max,
            held_len: 0,
            place: None,
            waiting: FuturesUnordered::new(),
            tasks: JoinSet::new(),
            handler_tasks: 0,
            may_withdraw: false,
            by_name: LazyMap::default(),
            aborted: LazyMap::default(),
            permits: HeldPermits::new(scope.permits.clone()),
        }
    }

    /// Drops the handlers that run in place.
    pub(super) fn drop_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Releases the permits of handlers that will no longer start.
    pub(super) fn give_back_permits(&mut self) {
        self.permits.stop_waiting();
        self.permits.release_beyond(self.waiting.len());
    }

    fn start_in_place(&mut self, cx: &mut Context<'_>, packet: Packet) -> Option<FinishedHandler> {
        let mut place = self.place.take().unwrap_or_else(|| Box::pin(None));
        let (name, cost) = (packet.name(), cost(&packet));
        // The call itself may panic too, before it returns a future. State left by a panic is dropped with the place
        // and the connection ends, so nothing observes it.
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
                    outcome => Some(FinishedHandler::Handler(outcome)),
                }
            }
            Ok(Poll::Pending) => {
                self.held_len += cost;
                self.waiting.push(InPlaceHandler { place, name, cost, waker: None, is_withdrawn: false });
                None
            }
            Err(panic) => Some(FinishedHandler::Panicked(panic_message(&*panic))),
        }
    }

    fn finished_task(&mut self, result: Result<(Id, FinishedTask), JoinError>) -> FinishedHandler {
        match result {
            Ok((id, FinishedTask::Handler(outcome, name, cost))) => {
                self.end_task(cost);
                if self.aborted.remove(&id).is_none() {
                    self.by_name.remove(&name);
                }
                FinishedHandler::Handler(outcome)
            }
            Ok((_, FinishedTask::Stream)) => FinishedHandler::Stream,
            Err(error) if error.is_cancelled() && self.aborted.contains_key(&error.id()) => {
                let (name, cost) = self.aborted.remove(&error.id()).expect("it was just found");
                self.end_task(cost);
                FinishedHandler::Withdrawn(name)
            }
            Err(error) => FinishedHandler::Panicked(match error.try_into_panic() {
                Ok(panic) => panic_message(&*panic),
                Err(error) => error.to_string().into(),
            }),
        }
    }

    fn end_task(&mut self, cost: usize) {
        debug_assert!(self.handler_tasks > 0 && self.held_len >= cost, "a handler ends once");
        self.handler_tasks -= 1;
        self.held_len -= cost;
    }

    /// Returns the number of running packet handlers.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.handler_tasks
    }

    /// Returns `true` if no handlers are running, including those of streams.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.tasks.is_empty()
    }

    /// Returns the total cost of the packets of running handlers.
    pub(super) fn held_len(&self) -> usize {
        self.held_len
    }

    /// Returns the number of packets of the peer that the router waits for.
    pub(super) fn awaited(&self) -> Result<usize, FinishedHandler> {
        guarded(|| self.router.awaited(self.connection))
    }

    /// Returns how long the peer waits for the reply to a packet, if the router knows.
    pub(super) fn timeout_of(&self, packet: &Packet) -> Option<Duration> {
        // The panic hook has reported the panic. The packet is queued without a timeout.
        guarded(|| self.router.packet_timeout(packet, self.connection)).unwrap_or(None)
    }

    /// Returns the number of handlers in progress on all connections of a server. `None` on a client. Handlers ready
    /// immediately do not count.
    ///
    /// At the start of a turn, because this connection takes permits ahead until its end.
    #[inline]
    pub(super) fn load(&self) -> Option<usize> {
        self.is_server.then(|| self.permits.in_use_by_all())
    }

    /// Returns `true` if handlers run one at a time, in order of arrival.
    pub(super) fn is_ordered(&self) -> bool {
        self.dispatch == Dispatch::Ordered
    }

    /// Checks whether a handler may start on a packet of this [cost]. If not, wakes the task when one may.
    #[inline]
    pub(super) fn poll_free(&mut self, cx: &mut Context<'_>, cost: usize) -> Poll<()> {
        // The task is woken anyway when one of this connection's own handlers ends.
        if self.held_len > 0 && self.held_len + cost > self.len_max {
            return Poll::Pending;
        }
        // A handler in place that is ready immediately needs no permit, so it is enough to hold one for each running
        // handler. A task holds its permit from the start.
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

    /// Releases the permits taken during this turn and not needed by any handler.
    pub(super) fn end_turn(&mut self) {
        let needed = match self.dispatch {
            Dispatch::Ordered | Dispatch::InPlace => self.waiting.len(),
            // Tasks own their permits. Keep only the place in the queue for the next task.
            Dispatch::Spawned | Dispatch::Limited(_) => usize::from(self.permits.is_waiting()),
        };
        self.permits.release_beyond(needed);
    }

    /// Lets the router take packets that need no handler from the front of the arrived ones.
    #[inline(always)]
    pub(super) fn intercept(&self, packets: &mut VecDeque<Packet>) -> Result<(), FinishedHandler> {
        guarded(|| self.router.intercept(&mut Arrivals::new(packets, self.connection), self.connection))
    }

    /// Lets the router reply to a refused packet.
    pub(super) fn refuse(&self, refused: RefusedPacket) -> FinishedHandler {
        let outcome = guarded(|| self.router.refuse(refused, self.connection));
        outcome.map_or_else(|panicked| panicked, FinishedHandler::Refused)
    }

    /// Passes an event to the router.
    #[inline(always)] // Nothing at all for most routers and events.
    pub(super) fn notify_router(&self, event: Event<'_>) -> Option<FinishedHandler> {
        guarded(|| self.router.event(self.connection, event)).err()
    }

    /// Drops the handler of a packet, which then ends as [`FinishedHandler::Withdrawn`]. Returns `true` if there was
    /// one.
    pub(super) fn withdraw(&mut self, name: PacketName) -> bool {
        if let Some((task, cost)) = self.by_name.remove(&name) {
            task.abort();
            // The task set reports the aborted task later, and only by its id.
            self.aborted.insert(task.id(), (name, cost));
            return true;
        }
        let mut waiting = Pin::new(&mut self.waiting).iter_pin_mut();
        let Some(found) = waiting.find(|handler| handler.name == name && !handler.is_withdrawn) else { return false };
        // The next poll of the handler drops its future.
        let handler = found.get_mut();
        handler.is_withdrawn = true;
        handler.waker.take().into_iter().for_each(Waker::wake);
        true
    }

    /// Starts a handler, in place or as a task. Returns `None` if it is still running or ended without a reply.
    pub(super) fn start(&mut self, cx: &mut Context<'_>, packet: Packet) -> Option<FinishedHandler> {
        match self.dispatch {
            Dispatch::InPlace | Dispatch::Ordered => self.start_in_place(cx, packet),
            Dispatch::Spawned | Dispatch::Limited(_) => {
                let (name, cost) = (packet.name(), cost(&packet));
                let (owned, arrived, timeout) = (self.owned(), self.connection.turn(), self.timeout_of(&packet));
                let (due, permit) =
                    (timeout.and_then(|timeout| arrived.checked_add(timeout)), self.permits.take_task_permit());
                self.handler_tasks += 1;
                self.held_len += cost;
                let task = self.tasks.spawn(async move {
                    let (router, connection) = &*owned;
                    // The task may have been delayed until its thread was free.
                    let outcome = if due.is_some_and(|due| due <= Instant::now().into_std()) {
                        let Packet { id, operation, .. } = packet;
                        router.refuse(RefusedPacket { id, operation, why: RefusalReason::Expired }, connection)
                    } else {
                        arrived_at(arrived, || router.route(packet, connection)).await
                    };
                    // Not left to the driver, which may learn of the end much later: others wait for the permit.
                    drop(permit);
                    FinishedTask::Handler(outcome, name, cost)
                });
                if self.may_withdraw {
                    self.by_name.insert(name, (task, cost));
                }
                None
            }
        }
    }

    /// Starts the handler of a stream. If there is a refusal, the handler only rejects the stream.
    ///
    /// A handler that is ready immediately never becomes a task.
    pub(super) fn start_stream(
        &mut self,
        cx: &mut Context<'_>,
        key: StreamKey,
        refusal: Option<RefusalReason>,
    ) -> Option<FinishedHandler> {
        let (owned, stream) = (self.owned(), Stream::new(self.connection.clone(), key));
        let mut handler = Box::pin(async move {
            let (router, connection) = &*owned;
            router.stream(stream, refusal, connection).await;
        });
        match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
            Ok(Poll::Ready(())) => {}
            Ok(Poll::Pending) => {
                self.tasks.spawn(async move {
                    handler.await;
                    FinishedTask::Stream
                });
            }
            Err(panic) => return Some(FinishedHandler::Panicked(panic_message(&*panic))),
        }
        None
    }

    /// Returns the result of the next finished handler.
    pub(super) fn poll_finished(&mut self, cx: &mut Context<'_>) -> Poll<FinishedHandler> {
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

/// Calls the router and catches a panic. State left by a panic belongs to the router, and the connection ends.
#[inline(always)]
fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, FinishedHandler> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| FinishedHandler::Panicked(panic_message(&*panic)))
}

/// Waits for all running handlers to end, and drops their results.
pub(super) async fn finish<R: Router, P: InPlaceRoute>(mut handlers: Handlers<'_, R, P>, kill: &CancellationToken) {
    let rest = poll_fn(|cx| {
        while !handlers.is_idle() {
            let finished = handlers.poll_finished(cx);
            // Release permits one by one, because other connections may wait for them.
            handlers.end_turn();
            // After a panic, there is no connection left to close.
            let _ = ready!(finished);
        }
        Poll::Ready(())
    });
    kill.run_until_cancelled(rest).await;
}

/// A handler in place that was not ready when first polled.
struct InPlaceHandler<F> {
    place: Pin<Box<Option<F>>>,
    /// Name and cost of its packet.
    name: PacketName,
    cost: usize,
    /// Wakes the handler after its packet is withdrawn.
    waker: Option<Waker>,
    is_withdrawn: bool,
}

impl<F: Future<Output = Outcome>> Future for InPlaceHandler<F> {
    type Output = (FinishedHandler, usize);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let polled = match catch_unwind(AssertUnwindSafe(|| match this.is_withdrawn {
            true => {
                this.place.set(None);
                Poll::Ready(FinishedHandler::Withdrawn(this.name))
            }
            false => poll_in(&mut this.place, cx).map(FinishedHandler::Handler),
        })) {
            Ok(polled) => polled,
            Err(panic) => Poll::Ready(FinishedHandler::Panicked(panic_message(&*panic))),
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

pub(super) fn panic_message(panic: &(dyn Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").into()
}
