//! The message formats of a call.

use std::fmt;

/// The encoding of the messages of a call, chosen by its wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// The format of fRPC: fields by position.
    #[default]
    Polyglot,
    /// Protocol buffers: fields by number. For methods with a user-defined [codec](super::Codec), the output of that
    /// codec.
    Proto,
    /// The [JSON mapping of proto3](super::json): fields by name. Available for messages that frisbee-rpc-build
    /// generated with `.json(true)`.
    Json,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Polyglot => "polyglot",
            Self::Proto => "protobuf",
            Self::Json => "JSON",
        })
    }
}
