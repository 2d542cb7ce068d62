//! Calls in memory and in virtual time: between a channel and a server, and of each with a peer that speaks bytes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod answers;
mod limits;
mod lockups;
mod losses;
mod matching;
mod request_streams;
mod serving;
mod stream_wire;
mod support;
mod timeouts;
mod two_ways;
