//! Code generation for frpc from `build.rs`. The generator arrives with the next part of the work; today this crate
//! only holds its place.
#![forbid(unsafe_code)]
