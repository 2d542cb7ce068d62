//! Connections of HTTP/2: what hyper leaves to be done in front of a connection, and about answers that are not read.

mod answers;
mod preface;

pub(crate) use self::{
    answers::{Answers, Pieces},
    preface::read_preface,
};
