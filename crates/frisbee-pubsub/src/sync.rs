//! Locks and atomics of the code with models. Built with `--cfg loom`, they are those of loom, which tries the orders in
//! which threads can run.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize},
};

#[cfg(not(loom))]
pub(crate) use tokio::sync::Notify;

#[cfg(loom)]
pub(crate) use frisbee::Notify;
#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize},
};
