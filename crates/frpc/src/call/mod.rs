//! Calls independent of any wire: methods, heads, messages as bytes, answers and statuses.

pub(crate) mod account;
pub(crate) mod arrival;
pub(crate) mod codec_stream;
pub(crate) mod coded;
pub(crate) mod connects;
pub(crate) mod context;
pub(crate) mod deadline;
pub(crate) mod exchange;
pub(crate) mod extensions;
pub(crate) mod frames;
pub(crate) mod head;
pub(crate) mod load_report;
pub(crate) mod measure;
pub(crate) mod metadata;
pub(crate) mod meter;
pub(crate) mod method;
pub(crate) mod packed;
pub(crate) mod recorder;
mod refusal;
pub(crate) mod request;
pub(crate) mod shown;
pub(crate) mod status;
pub(crate) mod streaming;
pub(crate) mod system;
pub(crate) mod trace;
pub(crate) mod unknown_json;
pub(crate) mod waits;
