//! RPC on frisbee. The calls arrive with the next part of the work; today this crate only holds their place.
#![forbid(unsafe_code)]
