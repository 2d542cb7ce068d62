//! Applying the results of handlers to a connection.

use tracing::error;

use super::handlers::Finished;
use crate::{
    CloseReason, Outcome, Packet, SendError,
    connection::{Core, Shared},
    proto,
};

impl Shared {
    /// Applies the result of a handler. Returns `true` if the queue of replies is full.
    #[inline]
    pub(super) fn apply(&self, finished: Finished) -> bool {
        match finished {
            // The handler may have sent a reply itself.
            Finished::Handler(Outcome::Nothing) => self.owes_replies(),
            finished => self.apply_locked(finished),
        }
    }

    #[inline(never)]
    fn apply_locked(&self, finished: Finished) -> bool {
        let mut core = self.core();
        core.apply(Some(finished));
        self.note_closing(&core);
        self.note_replies(&core)
    }
}

impl Core {
    /// Applies the result of a handler.
    pub(super) fn apply(&mut self, finished: Option<Finished>) {
        match finished {
            None | Some(Finished::Handler(Outcome::Nothing) | Finished::Stream) => {}
            Some(Finished::Handler(outcome)) => self.apply_outcome(outcome, proto::Connection::reply),
            Some(Finished::Refused(outcome)) => self.apply_outcome(outcome, proto::Connection::refuse),
            Some(Finished::Withdrawn(packet)) => self.proto.cancelled(packet),
            Some(Finished::Panicked(message)) => {
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
