//! Calls in memory and in virtual time, between a channel and a server, or between one of them and a peer with
//! hand-written bytes.
//!
//! Tests of calls in general run over [every transport](transport). Tests of connections and bytes are specific to
//! frisbee.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod answers;
mod bombs;
mod bytes;
mod changed_bits;
mod compression;
mod doubles;
mod endpoints;
mod extended;
mod fleet;
mod forwarding;
mod going_away;
mod heads;
mod layers;
mod limits;
mod lockups;
mod losses;
mod matching;
mod overload;
mod pieces;
mod refusals;
mod request_streams;
mod routes;
mod schemas;
mod serving;
mod several_files;
mod stream_wire;
mod timeouts;
mod transport;
mod two_ways;
mod vectors;
mod wires;
