//! JSON-RPC over WebSocket. Each request, batch, answer, and notification is one WebSocket message.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use frpc::Drain;
use frpc_websocket::{CloseFrame, GOING_AWAY, MessageKind, TRY_AGAIN_LATER, WebSocket};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tracing::debug;

use crate::{
    calls::PeerCalls,
    outbox::{MessageFraming, MessageOutbox},
    request::read_whole,
    settings::{JsonRpcSettings, READ_AHEAD_LEN_MAX},
};

/// Serves calls until the WebSocket is closed.
pub(super) async fn serve(socket: WebSocket, calls: PeerCalls, settings: Arc<JsonRpcSettings>, drain: Option<Drain>) {
    let mut connection = WebSocketSession {
        socket,
        outbox: MessageOutbox::new(MessageFraming::Messages),
        calls,
        waiting: VecDeque::new(),
        waiting_len: 0,
        needs_room: None,
        is_draining: false,
        settings,
    };
    let mut requested = pin!(drain.iter().map(Drain::requested).collect::<FuturesUnordered<_>>());
    poll_fn(|cx| {
        if let Poll::Ready(Some(())) = requested.as_mut().poll_next_unpin(cx) {
            connection.is_draining = true;
            connection.calls.drain(&mut connection.outbox);
            connection.queue_answers();
        }
        connection.poll(cx)
    })
    .await;
}

struct WebSocketSession {
    socket: WebSocket,
    outbox: MessageOutbox,
    calls: PeerCalls,
    /// Received messages without room for their calls.
    waiting: VecDeque<Bytes>,
    waiting_len: usize,
    /// The number of calls of the first waiting message, if it had no room. It avoids parsing the message again too
    /// early.
    needs_room: Option<usize>,
    is_draining: bool,
    settings: Arc<JsonRpcSettings>,
}

impl WebSocketSession {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS_MAX {
            self.hold();
            let is_blocked = self.is_full() || !self.start_waiting(cx);
            let mut has_answered = false;
            while !self.is_full() && self.calls.poll(cx, &mut self.outbox).is_ready() {
                has_answered = true;
                self.queue_answers();
            }
            let was_full = self.is_full();
            if is_blocked || was_full {
                if let Poll::Ready(Err(_)) = self.socket.poll_flush(cx) {
                    return Poll::Ready(());
                }
                if has_answered || was_full && !self.is_full() {
                    continue;
                }
                // While calls have no room, read ahead a little: otherwise the disconnect of a peer would go unnoticed,
                // and its calls would keep running. With a full write queue, read nothing: a write error reveals the
                // disconnect.
                if self.is_full() || self.waiting_len >= READ_AHEAD_LEN_MAX {
                    return Poll::Pending;
                }
            }
            match self.socket.poll_message(cx) {
                Poll::Ready(Some(Ok(message))) => {
                    self.waiting_len += message.data.len() + MESSAGE_COST;
                    self.waiting.push_back(message.data);
                }
                Poll::Ready(Some(Err(error))) => {
                    debug!(%error, "JSON-RPC WebSocket ended");
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                // All calls have been answered, so the connection can be closed.
                Poll::Pending if self.is_draining && self.calls.is_idle() && self.socket.is_open() => {
                    self.socket.close(CloseFrame::new(GOING_AWAY, "the server closes this connection"));
                }
                // The HTTP wire closes connections of peers that do not read.
                Poll::Pending if self.hold() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reserves memory for waiting messages and a part of the next one, or refuses all of them. Returns `true` if it refused
    /// the part, which ends the connection.
    fn hold(&mut self) -> bool {
        if let Err(status) = self.calls.hold(self.waiting_len + self.socket.received_len()) {
            for _ in self.waiting.drain(..) {
                self.calls.refuse_with_status(&status, &mut self.outbox);
            }
            (self.waiting_len, self.needs_room) = (0, None);
            let is_partial = self.socket.received_len() > 0;
            if is_partial {
                self.calls.refuse_with_status(&status, &mut self.outbox);
            }
            self.queue_answers();
            if is_partial {
                self.socket.refuse(CloseFrame::new(TRY_AGAIN_LATER, status.message()));
                return true;
            }
        }
        false
    }

    fn is_full(&self) -> bool {
        self.socket.queued() >= self.settings.answers_len_max
    }

    /// Moves answers to the write queue of the WebSocket.
    fn queue_answers(&mut self) {
        self.outbox.take_messages(|message| self.socket.queue(MessageKind::Text, message));
    }

    /// Starts the calls of waiting messages. Returns `true` if none is left.
    fn start_waiting(&mut self, cx: &mut Context<'_>) -> bool {
        while let Some(bytes) = self.waiting.front() {
            if self.is_full() || self.needs_room.is_some_and(|needed| !self.calls.has_room(needed)) {
                return false;
            }
            match read_whole(bytes, self.settings.limits()) {
                Ok(message) if !self.calls.has_room(message.len()) => {
                    self.needs_room = Some(message.len());
                    return false;
                }
                Ok(message) => self.calls.start(message, bytes.len(), cx, &mut self.outbox),
                Err(why) => self.calls.refuse(&why, &mut self.outbox),
            }
            self.needs_room = None;
            self.waiting_len -= bytes.len() + MESSAGE_COST;
            self.waiting.pop_front();
            self.queue_answers();
        }
        true
    }
}

/// The memory of a message in addition to its bytes.
const MESSAGE_COST: usize = 64;

/// The maximum number of rounds before yielding to other tasks.
const ROUNDS_MAX: usize = 64;
