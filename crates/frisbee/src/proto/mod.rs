//! The protocol without any I/O: bytes and time go in, events and bytes come out.
//!
//! [`Connection`] is one side of a connection. A driver passes it bytes from the socket
//! ([`handle_input`](Connection::handle_input)) and the time ([`handle_timeout`](Connection::handle_timeout)),
//! writes its batches ([`poll_transmit`](Connection::poll_transmit)), and calls it again at the time of
//! [`poll_timeout`](Connection::poll_timeout). This module uses no sockets, clocks, tasks or locks, so all
//! drivers, tests and fuzzers share its code. Applications use the handles at the root of the crate.

mod budget;
mod bulk;
mod checksum;
mod connection;
mod control;
mod counters;
mod credit;
mod decoder;
mod flight;
mod foreign;
mod frames;
mod header;
mod heartbeat;
mod hello;
mod id_hasher;
mod leftovers;
mod outbox;
mod pieces;
mod share;
mod streams;
mod transmit;

pub use self::{
    bulk::PIECED_LEN_MIN,
    connection::{Connection, InputEvent, PEER_INDUCED_LEN_MAX, Role},
    control::{Control, GoAway},
    counters::Counters,
    decoder::{Decoder, Frame, FrameFilter},
    frames::{FrameBuffer, Frames},
    header::{FrameKind, Header, HeaderFormat},
    hello::{Features, Hello, PeerProtocol},
    leftovers::LeftoverFrames,
    streams::{PACKET_COST, StreamKey},
    transmit::{COPY_LEN_MAX, Transmit},
};
pub use crate::error::{ForeignProtocol, OpenError, StreamEnd, StreamSendError};
