use std::fmt;

/// The reason for rejecting JSON text. The scanner keeps the [position](crate::Scanner::position).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntaxError {
    /// The text ends in the middle of a value. With more text it may become valid.
    Truncated,
    /// Another token than this one.
    Expected(&'static str),
    /// A token in the wrong form. The text names the valid form.
    Invalid(&'static str),
    /// The nesting is deeper than this limit.
    TooDeep(u32),
}

/// The result of reading JSON text.
pub type Result<T, E = SyntaxError> = std::result::Result<T, E>;

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the JSON ends too early"),
            Self::Expected(expected) => write!(f, "expected {expected}"),
            Self::Invalid(valid) => write!(f, "not {valid}"),
            Self::TooDeep(limit) => write!(f, "nested deeper than {limit}"),
        }
    }
}

impl std::error::Error for SyntaxError {}
