//! The schemas as private modules of a program. Some warnings appear only there, because a library exports its items.
#![deny(warnings)]
#![allow(missing_docs, unreachable_pub, reason = "no program that generates code can have these lints")]

mod schemas {
    include!(concat!(env!("OUT_DIR"), "/accepted/_includes.rs"));
}

fn main() {}
