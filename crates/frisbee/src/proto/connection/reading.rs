//! The receiving half of a connection: the decoder, contents in pieces, and discarded contents.

use std::time::Duration;

use crate::{
    clock::Instant,
    proto::{decoder::Decoder, heartbeat::sooner, pieces::PieceAssembly},
};

/// The decoder and the deadlines of the input.
#[derive(Debug)]
pub(super) struct ReadHalf {
    pub(super) decoder: Decoder,
    /// The current content in pieces, and the buffer of the previous one.
    assembly: Option<Box<PieceAssembly>>,
    /// The oversized content being discarded, and its deadline.
    discarding: Option<DiscardedContent>,
    /// The time at which this side stopped reading.
    paused: Option<Instant>,
    /// The time for copying unread stream contents out of the read buffers they pin.
    detach_due: Option<Instant>,
}

#[derive(Debug)]
struct DiscardedContent {
    announced: u32,
    due: Option<Instant>,
}

impl ReadHalf {
    pub(super) fn new(decoder: Decoder) -> Self {
        Self { decoder, assembly: None, discarding: None, paused: None, detach_due: None }
    }

    /// Returns `true` while a content is arriving in pieces.
    pub(super) fn has_pieces(&self) -> bool {
        self.assembly.as_ref().is_some_and(|assembly| assembly.is_under_way())
    }

    pub(super) fn assembly(&mut self) -> &mut PieceAssembly {
        self.assembly.get_or_insert_default()
    }

    /// Records the start of an oversized content, to be discarded within `time_max`.
    pub(super) fn begin_discard(&mut self, now: Instant, announced: u32, time_max: Duration) {
        self.discarding = Some(DiscardedContent { announced, due: now.checked_add(time_max) });
    }

    pub(super) fn end_discard(&mut self) {
        self.discarding = None;
    }

    fn discard_due(&self) -> Option<Instant> {
        self.discarding.as_ref().filter(|_| self.paused.is_none())?.due
    }

    /// Returns the announced length of a content that was not discarded in time.
    pub(super) fn overdue(&self, now: Instant) -> Option<u32> {
        self.discard_due().filter(|due| *due <= now)?;
        self.discarding.as_ref().map(|discarding| discarding.announced)
    }

    /// Records that this side pauses or resumes reading. A pause extends the deadline of a discard.
    pub(super) fn set_reading(&mut self, now: Instant, reading: bool) {
        if !reading {
            self.paused.get_or_insert(now);
        } else if let Some(since) = self.paused.take()
            && let Some(DiscardedContent { due: Some(due), .. }) = &mut self.discarding
        {
            *due += now.saturating_duration_since(since);
        }
    }

    /// Records stream data, a slice of a read buffer.
    pub(super) fn handle_stream_data(&mut self, now: Instant) {
        self.detach_due.get_or_insert(now + DETACH_AFTER);
    }

    /// Frees unused memory. Returns `true` if unread stream contents should be copied out of their read buffers.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        if let Some(assembly) = &mut self.assembly {
            assembly.release();
        }
        self.detach_due.take_if(|due| *due <= now).is_some()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        sooner(self.discard_due(), self.detach_due)
    }

    /// Ends the deadlines of a connection that reads no more.
    pub(super) fn close(&mut self) {
        self.detach_due = None;
        self.discarding = None;
    }
}

/// The longest time an unread small content pins the read buffer it is a slice of.
const DETACH_AFTER: Duration = Duration::from_millis(500);
