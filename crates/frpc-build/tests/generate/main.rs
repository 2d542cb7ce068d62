//! The complete path from proto files to Rust files, or to an error.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod descriptors;
mod errors;
mod golden;
mod lock;
mod options;
mod refused;
mod required;
mod rest;

use std::{fs, path::PathBuf, thread};

/// Creates a directory for the running test.
fn new_dir() -> PathBuf {
    let name = thread::current().name().unwrap().replace("::", "/");
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir); // Not there the first time.
    fs::create_dir_all(&dir).unwrap();
    dir
}
