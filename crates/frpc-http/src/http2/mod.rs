//! HTTP/2 parts missing from hyper: reading the preface, and a timeout for responses that the peer does not read.

mod answers;
mod preface;

pub(crate) use self::{
    answers::{PiecewiseBody, ResponseExecutor},
    preface::read_preface,
};
