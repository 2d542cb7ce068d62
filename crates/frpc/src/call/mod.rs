//! A call as it is on any wire: what is called, what goes with it, its messages as bytes, and how it is answered.

pub(crate) mod account;
pub(crate) mod coded;
pub(crate) mod context;
pub(crate) mod deadline;
pub(crate) mod exchange;
pub(crate) mod extensions;
pub(crate) mod head;
pub(crate) mod metadata;
pub(crate) mod method;
pub(crate) mod packed;
pub(crate) mod request;
pub(crate) mod status;
pub(crate) mod streaming;
pub(crate) mod unknown_json;
