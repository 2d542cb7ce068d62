//! The limit of memory for all fuzz targets.

use std::alloc::System;

use cap::Cap;
pub use libfuzzer_sys::fuzz_target;

/// Ends the process at an allocation above the limit. libFuzzer looks at resident memory only, and only once a second.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, MEMORY_MAX);

const MEMORY_MAX: usize = 512 << 20;
