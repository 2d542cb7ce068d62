use std::fmt;

/// An error in JSON, or of a message that has none: the reason, the path of the field, and the place in the text.
///
/// ```text
/// shop.Order.items[3].price: expected a number, found text (at byte 120)
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Error(Box<Inner>);

/// The result of reading JSON.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, PartialEq)]
struct Inner {
    kind: ErrorKind,
    path: String,
    position: Option<usize>,
}

/// The ways in which a text is no message, and a message no text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text ends in the middle of the message.
    Truncated,
    /// Something follows behind the message.
    Trailing,
    /// The text is not UTF-8.
    InvalidUtf8,
    /// Something else stands where a value or sign belongs.
    Expected {
        /// The value or sign that belongs there.
        expected: &'static str,
        /// The thing that is there.
        found: &'static str,
    },
    /// A value of the right kind has the wrong form, such as a timestamp without a zone.
    Invalid {
        /// The value that it should be.
        what: &'static str,
    },
    /// A number or a time does not fit in its type.
    OutOfRange {
        /// The type.
        of: &'static str,
    },
    /// A field or a key occurs twice.
    Duplicate,
    /// A `required` field of proto2 is not there.
    Missing,
    /// Another member of the same oneof is set already.
    OneofTwice,
    /// Messages are nested too deep.
    TooDeep {
        /// The depth that they may have: [`Reader::DEPTH_MAX`](super::Reader::DEPTH_MAX), or less if the stack ends before;
        /// see [`Reader::STACK_LEN_MAX`](super::Reader::STACK_LEN_MAX).
        limit: u32,
    },
    /// The message would take too much memory: see [`Reader::MEMORY_FACTOR`](super::Reader::MEMORY_FACTOR).
    TooMuchMemory {
        /// The number of bytes that it may take.
        limit: usize,
    },
    /// An `Any` does not say what it holds.
    NoType,
    /// An `Any` of a well-known type has no `value`.
    NoValue,
    /// An `Any` holds a message that is not known here.
    UnknownType {
        /// The type as the `Any` has it.
        url: String,
    },
    /// The message has no field of this name, and is read strictly.
    UnknownField,
    /// The enum has no value of this name, and the message is read strictly.
    UnknownEnumName {
        /// The name as the JSON has it.
        name: String,
    },
    /// The bytes in an `Any` are not the message that it says.
    InvalidAny(prost::DecodeError),
}

impl Error {
    /// Returns what is wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the path to where it is wrong: the message's full name, its field, the field's field, and so on.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Returns how many bytes of the text stand before the place where it is wrong, or `None` if a message could not be
    /// written.
    pub fn position(&self) -> Option<usize> {
        self.0.position
    }

    #[cold]
    pub(super) fn at_byte(kind: ErrorKind, position: usize) -> Self {
        Self(Box::new(Inner { kind, path: String::new(), position: Some(position) }))
    }

    /// Puts this field in front of the path. Names in it cannot make it longer than a person reads.
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
        Self(Box::new(Inner { kind, path: String::new(), position: None }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.is_empty() {
            write!(f, "{}: ", self.0.path)?;
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
            Self::Missing => f.write_str("is required, and not there"),
            Self::OneofTwice => f.write_str("another member of the same oneof is set already"),
            Self::TooDeep { limit } => write!(f, "messages are nested deeper than {limit}"),
            Self::TooMuchMemory { limit } => write!(f, "would take more than {limit} bytes of memory"),
            Self::NoType => f.write_str("an Any needs its type as \"@type\""),
            Self::NoValue => f.write_str("an Any of this type needs its value as \"value\""),
            Self::UnknownType { url } => write!(
                f,
                "an Any holds '{}', which is not among the types of this message's package: add those of its own package with `frpc::codec::json::register`",
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

/// Returns as much of a name of the peer as an error shows.
fn shortened(name: &str) -> &str {
    let end = name.char_indices().nth(NAME_LEN_MAX).map_or(name.len(), |(end, _)| end);
    &name[..end]
}

/// The number of characters of a name that an error shows.
const NAME_LEN_MAX: usize = 200;
