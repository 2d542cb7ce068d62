//! Negotiation: the HELLO of both sides, and the features that both support.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Config,
    proto::hello::{Features, Hello, PeerProtocol},
};

/// The role of a side in its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// The announcements of both sides.
#[derive(Debug)]
pub(super) struct Negotiation {
    pub(super) role: Role,
    /// The HELLO of this side, until it is sent.
    own_hello: Option<Hello>,
    pub(super) peer: PeerProtocol,
    /// `true` if packets of this side may overtake contents in pieces.
    pub(super) interleaves: bool,
}

impl Negotiation {
    pub(super) fn new(role: Role, config: &Config) -> Self {
        let (own_hello, peer) = match config.extended {
            true => (Some(Hello::new(config)), PeerProtocol::Unknown),
            false => (None, PeerProtocol::Plain),
        };
        Self { role, own_hello, peer, interleaves: false }
    }

    #[inline]
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.peer, PeerProtocol::Unknown)
    }

    pub(super) fn is_extended(&self) -> bool {
        matches!(self.peer, PeerProtocol::Extended(_))
    }

    /// Returns `true` if both sides support a feature.
    pub(super) fn uses(&self, feature: Features) -> bool {
        self.peer.hello().is_some_and(|hello| hello.features.contains(feature))
    }

    /// Returns `true` if large contents go in pieces.
    pub(super) fn uses_pieces(&self) -> bool {
        self.interleaves && self.uses(Features::PIECES)
    }

    pub(super) fn add_part(&mut self, name: &'static str, part: Bytes) {
        debug_assert!(!self.is_extended(), "the peer has heard everything already");
        self.own_hello = self.own_hello.take().map(|hello| hello.with_part(name, part));
    }

    pub(super) fn promise_to_leave(&mut self) {
        if let Some(hello) = &mut self.own_hello {
            hello.features = hello.features.with(Features::LEAVES);
        }
    }

    /// Returns `true` if this side opens the connection with its HELLO and has not sent it.
    pub(super) fn owes_hello(&self) -> bool {
        self.own_hello.is_some() && self.role == Role::Client
    }

    /// Takes the HELLO of this side, to send or to drop it.
    pub(super) fn take_hello(&mut self) -> Option<Hello> {
        self.own_hello.take()
    }

    /// Records the HELLO of the peer. Returns the HELLO of an accepting side, to send in reply.
    pub(super) fn recognize_extended(&mut self, hello: Hello) -> Option<Hello> {
        self.peer = PeerProtocol::Extended(Arc::new(hello));
        if self.role == Role::Server { self.own_hello.take() } else { None }
    }

    pub(super) fn recognize_plain(&mut self) {
        self.peer = PeerProtocol::Plain;
        self.own_hello = None;
    }
}
