//! The causes of frames, and the number of bytes of each among all bytes that are queued.

use std::{collections::VecDeque, ops::Range};

/// The cause of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// This side wants to.
    Local,
    /// A handler replied to the peer.
    Reply,
    /// The peer broke a limit, and no handler had a say.
    PeerInduced,
}

/// The bytes queued that have one cause: runs of such frames among the bytes of all frames ever queued.
#[derive(Debug, Default)]
pub(super) struct Share {
    runs: VecDeque<Range<u64>>,
    /// Bytes in the runs.
    pub(super) len: usize,
    queued: u64,
    written: u64,
}

impl Share {
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
