//! The memory that arguments may take when they are read.

use frpc::{Status, codec::json::tree_memory_len};

use super::Context;

/// Refuses arguments that would take too much memory as a tree of values, before any is read. What they take as the types of the
/// parameters is not known here, and is mostly less.
///
/// # Errors
///
/// [`ResourceExhausted`](frpc::Code::ResourceExhausted).
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

/// The length up to which arguments are not looked at: they take less than 256 KiB.
const SMALL_LEN: usize = 2 << 10;

/// The most that a byte takes: an object with one member has 7 bytes with its comma, and takes a node of a tree.
const FACTOR_MAX: usize = 128;
