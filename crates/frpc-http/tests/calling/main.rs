//! Clients that lose connections, find them full or slow, and servers that refuse, against servers of ours and peers that write
//! HTTP/2 by hand.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod frames;
mod losses;
mod network;
