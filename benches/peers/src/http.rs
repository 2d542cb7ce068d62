//! JSON messages, for servers without a schema.

use serde::{Deserialize, Serialize};

/// The request and the response of the benchmark.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct JsonMessage {
    /// The content, named as in the proto file.
    #[serde(rename = "Message")]
    pub message: String,
}
