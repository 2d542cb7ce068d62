//! The causes of frames, and the number of queued bytes per cause.

use std::{collections::VecDeque, ops::Range};

/// The cause of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameCause {
    /// A request of this side.
    Local,
    /// A handler replied to the peer.
    Reply,
    /// Input alone, without a handler: a refusal, or the close of a refused stream.
    PeerInduced,
}

/// The queued bytes with a common cause, stored as ranges within the bytes of all frames ever queued.
#[derive(Debug, Default)]
pub(super) struct QueuedBytes {
    runs: VecDeque<Range<u64>>,
    /// The total length of the runs in bytes.
    pub(super) len: usize,
    queued: u64,
    written: u64,
}

impl QueuedBytes {
    /// Counts a queued frame. `belongs` is `true` for frames of this cause.
    pub(super) fn handle_queued(&mut self, len: usize, belongs: bool) {
        let start = self.queued;
        self.queued += len as u64;
        if !belongs {
            return;
        }
        self.len += len;
        match self.runs.back_mut() {
            Some(run) if run.end == start => run.end = self.queued,
            _ => self.runs.push_back(start..self.queued),
        }
    }

    /// Removes written bytes, in the order of their queuing.
    pub(super) fn handle_written(&mut self, len: usize) {
        self.written += len as u64;
        while let Some(run) = self.runs.front_mut()
            && run.start < self.written
        {
            let written = run.end.min(self.written) - run.start;
            run.start += written;
            self.len -= usize::try_from(written).expect("no more is written at once than fits the memory");
            if run.is_empty() {
                self.runs.pop_front();
            }
        }
    }
}
