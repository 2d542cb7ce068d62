//! Applying the results of handlers to a connection.

use tracing::error;

use super::handlers::FinishedHandler;
use crate::{
    CloseReason, Outcome, Packet, SendError,
    connection::{ConnectionCore, ConnectionShared},
    proto,
};

impl ConnectionShared {
    /// Applies the result of a handler. Returns `true` if the queue of replies is full.
    #[inline]
    pub(super) fn apply(&self, finished: FinishedHandler) -> bool {
        match finished {
            // The handler may have sent a reply itself.
            FinishedHandler::Handler(Outcome::Nothing) => self.owes_replies(),
            finished => self.apply_locked(finished),
        }
    }

    #[inline(never)]
    fn apply_locked(&self, finished: FinishedHandler) -> bool {
        let mut core = self.core();
        core.apply(Some(finished));
        self.note_closing(&core);
        self.note_replies(&core)
    }
}

impl ConnectionCore {
    /// Applies the result of a handler.
    pub(super) fn apply(&mut self, finished: Option<FinishedHandler>) {
        match finished {
            None | Some(FinishedHandler::Handler(Outcome::Nothing) | FinishedHandler::Stream) => {}
            Some(FinishedHandler::Handler(outcome)) => self.apply_outcome(outcome, proto::Connection::reply),
            Some(FinishedHandler::Refused(outcome)) => self.apply_outcome(outcome, proto::Connection::refuse),
            Some(FinishedHandler::Withdrawn(packet)) => self.proto.cancelled(packet),
            Some(FinishedHandler::Panicked(message)) => {
                error!(%message, "a handler panicked");
                self.proto.finish(CloseReason::HandlerPanicked(message));
            }
        }
    }

    fn apply_outcome(
        &mut self,
        outcome: Outcome,
        reply: impl Fn(&mut proto::Connection, Packet) -> Result<(), SendError>,
    ) {
        let (packet, closes) = match outcome {
            Outcome::Nothing => return,
            Outcome::Close => return self.proto.finish(CloseReason::Local),
            Outcome::Reply(packet) => (packet, false),
            Outcome::ReplyAndClose(packet) => (packet, true),
        };
        let replied = reply(&mut self.proto, packet);
        self.check_reply(replied);
        if closes {
            self.proto.finish(CloseReason::Local);
        }
    }
}
