//! JSON text: finding the ends of values, and escaping strings.

mod scanner;
mod text;

pub(crate) use self::{
    scanner::{DEPTH_MAX, Fault, Scanner},
    text::{flat_len, plain_len, put_string, unescape},
};
