//! JSON as text: what a value is, where it ends, and how strings are written.

mod scanner;
mod text;

pub(crate) use self::{
    scanner::{DEPTH_MAX, Fault, Scanner},
    text::{flat_len, plain_len, put_string, unescape},
};
