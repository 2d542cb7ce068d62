//! A limit on the memory of parsed arguments.

use frpc::{Status, codec::json::tree_memory_len};

use super::Context;

/// Checks the memory of `params` parsed as a tree of values, without parsing them.
///
/// The actual parameter types are not known here. They usually need less memory than the tree.
///
/// # Errors
///
/// Returns [`ResourceExhausted`](frpc::Code::ResourceExhausted) if the arguments exceed the limit.
#[inline]
pub(crate) fn check(params: Option<&str>, context: &Context) -> Result<(), Status> {
    let params = params.unwrap_or_default();
    if params.len() <= SMALL_LEN { Ok(()) } else { check_long(params, context) }
}

#[cold]
fn check_long(params: &str, context: &Context) -> Result<(), Status> {
    let limit = context.memory_budget().for_len(params.len());
    if params.len().saturating_mul(FACTOR_MAX) <= limit || tree_memory_len(params, limit) <= limit {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!(
        "the params are too large: they would take more than {limit} bytes of memory (`message_memory_max` of the server sets the \
         limit)"
    )))
}

/// The maximum length of arguments accepted without a check. They take less than 256 KiB of memory.
const SMALL_LEN: usize = 2 << 10;

/// The maximum memory per byte of JSON. An object with one member has 7 bytes, including its comma, and takes a tree
/// node.
const FACTOR_MAX: usize = 128;
