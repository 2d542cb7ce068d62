//! Entry points for fuzz targets, compiled with `--cfg fuzzing` only.
use frpc_json::{DEPTH_MAX, Scanner};

pub use crate::connection::messages;

/// Returns `true` if `text` is exactly one JSON value within the largest nesting depth.
pub fn is_value(text: &str) -> bool {
    let mut scanner = Scanner::new(text, DEPTH_MAX);
    scanner.value().is_ok() && scanner.peek().is_none()
}
