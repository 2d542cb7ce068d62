//! The subcommands.

pub(crate) mod bench;
pub(crate) mod call;
pub(crate) mod describe;
pub(crate) mod list;
pub(crate) mod lock;
pub(crate) mod new;
pub(crate) mod openapi;
#[cfg(feature = "pubsub")]
pub(crate) mod publish;
pub(crate) mod replay;
pub(crate) mod serve;
#[cfg(feature = "pubsub")]
pub(crate) mod subscribe;
pub(crate) mod top;
