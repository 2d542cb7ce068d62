//! Subjects of messages, and patterns over subjects.

use std::{borrow::Borrow, fmt, ops::Deref, str};

use bytes::Bytes;

/// Maximum length of a subject or pattern in bytes.
pub const SUBJECT_LEN_MAX: usize = 255;
/// Maximum number of tokens in a subject or pattern.
pub const DEPTH_MAX: usize = 16;

/// The name under which messages are published: tokens separated by dots, such as `orders.eu.created`.
///
/// A token has at least one character and contains no dot, `*`, `>`, whitespace or control character. A subject has at
/// most [`SUBJECT_LEN_MAX`] bytes and [`DEPTH_MAX`] tokens. Clones are cheap: they share the bytes.
///
/// ```
/// use frisbee_pubsub::Subject;
///
/// let subject = Subject::new("orders.eu.created")?;
/// assert_eq!(subject.tokens().count(), 3);
/// assert!(Subject::new("orders..created").is_err());
/// # Ok::<(), frisbee_pubsub::InvalidSubject>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(Bytes);

impl Subject {
    /// Validates a subject and copies it.
    pub fn new(text: &str) -> Result<Self, InvalidSubject> {
        Self::check(text)?;
        Ok(Self(Bytes::copy_from_slice(text.as_bytes())))
    }

    /// Validates the bytes of a subject and keeps them without a copy.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, InvalidSubject> {
        let text = str::from_utf8(&bytes).map_err(|_| InvalidSubject::new("", "is not UTF-8"))?;
        Self::check(text)?;
        Ok(Self(bytes))
    }

    /// Returns an error if the text is not a valid subject.
    pub fn check(text: &str) -> Result<(), InvalidSubject> {
        check(text, |token, _| {
            if token.contains(['*', '>']) { Err("contains a wildcard, allowed in patterns only") } else { Ok(()) }
        })
    }

    /// Returns the subject as text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("subjects are validated when they are created")
    }

    /// Returns the tokens between the dots.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.as_str().split('.')
    }
}

impl Deref for Subject {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<[u8]> for Subject {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq<str> for Subject {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Subject {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

/// A set of subjects to subscribe to. `*` matches one token, and a final `>` matches one or more.
///
/// ```
/// use frisbee_pubsub::Pattern;
///
/// let pattern = Pattern::new("orders.*.created")?;
/// assert!(pattern.matches("orders.eu.created"));
/// assert!(!pattern.matches("orders.eu.berlin.created"));
/// assert!(Pattern::new("orders.>")?.matches("orders.eu.berlin.created"));
/// # Ok::<(), frisbee_pubsub::InvalidSubject>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// Validates a pattern and copies it.
    pub fn new(text: &str) -> Result<Self, InvalidSubject> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// Returns an error if the text is not a valid pattern.
    pub fn check(text: &str) -> Result<(), InvalidSubject> {
        check(text, |token, is_last| match token {
            "*" => Ok(()),
            ">" if is_last => Ok(()),
            ">" => Err("contains a `>` before its last token"),
            token if token.contains(['*', '>']) => Err("contains a wildcard together with other characters in a token"),
            _ => Ok(()),
        })
    }

    /// Returns the pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the tokens between the dots.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }

    /// Returns `true` if the pattern matches the subject.
    pub fn matches(&self, subject: &str) -> bool {
        let mut subject = subject.split('.');
        for token in self.tokens() {
            match (token, subject.next()) {
                (">", Some(_)) => return true,
                ("*", Some(_)) => {}
                (token, found) if found == Some(token) => {}
                _ => return false,
            }
        }
        subject.next().is_none()
    }
}

impl Deref for Pattern {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

fn check(text: &str, token: impl Fn(&str, bool) -> Result<(), &'static str>) -> Result<(), InvalidSubject> {
    let refused = |why| Err(InvalidSubject::new(text, why));
    if text.is_empty() {
        return refused("is empty");
    }
    if text.len() > SUBJECT_LEN_MAX {
        return refused("has more than 255 bytes");
    }
    if text.contains(|char: char| char.is_whitespace() || char.is_control()) {
        return refused("has a space or a control character");
    }
    let mut tokens = text.split('.').enumerate().peekable();
    while let Some((index, part)) = tokens.next() {
        if index == DEPTH_MAX {
            return refused("has more than 16 tokens");
        }
        if part.is_empty() {
            return refused("has an empty token: it begins or ends with a dot, or has two of them in a row");
        }
        if let Err(why) = token(part, tokens.peek().is_none()) {
            return refused(why);
        }
    }
    Ok(())
}

/// An invalid subject, pattern or name of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSubject {
    text: String,
    why: &'static str,
}

impl InvalidSubject {
    pub(crate) fn new(text: &str, why: &'static str) -> Self {
        // Keep a bounded prefix: the text may come from a peer and has any length.
        Self { text: text.chars().take(SUBJECT_LEN_MAX).collect(), why }
    }
}

impl fmt::Display for InvalidSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.text, self.why)
    }
}

impl std::error::Error for InvalidSubject {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_tokens_and_no_wildcards() {
        for good in ["a", "a.b", "_inbox.1", "größe.µ", "$SYS.x", &["a"; DEPTH_MAX].join("."), &"a".repeat(255)] {
            assert_eq!(Subject::check(good), Ok(()), "{good}");
        }
        let long = "a".repeat(256);
        let deep = ["a"; 17].join(".");
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\0", "*", "a.>", "a*", "a.b>", &long, &deep] {
            assert!(Subject::check(bad).is_err(), "{bad}");
        }
        assert!(Subject::from_bytes(Bytes::from_static(&[0xff])).is_err());
    }

    #[test]
    fn wildcards_in_patterns_are_whole_tokens() {
        for good in ["a", "*", ">", "*.*", "a.*.c", "a.>", "*.>"] {
            assert_eq!(Pattern::check(good), Ok(()), "{good}");
        }
        for bad in ["", "a.>.b", ">.a", "a*", "a.*b", "**", ">>", "a..*"] {
            assert!(Pattern::check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn star_matches_one_token_and_arrow_one_or_more() {
        let matches = |pattern: &str, subject: &str| Pattern::new(pattern).expect("it is good").matches(subject);
        assert!(matches("a.*", "a.b") && !matches("a.*", "a") && !matches("a.*", "a.b.c"));
        assert!(matches("a.>", "a.b") && !matches("a.>", "a") && matches("a.>", "a.b.c"));
        assert!(matches("*", "a") && !matches("*", "a.b") && matches(">", "a") && matches(">", "a.b"));
        assert!(matches("a.b", "a.b") && !matches("a.b", "a") && !matches("a.b", "a.b.c") && !matches("a", "b"));
    }

    #[test]
    fn errors_describe_the_invalid_text() {
        let error = Subject::check("orders.*").expect_err("it has a wildcard");
        assert_eq!(error.to_string(), r#""orders.*" contains a wildcard, allowed in patterns only"#);
    }
}
