//! The states of a driver's input, output and shutdown.

use std::{io, sync::Arc};

use tokio::time::Instant;

use crate::{CloseReason, ProtocolError, clock};

/// The state of the peer's input. The end takes effect when the backlog is empty.
///
/// ```text
///   Open ──read error──▶ Failing ──nothing left to read──▶ Failed
///     ├──end of the stream──▶ Closed      Open, Failing ──write error──▶ Failed
///     └──bad frame──▶ Broken
/// ```
#[repr(u8)] // A tag of its own is cheaper to test than a niche in the payload.
pub(super) enum InputState {
    Open,
    /// A read failed. Data decrypted before the error, as by TLS, is read first.
    Failing(io::Error),
    Closed(CloseReason),
    Broken(ProtocolError),
    Failed(Arc<io::Error>),
}

impl InputState {
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self, Self::Open | Self::Failing(_))
    }

    #[inline]
    pub(super) fn is_failing(&self) -> bool {
        matches!(self, Self::Failing(_))
    }
}

/// The pace of reading.
///
/// ```text
///   UpToDate ──no room──▶ Paused ◀──room or no room──▶ CatchingUp
///      ◀──────────────────nothing left to read─────────────┘
/// ```
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum ReadPace {
    UpToDate,
    /// Reading has paused for lack of room. Contains the time of the first pause.
    Paused(clock::Instant),
    /// Reading continues after a pause.
    CatchingUp(clock::Instant),
}

impl ReadPace {
    #[inline]
    pub(super) fn is_reading(self) -> bool {
        !matches!(self, Self::Paused(_))
    }

    /// Returns the time of the first pause since the input was last read completely.
    pub(super) fn behind_since(self) -> Option<clock::Instant> {
        match self {
            Self::UpToDate => None,
            Self::Paused(since) | Self::CatchingUp(since) => Some(since),
        }
    }

    /// Returns the pace after a decision to read or to pause.
    pub(super) fn after(self, may_read: bool, now: clock::Instant) -> Self {
        match (may_read, self.behind_since()) {
            (true, None) => Self::UpToDate,
            (true, Some(since)) => Self::CatchingUp(since),
            (false, since) => Self::Paused(since.unwrap_or(now)),
        }
    }
}

/// The state of the socket's output.
///
/// ```text
///   Flushed ◀──▶ Unflushed ──write error──▶ Failed
///      └───────────────────────────────────────▲
/// ```
#[repr(u8)]
pub(super) enum OutputState {
    Flushed,
    Unflushed,
    /// Bytes already received are read before the connection ends.
    Failed(Arc<io::Error>),
}

/// The intention to close the connection when it is idle, as of the last look at the core.
///
/// ```text
///   Off ◀──▶ WhenIdle ◀──rest of a packet missing──▶ RestBy
///      ◀─────────────────────────────────────────────────┘
/// ```
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum IdleClose {
    Off,
    WhenIdle,
    /// Contains the deadline for the rest of a partially received packet.
    RestBy(Instant),
}

impl IdleClose {
    #[inline]
    pub(super) fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Records the intention of the core. Returns `true` if it changed.
    #[inline]
    pub(super) fn update(&mut self, closes_when_idle: bool) -> bool {
        if self.is_on() == closes_when_idle {
            return false;
        }
        *self = if closes_when_idle { Self::WhenIdle } else { Self::Off };
        true
    }

    /// Returns the deadline for the rest of a packet.
    pub(super) fn rest_due(self) -> Option<Instant> {
        match self {
            Self::RestBy(due) => Some(due),
            Self::Off | Self::WhenIdle => None,
        }
    }
}
