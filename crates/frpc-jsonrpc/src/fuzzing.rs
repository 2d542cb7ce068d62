//! Doors for fuzz targets, built with `--cfg fuzzing` only.

use crate::json::{DEPTH_MAX, Scanner};

pub use crate::connection::messages;

/// Returns whether a text is one value of JSON, as deep as may be.
pub fn is_value(text: &str) -> bool {
    let mut scanner = Scanner::new(text, DEPTH_MAX);
    scanner.value().is_ok() && scanner.peek().is_none()
}
