//! Allowances: the control packets and CANCEL frames that each side may send.

use crate::{Config, ProtocolError, clock::Instant, proto::budget::TokenBucket};

/// The tokens for control packets, and the number of answers that take none.
#[derive(Debug)]
pub(super) struct Allowances {
    control: TokenBucket,
    /// The tokens for CANCEL frames of the peer and of this side.
    cancels_in: TokenBucket,
    cancels_out: TokenBucket,
    /// The number of answers that frames of this side may still cause, by [`Answer`].
    expected: [u64; 3],
}

/// A frame of the peer caused by a frame of this side.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// CANCELLED, once for each CANCEL.
    Cancelled,
    /// The close of a stream, once for each stream packet.
    Close,
    /// CREDIT, once for each stream packet.
    Credit,
}

impl Allowances {
    pub(super) fn new(now: Instant, config: &Config) -> Self {
        Self {
            control: TokenBucket::new(now, config.control_burst),
            cancels_in: TokenBucket::new(now, config.cancel_burst),
            cancels_out: TokenBucket::new(now, 0),
            expected: [0; 3],
        }
    }

    /// Sets the burst of CANCEL frames announced by the peer.
    pub(super) fn set_cancel_burst(&mut self, now: Instant, burst: u32) {
        // Uses half of the peer's allowance, because frames may arrive closer together than they were sent.
        self.cancels_out = TokenBucket::new(now, burst / 2);
    }

    /// Returns tokens for a packet with content from the peer.
    pub(super) fn earn_packet(&mut self) {
        self.control.earn();
        self.cancels_out.earn();
    }

    /// Returns a token for a stream packet or a piece from the peer.
    pub(super) fn earn_data(&mut self) {
        self.control.earn();
    }

    /// Returns tokens for packets of this side.
    #[inline]
    pub(super) fn earn_sent(&mut self, packets: usize) {
        self.cancels_in.earn_several(packets);
    }

    /// Takes a token for a control packet of the peer.
    pub(super) fn spend(&mut self, now: Instant) -> Result<(), ProtocolError> {
        if self.control.spend(now) { Ok(()) } else { Err(ProtocolError::ControlFlood { burst: self.control.burst() }) }
    }

    /// Takes a token for a CANCEL of the peer.
    pub(super) fn spend_cancel(&mut self, now: Instant) -> Result<(), ProtocolError> {
        if self.cancels_in.spend(now) {
            Ok(())
        } else {
            Err(ProtocolError::CancelFlood { burst: self.cancels_in.burst() })
        }
    }

    /// Takes a token for a CANCEL of this side, and expects its answer. Returns `false` if there is none.
    pub(super) fn spend_own_cancel(&mut self, now: Instant) -> bool {
        let may_cancel = self.cancels_out.spend(now);
        if may_cancel {
            self.expect(Answer::Cancelled);
        }
        may_cancel
    }

    /// Records a frame of this side that may cause an answer.
    pub(super) fn expect(&mut self, answer: Answer) {
        self.expected[answer as usize] += 1;
    }

    /// Takes a token for an answer of the peer, unless a frame of this side may have caused it.
    pub(super) fn handle_answer(&mut self, now: Instant, answer: Answer) -> Result<(), ProtocolError> {
        let expected = &mut self.expected[answer as usize];
        match expected.checked_sub(1) {
            Some(left) => {
                *expected = left;
                Ok(())
            }
            None => self.spend(now),
        }
    }
}
