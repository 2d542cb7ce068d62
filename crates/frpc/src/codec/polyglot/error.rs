use std::fmt;

use super::Kind;

/// An error in the bytes of a message: the reason, and the path of the field.
///
/// ```text
/// Order.items[3].price: expected f64, found string
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(Box<Inner>);

/// The result of decoding.
pub type Result<T, E = DecodeError> = std::result::Result<T, E>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    kind: DecodeErrorKind,
    path: String,
}

/// The ways in which bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The bytes end in the middle of the message.
    Truncated,
    /// A value is of another kind than the schema says.
    WrongKind {
        /// The kind that the schema says.
        expected: Kind,
        /// The byte in its place; see [`Kind::of`].
        found: u8,
    },
    /// A list or map has elements of another kind than the schema says.
    WrongElementKind {
        /// The kind that the schema says.
        expected: Kind,
        /// The byte in its place.
        found: u8,
    },
    /// An integer is longer than its type allows.
    VarintTooLong {
        /// The type of the integer.
        kind: Kind,
    },
    /// A bool is neither 0 nor 1.
    InvalidBool {
        /// The byte in its place.
        found: u8,
    },
    /// A string is not UTF-8.
    InvalidUtf8,
    /// A length or count is more than the bytes that are left can hold.
    TooLong {
        /// The length that is claimed.
        claimed: u32,
        /// Bytes that are left.
        left: usize,
    },
    /// The message would take too much memory: see [`Reader::MEMORY_FACTOR`](super::Reader::MEMORY_FACTOR).
    TooMuchMemory {
        /// The number of bytes that it may take: 1 MiB, and 16 times the input on top.
        limit: usize,
    },
    /// The message would take more memory than the [budget](crate::codec::MemoryBudget) of this side allows.
    OverBudget {
        /// The number of bytes that it may take.
        limit: usize,
    },
    /// Messages are nested too deep.
    TooDeep {
        /// The depth that they may have: [`Reader::DEPTH_MAX`](super::Reader::DEPTH_MAX), or less if the stack ends
        /// before; see [`Reader::STACK_LEN_MAX`](super::Reader::STACK_LEN_MAX).
        limit: u32,
    },
}

impl DecodeError {
    /// Returns what is wrong.
    pub fn kind(&self) -> &DecodeErrorKind {
        &self.0.kind
    }

    /// Returns the path to where it is wrong: the message's name, its field, the field's field, and so on.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    #[cold]
    pub(super) fn in_message(mut self, name: &str) -> Self {
        self.0.path = match self.0.path.as_str() {
            "" => name.to_owned(),
            path if path.starts_with('[') => format!("{name}{path}"),
            path => format!("{name}.{path}"),
        };
        self
    }

    #[cold]
    pub(super) fn at_index(self, index: usize) -> Self {
        self.in_message(&format!("[{index}]"))
    }
}

impl From<DecodeErrorKind> for DecodeError {
    #[cold]
    fn from(kind: DecodeErrorKind) -> Self {
        Self(Box::new(Inner { kind, path: String::new() }))
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.is_empty() {
            write!(f, "{}: ", self.0.path)?;
        }
        self.0.kind.fmt(f)
    }
}

impl fmt::Display for DecodeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the bytes end here"),
            Self::WrongKind { expected, found } => write!(f, "expected {expected}, found {}", Name(*found)),
            Self::WrongElementKind { expected, found } => {
                write!(f, "expected elements of kind {expected}, found {}", Name(*found))
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
        }
    }
}

impl std::error::Error for DecodeError {}

/// A kind byte, by name if it has one.
struct Name(u8);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Kind::of(self.0) {
            Some(kind) => kind.fmt(f),
            None => write!(f, "{:#04x}", self.0),
        }
    }
}

/// Tells an error where it happened.
pub trait At<T> {
    /// Puts this field of the message being read in front of the path of an error.
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

/// The error alternative: stands in place of a message that could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The text.
    pub text: String,
    /// The kind of failure, if the writer said it. Go peers never do.
    pub code: Option<u8>,
}
