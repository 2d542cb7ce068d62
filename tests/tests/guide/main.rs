//! Keeps the pages in `docs` true: code from examples, reference pages, links and contents.
//!
//! A difference rewrites the page and fails the test. Run `cargo test -p tests --test guide` again and commit the page.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod addresses;
mod limits;
mod links;
mod metrics;
mod pages;
mod snippets;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
