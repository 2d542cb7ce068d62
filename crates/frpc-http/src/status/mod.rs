//! Statuses as gRPC headers, and as the JSON error objects of Connect and Twirp.

pub(crate) mod connect;
pub(crate) mod grpc;
pub(crate) mod twirp;

/// Writes text as a JSON string.
fn put_string(json: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(json, text).expect("memory takes all bytes, and any text is a JSON string");
}
