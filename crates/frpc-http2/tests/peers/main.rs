//! Connections against attackers, against each other, against the crate `h2`, and against h2spec.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod attacks;
mod h2_crate;
mod h2spec;
mod limits;
mod messages;
mod model;
mod rules;
mod two_cores;
mod victim;
