use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The field type for the content, in messages with fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Field {
    /// Text. Its encoding is validated.
    #[default]
    String,
    /// Arbitrary bytes.
    Bytes,
}

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "string" => Ok(Self::String),
            "bytes" => Ok(Self::Bytes),
            _ => Err(format!("no field {text:?}: string or bytes")),
        }
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::String => "string",
            Self::Bytes => "bytes",
        })
    }
}
