//! The protocol without any I/O: bytes and time go in, events and bytes come out.
//!
//! [`Connection`] is one side of a connection. A driver feeds it what the socket brought
//! ([`handle_input`](Connection::handle_input)) and the time ([`handle_timeout`](Connection::handle_timeout)), writes
//! what it hands out ([`poll_transmit`](Connection::poll_transmit)) and comes back when
//! [`poll_timeout`](Connection::poll_timeout) says so. Nothing here knows sockets, clocks, tasks or locks, so the same
//! code serves every driver, every test and every fuzzer. Applications use the handles at the root of the crate.

mod budget;
mod connection;
mod decoder;
mod foreign;
mod header;
mod heartbeat;
mod outbox;
mod streams;

pub use connection::{Connection, Counters, Event, FORCED_LEN_MAX, Role};
pub use decoder::{Decoder, Frame};
pub use foreign::Foreign;
pub use header::{Header, HeaderFormat, Heartbeats, Kind};
pub use outbox::{COPY_LEN_MAX, Transmit};
pub use streams::{OpenError, PACKET_COST, StreamEnd, StreamKey};
