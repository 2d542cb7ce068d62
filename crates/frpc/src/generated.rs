//! The types that generated code uses. Not for use by hand.

pub use crate::{
    call::{
        exchange::{Answer, Call},
        method::{MessageType, Method, MethodKind},
        status::Status,
    },
    service::handle::Service,
};
