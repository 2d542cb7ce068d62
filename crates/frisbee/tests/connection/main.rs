//! Handles, driver, server and client in memory and in virtual time: conversations with a peer that speaks bytes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod contents;
mod credit;
mod discarding;
mod dispatch;
mod endings;
mod failures;
mod fairness;
mod frames;
mod hooks;
mod leaving;
mod liveness;
mod outcomes;
mod overload;
mod pieces;
mod protocols;
mod reconnecting;
mod reentry;
mod scripts;
mod sending;
mod streams;
mod takeover;
mod withdrawing;
