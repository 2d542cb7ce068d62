//! Services on frisbee connections: recognizes packets and streams that are calls, and answers them.

use std::{
    error::Error,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use frisbee::{
    Arrivals, Connection, Event, Operation, Outcome, Packet, PacketName, RefusalReason, RefusedPacket, Router,
    RouterInfo, SendOrder, Stream,
};
use futures_util::future::Either;
use tokio::time::Instant;

use super::{
    super::{
        bytes::{
            envelope,
            hello::{LocalHello, PART_NAME},
            stream_framing::{self, StreamFraming},
        },
        calling::{pending::PendingCalls, table::NoAnswer},
        message_streams,
        peer::{LocalSettings, PeerState},
    },
    failures::{failed, no_method},
    streams::StreamOpening,
};
use crate::{
    call::method::MethodKind,
    codec,
    error::ServerCause,
    service::{
        services::{Services, Unimplemented},
        set::ServiceSet,
        table::MethodEntry,
    },
};

impl<S: ServiceSet, R: Router> Services<S, R> {
    /// Passes packets and streams other than calls to this router.
    ///
    /// With [`Unimplemented`] as its last fallback, calls to unknown methods still get an answer.
    pub fn over<T: Router>(self, fallback: T) -> Services<S, T> {
        self.with_fallback(fallback)
    }

    /// Returns `true` if a packet is a request, not an answer.
    #[inline]
    fn is_request(&self, packet: &Packet) -> bool {
        match packet.operation {
            Operation::EXTENDED => !envelope::is_answer(&packet.content),
            operation => self.serves(operation.number()),
        }
    }

    /// Completes calls with answers from the front of `packets`, and lets the fallback router take its own packets.
    pub(crate) fn intercept_answers(
        &self,
        calls: Option<&PendingCalls>,
        packets: &mut Arrivals<'_>,
        connection: &Connection,
    ) {
        let is_own = |packet: &Packet| {
            let has_called = || calls.is_some_and(|calls| calls.has_called(packet.operation));
            packet.operation == Operation::EXTENDED || self.serves(packet.operation.number()) || has_called()
        };
        loop {
            let is_alone = packets.size_hint().1 == Some(1);
            let mut next = || packets.next_if(|packet| !self.is_request(packet));
            let rest = match calls {
                None => next(),
                Some(calls) if is_alone => next().and_then(|packet| calls.complete(packet)),
                Some(calls) => calls.complete_several(next),
            };
            let Some(rest) = rest else { return };
            // An answer to a call that nobody remembers.
            if rest.operation == Operation::EXTENDED {
                continue;
            }
            packets.put_back(rest);
            packets.lend_until(&is_own, |packets| self.fallback.intercept(packets, connection));
            // The router below wants to route what it left.
            if packets.peek().is_some_and(|packet| !is_own(packet)) {
                return;
            }
        }
    }

    pub(crate) fn serves(&self, operation: u16) -> bool {
        self.table().contains(operation)
    }

    /// Returns the frpc part of this side's HELLO. `timeout` is the default timeout of calls from this side.
    pub(crate) fn hello_part(&self, timeout: Option<Duration>) -> Bytes {
        let metadata_len_max = self.metadata_max().try_into().unwrap_or(u32::MAX);
        LocalHello {
            metadata_len_max,
            calls_max: self.common.calls.calls_max,
            timeout,
            inflates: self.common.compression.accepted(),
            methods: self.table(),
        }
        .encode()
    }

    /// Returns the settings of this side for connections.
    pub(crate) fn local_settings(&self) -> Arc<LocalSettings> {
        let (serves, metadata_max, compressing) =
            (self.table().clone(), self.metadata_max(), self.common.compression.clone());
        Arc::new(LocalSettings {
            serves,
            metadata_max,
            compressing,
            accepts_narrowing: self.common.messages.accept_narrowing,
        })
    }

    /// Attaches the state to a connection, before the fallback router learns of the connection and may make calls on
    /// it.
    pub(crate) fn open(&self, connection: &Connection, calls: OnceLock<Arc<PendingCalls>>) {
        PeerState::attach(self.local_settings(), connection, calls);
        self.fallback.event(connection, Event::Opened);
    }

    /// Handles an event for calls. Returns `true` if the fallback router needs it as well.
    fn handle_event(&self, connection: &Connection, event: Event<'_>) -> bool {
        if let Event::Opened = event {
            self.open(connection, OnceLock::new());
            return false;
        }
        let Some(state) = PeerState::of(connection) else { return true };
        match event {
            Event::Recognized(_) => {
                let hello = PeerState::hello_on(connection);
                if let Some(calls_max) = hello.and_then(|hello| hello.calls_max) {
                    state.calls.get_or_init(Arc::default).limit_to(calls_max);
                }
            }
            Event::GoingAway(why) => state.calls.get_or_init(Arc::default).go_away(why.clone()),
            Event::Withdrawn(PacketName { id, operation }) => {
                let calls = state.calls.get();
                return !calls.is_some_and(|calls| calls.fail(id, operation, NoAnswer::TimedOut));
            }
            Event::Closed(reason) => {
                if let Some(calls) = state.calls.get() {
                    calls.close(state.number, reason);
                }
            }
            _ => {}
        }
        true
    }
}

impl<S: ServiceSet, R: Router> Router for Services<S, R> {
    fn fallback(&self) -> &impl Router {
        &self.fallback
    }

    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        self.complete()?;
        let below = self.fallback.describe()?;
        // Calls are independent of each other.
        let send_order = if below.send_order == SendOrder::Unused { SendOrder::Relaxed } else { below.send_order };
        Ok(RouterInfo { send_order, ..below }.with_part(PART_NAME, self.hello_part(None)))
    }

    #[inline]
    fn event(&self, connection: &Connection, event: Event<'_>) {
        if matches!(event, Event::Received) {
            self.common.end_turn(|| connection.nanos_in_turn());
        }
        if matches!(event, Event::Received | Event::Writable) || self.handle_event(connection, event) {
            self.fallback.event(connection, event);
        }
    }

    #[inline]
    fn intercept(&self, packets: &mut Arrivals<'_>, connection: &Connection) {
        // The common case on a server.
        if packets.peek().is_some_and(|packet| self.is_request(packet)) {
            return;
        }
        let calls = PeerState::of(connection).and_then(|state| state.calls.get());
        self.intercept_answers(calls.map(|calls| &**calls), packets, connection);
    }

    // Not an async function: its state would contain another copy of each argument.
    #[inline(always)]
    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send {
        match self.table().find(packet.operation.number()) {
            Some(entry) if self.common.is_unlimited && entry.method.kind == MethodKind::Unary => {
                Either::Left(self.serve_plain(entry, packet.name(), packet.content, connection))
            }
            entry => {
                // The timeout of a queued packet counts from its arrival.
                let arrived = Instant::from_std(connection.turn());
                let is_in_turn = connection.routes_in_turn();
                Either::Right(async move {
                    match entry {
                        // Boxed, so that calls without a limit use no memory for this future.
                        Some(entry) => {
                            Box::pin(self.serve_limited(entry, packet, arrived, is_in_turn, connection)).await
                        }
                        None if packet.operation == Operation::EXTENDED => {
                            self.serve_extended(packet, arrived, is_in_turn, connection).await
                        }
                        None => self.fallback.route(packet, connection).await,
                    }
                })
            }
        }
    }

    fn refuse(&self, refused: RefusedPacket, connection: &Connection) -> Outcome {
        let RefusedPacket { id, operation, why, .. } = refused;
        // Any packet that is neither extended nor of a served operation may itself be a reply. Replying to it could make the two sides
        // reply to each other forever.
        let is_extended = operation == Operation::EXTENDED;
        if !self.serves(operation.number()) {
            let state = PeerState::of(connection);
            if let RefusalReason::TooLarge { announced, limit } = why
                && let Some(calls) = state.and_then(|state| state.calls.get())
                && calls.fail(id, operation, NoAnswer::TooLarge { announced, limit })
            {
                return Outcome::Nothing;
            }
            // Replies were intercepted or handled above, so this is a request.
            if !is_extended {
                return self.fallback.refuse(refused, connection);
            }
        }
        Outcome::Reply(failed(PacketName { id, operation }, &ServerCause::Refused(why).into(), connection))
    }

    fn awaited(&self, connection: &Connection) -> usize {
        let state = PeerState::of(connection);
        let calls = state.and_then(|state| state.calls.get()).map_or(0, |calls| calls.len());
        self.fallback.awaited(connection).saturating_add(calls)
    }

    fn packet_timeout(&self, packet: &Packet, connection: &Connection) -> Option<Duration> {
        let (operation, said) = match packet.operation {
            Operation::EXTENDED => envelope::timeout_of(&packet.content)?,
            operation => (operation.number(), None),
        };
        let Some(MethodEntry { method, .. }) = self.table().find(operation) else {
            return self.fallback.packet_timeout(packet, connection);
        };
        let arrived = Instant::from_std(connection.turn());
        let time = self.common.calls.time_of(method, said.or_else(|| PeerState::announced(connection)), || arrived)?;
        Some(time.at()?.saturating_duration_since(arrived.into_std()))
    }

    async fn stream(&self, mut stream: Stream, refusal: Option<RefusalReason>, connection: &Connection) {
        let Ok(first) = stream.peek().await else { return };
        match (self.opening(&first, connection), refusal) {
            (Some(Ok(StreamOpening { framing, .. }) | Err((framing, _))), Some(why)) => {
                message_streams::refuse(framing, stream, &ServerCause::Refused(why).into()).await;
            }
            (Some(Ok(opening)), None) => {
                stream.defer_close();
                self.serve_stream(opening, stream, connection).await;
            }
            (Some(Err((framing, status))), None) => message_streams::refuse(framing, stream, &status.into()).await,
            // The second end marker of a finished call.
            (None, _) if stream_framing::is_end(&first) => stream.defer_close(),
            (None, _) => self.fallback.stream(stream, refusal, connection).await,
        }
    }
}

impl Router for Unimplemented {
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        Ok(RouterInfo { send_order: SendOrder::Relaxed, ..RouterInfo::default() })
    }

    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // Replying to a reply is useless, and the two sides would reply to each other forever.
        if codec::is_error(&packet.content) {
            return Outcome::Nothing;
        }
        let content = no_method(packet.operation.number()).encode().into();
        Outcome::Reply(Packet { content, ..packet })
    }

    fn refuse(&self, refused: RefusedPacket, connection: &Connection) -> Outcome {
        let RefusedPacket { id, operation, why: RefusalReason::TooLarge { .. }, .. } = refused else {
            return Outcome::Nothing;
        };
        // If the packet was a reply, the peer receives a small error, to which it does not reply.
        let name = PacketName { id, operation };
        Outcome::Reply(failed(name, &no_method(operation.number()).into(), connection))
    }

    async fn stream(&self, mut stream: Stream, refusal: Option<RefusalReason>, _: &Connection) {
        if refusal.is_some() {
            return;
        }
        let Ok(first) = stream.peek().await else { return };
        if let Some(operation) = stream_framing::parse_open(&first) {
            message_streams::refuse(StreamFraming::Plain, stream, &no_method(operation).into()).await;
        }
    }
}
