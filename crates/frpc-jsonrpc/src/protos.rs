//! Generated messages for [`Tensor`](crate::Tensor) and [`Image`](crate::Image), to be used in services of proto files.
#![allow(missing_docs, reason = "not everything in the proto file has a comment")]

include!("../generated/frpc.functions.v1.rs");

/// Type descriptions of functions served as methods.
#[allow(dead_code, unreachable_pub, reason = "the types alone are used")]
pub(crate) mod types {
    include!("../generated/frpc.functions.types.rs");
}
