//! The life of a connection, from open to closed, and the requests to leave.

use crate::{CloseReason, proto::control::GoAway};

/// The state of a connection, and the GOAWAY frames of both sides.
#[derive(Debug)]
pub(super) struct Lifecycle {
    state: ConnectionState,
    /// The GOAWAY of a shutdown that began before the peer was recognized.
    pub(super) retiring: Option<GoAway>,
    /// `true` once a GOAWAY was sent.
    is_going_away: bool,
    /// `true` once the peer sent a GOAWAY.
    pub(super) is_asked_to_leave: bool,
}

/// The state of a connection, with the reason of its end.
///
/// ```text
///   Open ──drain()──▶ Draining ──finish()──▶ Finishing ──all written──▶ Closed
///     ├───retire()──────▲                      ▲                         ▲
///     ├──────────────finish()──────────────────┤                         │
///     └──any──fail()─────────────────────────────────────────────────────┘
/// ```
#[derive(Debug)]
enum ConnectionState {
    Open,
    /// Running handlers may still send, but the peer gets no new handler. Contains the reason for the later close.
    Draining(CloseReason),
    /// Queued packets are being written. Nothing is read, and no new packets are accepted.
    Finishing(CloseReason),
    Closed(CloseReason),
}

impl Lifecycle {
    pub(super) fn new() -> Self {
        Self { state: ConnectionState::Open, retiring: None, is_going_away: false, is_asked_to_leave: false }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Open | ConnectionState::Draining(_))
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state, ConnectionState::Draining(_))
    }

    pub(super) fn closed(&self) -> Option<&CloseReason> {
        match &self.state {
            ConnectionState::Closed(reason) => Some(reason),
            _ => None,
        }
    }

    pub(super) fn finishing(&self) -> Option<&CloseReason> {
        match &self.state {
            ConnectionState::Open | ConnectionState::Draining(_) => None,
            ConnectionState::Finishing(reason) | ConnectionState::Closed(reason) => Some(reason),
        }
    }

    pub(super) fn closes_when_idle(&self) -> Option<&CloseReason> {
        match &self.state {
            ConnectionState::Draining(reason) => Some(reason),
            ConnectionState::Open if self.retiring.is_some() => Some(&CloseReason::Shutdown),
            _ => None,
        }
    }

    /// Records that a GOAWAY is sent. Returns `true` for the first one.
    pub(super) fn begin_to_go_away(&mut self) -> bool {
        !std::mem::replace(&mut self.is_going_away, true)
    }

    pub(super) fn drain(&mut self, reason: CloseReason) {
        self.retiring = None;
        if matches!(self.state, ConnectionState::Open) {
            self.state = ConnectionState::Draining(reason);
        }
    }

    /// Starts the end of an open connection. It closes immediately if everything is written.
    pub(super) fn finish(&mut self, reason: CloseReason, is_written: bool) {
        self.state = if is_written { ConnectionState::Closed(reason) } else { ConnectionState::Finishing(reason) };
    }

    /// Closes a finishing connection, because everything is written.
    #[cold]
    pub(super) fn handle_all_written(&mut self) {
        if let ConnectionState::Finishing(reason) = &self.state {
            self.state = ConnectionState::Closed(reason.clone());
        }
    }

    pub(super) fn fail(&mut self, reason: CloseReason) {
        self.state = ConnectionState::Closed(reason);
    }
}
