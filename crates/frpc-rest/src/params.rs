//! The parameters of a request, before they become JSON.

use std::{collections::BTreeMap, fmt};

/// The reason why a request is not a message, for its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError(pub(crate) String);

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RequestError {}

impl From<String> for RequestError {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// The parameters of a message, by the index of their field.
pub(crate) type ParamFields = BTreeMap<usize, ParamNode>;

/// The parameters of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParamNode {
    /// Values of the field itself.
    Values(Vec<String>),
    /// Entries of a map.
    Entries(Vec<(String, String)>),
    /// Fields of its message.
    Fields(ParamFields),
}
