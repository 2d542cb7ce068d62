//! The shutdown of a connection: draining, finishing and failing.

use super::Connection;
use crate::{
    CloseReason,
    proto::{
        control::{Control, GoAway},
        hello::Features,
    },
};

impl Connection {
    /// Returns the close reason of a closed connection.
    pub fn closed(&self) -> Option<&CloseReason> {
        self.lifecycle.closed()
    }

    /// Returns the close reason of a closed or closing connection, after [`finish`](Self::finish) or
    /// [`fail`](Self::fail).
    pub fn finishing(&self) -> Option<&CloseReason> {
        self.lifecycle.finishing()
    }

    /// Returns `true` if the connection accepts packets for sending.
    pub fn is_open(&self) -> bool {
        self.lifecycle.is_open()
    }

    /// Returns `true` after [`finish`](Self::finish) or [`fail`](Self::fail). Input is then ignored.
    pub fn is_finishing(&self) -> bool {
        !self.is_open()
    }

    /// Returns `true` after [`drain`](Self::drain), until [`finish`](Self::finish) or [`fail`](Self::fail).
    pub fn is_draining(&self) -> bool {
        self.lifecycle.is_draining()
    }

    /// Returns the close reason of a connection to be [finished](Self::finish) once it is idle.
    ///
    /// Such a connection is draining, or is retiring with a peer that has not been recognized.
    pub fn closes_when_idle(&self) -> Option<&CloseReason> {
        self.lifecycle.closes_when_idle()
    }

    /// Asks the peer to start nothing new on this connection. Returns `false` if it does not support GOAWAY.
    pub fn go_away(&mut self, goaway: GoAway) -> bool {
        if !self.is_open() || !self.uses(Features::GOAWAY) {
            return false;
        }
        if self.lifecycle.begin_to_go_away() {
            self.writing.outbox.push_control(&Control::GoAway(goaway));
        }
        true
    }

    /// Starts a gentle shutdown.
    ///
    /// A peer that [leaves](Features::LEAVES) is asked to do so, and its packets are handled until then. For any
    /// other peer, the connection [drains](Self::drain) immediately, after a GOAWAY if supported. An unknown peer
    /// is asked once it is recognized.
    pub fn retire(&mut self, goaway: GoAway) {
        if self.negotiation.is_unknown() && self.is_open() && !self.is_draining() {
            self.lifecycle.retiring = Some(goaway);
            return;
        }
        self.go_away(goaway);
        if !self.uses(Features::GOAWAY.with(Features::LEAVES)) {
            self.drain(CloseReason::Shutdown);
        }
    }

    /// Returns `true` if the peer asked this side to start nothing new.
    pub fn is_asked_to_leave(&self) -> bool {
        self.lifecycle.is_asked_to_leave
    }

    /// Starts a shutdown: new packets and streams of the peer still arrive, but must not reach a handler.
    ///
    /// Sending goes on. `reason` is for the later [`finish`](Self::finish), once the connection is idle.
    pub fn drain(&mut self, reason: CloseReason) {
        self.lifecycle.drain(reason);
    }

    /// Stops reading and accepting packets, and closes after writing all queued packets.
    pub fn finish(&mut self, reason: CloseReason) {
        if !self.is_open() {
            return;
        }
        self.streams.end_all();
        self.reading.close();
        self.writing.outbox.drop_ping();
        self.writing.send_without_pongs();
        self.negotiation.take_hello();
        // A silent peer has not shown its format, but must still get the queued packets.
        self.writing.outbox.set_format(self.format_or_fallback());
        self.lifecycle.finish(reason, self.writing.outbox.is_empty());
    }

    /// Closes immediately. Queued packets are lost. A closed connection keeps its first reason.
    pub fn fail(&mut self, reason: CloseReason) {
        if self.closed().is_none() {
            self.streams.end_all();
            self.reading.close();
            self.writing.clear();
            self.lifecycle.fail(reason);
        }
    }
}
