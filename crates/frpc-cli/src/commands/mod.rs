//! The commands.

pub(crate) mod bench;
pub(crate) mod call;
pub(crate) mod describe;
pub(crate) mod list;
pub(crate) mod lock;
pub(crate) mod serve;
