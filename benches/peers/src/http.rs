//! Messages as JSON, for servers that know no schema.

use serde::{Deserialize, Serialize};

/// The request and the response of the benchmark.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct JsonMessage {
    /// The content, under the name of the proto file.
    #[serde(rename = "Message")]
    pub message: String,
}
