//! Statuses as gRPC headers, and as the JSON error objects of Connect, Twirp and REST.

pub(crate) mod connect;
pub(crate) mod grpc;
pub(crate) mod rest;
pub(crate) mod twirp;

use bytes::Bytes;
use serde::{Serialize, Serializer};

/// Serializes a value that consists of strings and numbers.
fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("strings can be written as JSON").into()
}

/// A JSON object with members in this order.
struct JsonMap<'a, V>(Vec<(&'a str, V)>);

impl<V: Serialize> Serialize for JsonMap<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
