//! The protocol without any I/O: bytes and time go in, events and bytes come out.
//!
//! [`Connection`] is one side of a connection. A driver feeds it what the socket brought
//! ([`handle_input`](Connection::handle_input)) and the time ([`handle_timeout`](Connection::handle_timeout)), writes
//! what it hands out ([`poll_transmit`](Connection::poll_transmit)) and comes back when
//! [`poll_timeout`](Connection::poll_timeout) says so. Nothing here knows sockets, clocks, tasks or locks, so the same
//! code serves every driver, every test and every fuzzer. Applications use the handles at the root of the crate.

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
    connection::{Connection, Event, PEER_INDUCED_LEN_MAX, Role},
    control::{Control, GoAway},
    counters::Counters,
    decoder::{Decoder, Frame, Reach},
    frames::{FrameBuffer, Frames},
    header::{Header, HeaderFormat, Kind},
    hello::{Features, Hello, Peer},
    leftovers::Heartbeats,
    streams::{PACKET_COST, StreamKey},
    transmit::{COPY_LEN_MAX, Transmit},
};
pub use crate::error::{Foreign, OpenError, StreamEnd, StreamSendError};
