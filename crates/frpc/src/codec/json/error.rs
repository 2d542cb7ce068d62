use std::fmt;

/// An error in parsing or serializing JSON: the reason, the path of the field, and the position in the text.
///
/// ```text
/// shop.Order.items[3].price: expected a number, found text (at byte 120)
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Error(Box<JsonErrorInner>);

/// The result of parsing or serializing JSON.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, PartialEq)]
struct JsonErrorInner {
    kind: ErrorKind,
    path: String,
    position: Option<usize>,
}

/// The reason for a JSON error.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text ends in the middle of the message.
    Truncated,
    /// The text continues after the message.
    Trailing,
    /// The text is not UTF-8.
    InvalidUtf8,
    /// An unexpected token in place of a value or punctuation.
    Expected {
        /// The expected token.
        expected: &'static str,
        /// The token found in its place.
        found: &'static str,
    },
    /// A value has the right type but the wrong form, such as a timestamp without a time zone.
    Invalid {
        /// The expected value.
        what: &'static str,
    },
    /// A number or time exceeds the range of its type.
    OutOfRange {
        /// The type.
        of: &'static str,
    },
    /// A field or map key occurs twice.
    Duplicate,
    /// A required field is missing.
    Missing,
    /// Another member of the same oneof is already set.
    OneofTwice,
    /// Messages are nested too deeply.
    TooDeep {
        /// The maximum depth: [`Reader::DEPTH_MAX`](super::Reader::DEPTH_MAX), or less if the stack limit applies
        /// first; see [`Reader::STACK_LEN_MAX`](super::Reader::STACK_LEN_MAX).
        limit: u32,
    },
    /// The message would exceed the memory limit; see [`Reader::MEMORY_FACTOR`](super::Reader::MEMORY_FACTOR).
    TooMuchMemory {
        /// The memory limit in bytes.
        limit: usize,
    },
    /// An `Any` lacks its type.
    NoType,
    /// An `Any` of a well-known type lacks its `value`.
    NoValue,
    /// An `Any` contains a message type unknown to this side.
    UnknownType {
        /// The type URL of the `Any`.
        url: String,
    },
    /// The message has no field with this name. Reported by strict parsing only.
    UnknownField,
    /// The enum has no value with this name. Reported by strict parsing only.
    UnknownEnumName {
        /// The name in the JSON text.
        name: String,
    },
    /// The bytes in an `Any` do not decode as its message type.
    InvalidAny(prost::DecodeError),
}

impl Error {
    /// Returns the reason for the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the path of the error: the full name of the message, its field, the field of that field, and so on.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Returns the byte offset of the error in the text, or `None` for an error in serializing.
    pub fn position(&self) -> Option<usize> {
        self.0.position
    }

    #[cold]
    pub(super) fn at_byte(kind: ErrorKind, position: usize) -> Self {
        Self(Box::new(JsonErrorInner { kind, path: String::new(), position: Some(position) }))
    }

    /// Prepends a field to the path. Long names are shortened, because the peer may choose them.
    #[cold]
    pub(super) fn in_field(mut self, name: &str) -> Self {
        let name = shortened(name);
        self.0.path = match self.0.path.as_str() {
            "" => name.to_owned(),
            path if path.starts_with('[') => format!("{name}{path}"),
            path => format!("{name}.{path}"),
        };
        self
    }

    #[cold]
    pub(super) fn at_index(self, index: usize) -> Self {
        self.in_field(&format!("[{index}]"))
    }

    #[cold]
    pub(super) fn at_key(self, key: &str) -> Self {
        self.in_field(&format!("[{:?}]", shortened(key)))
    }
}

impl From<ErrorKind> for Error {
    #[cold]
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(JsonErrorInner { kind, path: String::new(), position: None }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.is_empty() {
            let separator = if self.0.kind == ErrorKind::Missing { "" } else { ":" };
            write!(f, "{}{separator} ", self.0.path)?;
        }
        self.0.kind.fmt(f)?;
        self.0.position.map_or(Ok(()), |position| write!(f, " (at byte {position})"))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the JSON ends here"),
            Self::Trailing => f.write_str("the message ends here, but the JSON does not"),
            Self::InvalidUtf8 => f.write_str("not UTF-8"),
            Self::Expected { expected, found } => write!(f, "expected {expected}, found {found}"),
            Self::Invalid { what } => write!(f, "not {what}"),
            Self::OutOfRange { of } => write!(f, "out of the range of {of}"),
            Self::Duplicate => f.write_str("occurs twice"),
            Self::Missing => f.write_str("is required"),
            Self::OneofTwice => f.write_str("another member of the same oneof is set already"),
            Self::TooDeep { limit } => write!(f, "messages are nested deeper than {limit}"),
            Self::TooMuchMemory { limit } => write!(f, "would take more than {limit} bytes of memory"),
            Self::NoType => f.write_str("an Any needs its type as \"@type\""),
            Self::NoValue => f.write_str("an Any of this type needs its value as \"value\""),
            Self::UnknownType { url } => write!(
                f,
                "an Any holds '{}', which is not among the types of this message's package: add those of its own package with `MessageSettings::any_types`",
                shortened(url)
            ),
            Self::UnknownField => f.write_str("this side knows no such field: correct its name, or leave it out"),
            Self::UnknownEnumName { name } => write!(
                f,
                "this side knows no enum value {:?}: correct the name, or give the number of the value",
                shortened(name)
            ),
            Self::InvalidAny(error) => write!(f, "the bytes of an Any are not the message that it says: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::InvalidAny(error) => Some(error),
            _ => None,
        }
    }
}

/// Shortens a name chosen by the peer.
fn shortened(name: &str) -> &str {
    let end = name.char_indices().nth(NAME_LEN_MAX).map_or(name.len(), |(end, _)| end);
    &name[..end]
}

/// The maximum number of characters of a name in an error.
const NAME_LEN_MAX: usize = 200;
