//! The protocol core in virtual time: two sides, a wire and a clock that the tests hold in their hands.

mod checksums;
mod credit;
mod extended;
mod frames;
mod limits;
mod pair;
mod pieces;
mod states;
mod transcripts;
mod vectors;
