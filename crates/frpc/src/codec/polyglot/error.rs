use std::fmt;

use super::Kind;

/// An error in decoding a message: the reason, and the path of the field.
///
/// ```text
/// Order.items[3].price: expected f64, found string
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(Box<DecodeErrorInner>);

/// The result of decoding.
pub type Result<T, E = DecodeError> = std::result::Result<T, E>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct DecodeErrorInner {
    kind: DecodeErrorKind,
    path: String,
}

/// The reason for a decoding error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The bytes end in the middle of the message.
    Truncated,
    /// The kind of a value differs from the schema.
    WrongKind {
        /// The kind in the schema.
        expected: Kind,
        /// The byte found in its place; see [`Kind::of`].
        found: u8,
    },
    /// The kind of list or map elements differs from the schema.
    WrongElementKind {
        /// The kind in the schema.
        expected: Kind,
        /// The byte found in its place.
        found: u8,
    },
    /// An integer is longer than its type allows.
    VarintTooLong {
        /// The type of the integer.
        kind: Kind,
    },
    /// A bool is neither 0 nor 1.
    InvalidBool {
        /// The byte found in its place.
        found: u8,
    },
    /// A string is not UTF-8.
    InvalidUtf8,
    /// A length or count exceeds the remaining bytes.
    TooLong {
        /// The claimed length.
        claimed: u32,
        /// The number of remaining bytes.
        left: usize,
    },
    /// The message would exceed the memory limit; see [`Reader::MEMORY_FACTOR`](super::Reader::MEMORY_FACTOR).
    TooMuchMemory {
        /// The memory limit in bytes: 1 MiB plus 16 times the input.
        limit: usize,
    },
    /// The message would exceed the memory [budget](crate::codec::MemoryBudget) of this side.
    OverBudget {
        /// The memory limit in bytes.
        limit: usize,
    },
    /// Messages are nested too deeply.
    TooDeep {
        /// The maximum depth: [`Reader::DEPTH_MAX`](super::Reader::DEPTH_MAX), or less if the stack limit applies
        /// first; see [`Reader::STACK_LEN_MAX`](super::Reader::STACK_LEN_MAX).
        limit: u32,
    },
    /// A required field is missing.
    Missing,
}

impl DecodeError {
    /// Returns the reason for the error.
    pub fn kind(&self) -> &DecodeErrorKind {
        &self.0.kind
    }

    /// Returns the path of the error: the name of the message, its field, the field of that field, and so on.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    #[cold]
    pub(in crate::codec) fn in_message(mut self, name: &str) -> Self {
        self.0.path = match self.0.path.as_str() {
            "" => name.to_owned(),
            path if path.starts_with('[') => format!("{name}{path}"),
            path => format!("{name}.{path}"),
        };
        self
    }

    #[cold]
    pub(in crate::codec) fn at_index(self, index: usize) -> Self {
        self.in_message(&format!("[{index}]"))
    }
}

impl From<DecodeErrorKind> for DecodeError {
    #[cold]
    fn from(kind: DecodeErrorKind) -> Self {
        Self(Box::new(DecodeErrorInner { kind, path: String::new() }))
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.is_empty() {
            let separator = if self.0.kind == DecodeErrorKind::Missing { "" } else { ":" };
            write!(f, "{}{separator} ", self.0.path)?;
        }
        self.0.kind.fmt(f)
    }
}

impl fmt::Display for DecodeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the bytes end here"),
            Self::WrongKind { expected, found } => write!(f, "expected {expected}, found {}", KindName(*found)),
            Self::WrongElementKind { expected, found } => {
                write!(f, "expected elements of kind {expected}, found {}", KindName(*found))
            }
            Self::VarintTooLong { kind } => write!(f, "{kind} is longer than its type allows"),
            Self::InvalidBool { found } => write!(f, "{found:#04x} is no bool"),
            Self::InvalidUtf8 => f.write_str("string is not UTF-8"),
            Self::TooLong { claimed, left } => write!(f, "claims a length of {claimed}, {left} bytes are left"),
            Self::TooMuchMemory { limit } => write!(
                f,
                "would take more than {limit} bytes of memory, which is 1 MiB and 16 times the encoded length"
            ),
            Self::OverBudget { limit } => write!(f, "would take more than {limit} bytes of memory"),
            Self::TooDeep { limit } => write!(f, "messages are nested deeper than {limit}"),
            Self::Missing => f.write_str("is required"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A kind byte, shown by name if it has one.
struct KindName(u8);

impl fmt::Display for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Kind::of(self.0) {
            Some(kind) => kind.fmt(f),
            None => write!(f, "{:#04x}", self.0),
        }
    }
}

/// Adds locations to decoding errors.
pub trait At<T> {
    /// Prepends a field to the path of an error.
    fn at(self, field: &str) -> Result<T>;
}

impl<T> At<T> for Result<T> {
    #[inline]
    fn at(self, field: &str) -> Self {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(error.in_message(field)),
        }
    }
}

/// The error alternative to a message: the peer sends it instead of a message it could not create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error text.
    pub text: String,
    /// The code of the failure, if the peer sent one. Go peers never do.
    pub code: Option<u8>,
}
