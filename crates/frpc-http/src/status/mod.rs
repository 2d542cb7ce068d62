//! Statuses as gRPC headers, and as the JSON error objects of Connect and Twirp.

pub(crate) mod connect;
pub(crate) mod grpc;
pub(crate) mod twirp;
