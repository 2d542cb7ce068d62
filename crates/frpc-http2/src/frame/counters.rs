//! Counters of frames, and the buffer for written frames, with a count of each.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

/// Whole frames of a connection by type, its streams and its credit. Other threads can read them while the connection counts.
#[derive(Debug, Default)]
pub struct FrameCounters {
    received: [AtomicU64; NAMES.len()],
    sent: [AtomicU64; NAMES.len()],
    streams: AtomicU32,
    queued: AtomicU32,
    send_window: AtomicI32,
    receive_window: AtomicI32,
}

/// Open streams and credit of a connection, as of its last [update](crate::Connection::update_flow).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionFlow {
    /// Open and half-closed streams.
    pub streams: u32,
    /// Bytes of queued data, also of streams with a closed window.
    pub queued: u32,
    /// The window of the connection for sending, in bytes.
    pub send_window: i32,
    /// The window of the connection for the peer, in bytes.
    pub receive_window: i32,
}

/// Frames of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameCount {
    /// The name of RFC 9113, such as `WINDOW_UPDATE`. `_OTHER` stands for the types of extensions.
    pub kind: &'static str,
    /// Received frames, also invalid ones.
    pub received: u64,
    /// Frames queued for writing.
    pub sent: u64,
}

impl FrameCounters {
    /// Returns the count of each type.
    pub fn counts(&self) -> impl Iterator<Item = FrameCount> {
        let counts = NAMES.into_iter().zip(&self.received).zip(&self.sent);
        counts.map(|((kind, received), sent)| FrameCount {
            kind,
            received: received.load(Relaxed),
            sent: sent.load(Relaxed),
        })
    }

    /// Returns the streams and the credit.
    pub fn flow(&self) -> ConnectionFlow {
        ConnectionFlow {
            streams: self.streams.load(Relaxed),
            queued: self.queued.load(Relaxed),
            send_window: self.send_window.load(Relaxed),
            receive_window: self.receive_window.load(Relaxed),
        }
    }

    #[inline]
    pub(crate) fn set_flow(&self, flow: ConnectionFlow) {
        self.streams.store(flow.streams, Relaxed);
        self.queued.store(flow.queued, Relaxed);
        self.send_window.store(flow.send_window, Relaxed);
        self.receive_window.store(flow.receive_window, Relaxed);
    }

    /// Counts received frames of a type. Only the thread of the connection counts, so no increment is lost.
    #[inline]
    pub(crate) fn receive(&self, kind: u8, frames: u64) {
        add(&self.received, kind, frames);
    }
}

#[inline]
fn add(counts: &[AtomicU64; NAMES.len()], kind: u8, frames: u64) {
    let count = &counts[usize::from(kind).min(OTHER)];
    count.store(count.load(Relaxed) + frames, Relaxed);
}

/// Bytes of frames, and the counters for them.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) counters: Arc<FrameCounters>,
}

impl FrameBuffer {
    /// Counts a frame of this type.
    #[inline]
    pub(crate) fn count(&self, kind: u8) {
        add(&self.counters.sent, kind, 1);
    }
}

impl Deref for FrameBuffer {
    type Target = Vec<u8>;

    #[inline]
    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for FrameBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

/// The types of RFC 9113 by number.
const NAMES: [&str; 11] = [
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RST_STREAM",
    "SETTINGS",
    "PUSH_PROMISE",
    "PING",
    "GOAWAY",
    "WINDOW_UPDATE",
    "CONTINUATION",
    "_OTHER",
];
const OTHER: usize = NAMES.len() - 1;
