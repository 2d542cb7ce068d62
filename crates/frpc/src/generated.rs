//! What generated code uses. Not for use by hand.

pub use crate::{
    Method, MethodKind,
    service::service::{Answer, Call, Service},
};
