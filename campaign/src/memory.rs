//! A count of the bytes in use.
#![allow(unsafe_code, reason = "an allocator is unsafe")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

/// The allocator of the system, with a count.
struct CountingAllocator;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

// SAFETY: all work is done by `System`, which gets the arguments unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the bytes in use.
pub(crate) fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}
