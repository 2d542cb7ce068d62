//! Types for generated code. Not for direct use.

pub use crate::{
    call::{
        exchange::{Answer, Call},
        method::{MessageType, Method, MethodKind},
        status::Status,
    },
    service::handle::Service,
};
