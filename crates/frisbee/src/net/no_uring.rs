//! Replacement for io_uring on other systems and in builds without the feature.

use std::{future::Future, io};

use super::ring_kind::RingKind;

pub(crate) fn probe(_: RingKind) -> io::Result<()> {
    Err(no_uring())
}

fn no_uring() -> io::Error {
    let why = match cfg!(target_os = "linux") {
        true => "frisbee was built without its feature uring",
        false => "io_uring is part of Linux only",
    };
    io::Error::new(io::ErrorKind::Unsupported, why)
}

pub(crate) fn is_here() -> bool {
    false
}

pub(crate) fn block_on<F: Future<Output = io::Result<()>>>(_: RingKind, _: impl FnOnce() -> F) -> io::Result<()> {
    Err(no_uring())
}
