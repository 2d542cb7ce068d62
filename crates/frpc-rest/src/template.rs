//! Path templates such as `/v1/{name=shelves/*/books/*}:archive`.

use std::{fmt, ops::Range};

/// A parsed path template of `google.api.http`.
///
/// ```
/// use frpc_rest::PathTemplate;
///
/// let template = PathTemplate::parse("/v1/{name=shelves/*/books/*}:archive")?;
/// assert_eq!((template.verb(), template.fields().collect::<Vec<_>>()), (Some("archive"), vec!["name"]));
/// assert!(PathTemplate::parse("/v1/{name").is_err());
/// # Ok::<(), frpc_rest::TemplateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTemplate {
    text: String,
    pub(crate) segments: Vec<TemplateSegment>,
    pub(crate) variables: Vec<TemplateVariable>,
    verb: Option<String>,
}

/// One segment of a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TemplateSegment {
    /// This text, decoded.
    Literal(String),
    /// `*`: any one segment.
    One,
    /// `**`: any number of segments. At most once in a template.
    Rest,
}

/// A field whose value is part of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateVariable {
    /// The path of the field, with dots.
    pub(crate) field: String,
    /// The segments of its value.
    pub(crate) segments: Range<usize>,
}

/// A mistake in a path template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    what: &'static str,
    at: usize,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.what, self.at)
    }
}

impl std::error::Error for TemplateError {}

impl PathTemplate {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// If the text is not a path template, or uses a field or `**` twice.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parser = TemplateParser { text, at: 0, segments: Vec::new(), variables: Vec::new() };
        let verb = parser.template()?;
        let TemplateParser { segments, variables, .. } = parser;
        Ok(Self { text: text.to_owned(), segments, variables, verb })
    }

    /// Returns the template as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the verb after the colon at the end.
    pub fn verb(&self) -> Option<&str> {
        self.verb.as_deref()
    }

    /// Returns the segments of a path with this many that are the value of a variable.
    pub(crate) fn value_range(&self, variable: &TemplateVariable, path_len: usize) -> Range<usize> {
        let rest = self.segments.iter().position(|segment| *segment == TemplateSegment::Rest);
        // Segments after `**` are counted from the end of the path.
        let place = |at: usize| match rest {
            Some(rest) if at > rest => (at + path_len).saturating_sub(self.segments.len()),
            _ => at,
        };
        place(variable.segments.start)..place(variable.segments.end)
    }

    /// Returns `true` if the value of a variable can have several segments.
    pub(crate) fn is_deep(&self, variable: &TemplateVariable) -> bool {
        self.segments[variable.segments.clone()].contains(&TemplateSegment::Rest)
    }

    /// Returns the paths of the fields with a value in the path, with dots.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|variable| &*variable.field)
    }
}

struct TemplateParser<'a> {
    text: &'a str,
    at: usize,
    segments: Vec<TemplateSegment>,
    variables: Vec<TemplateVariable>,
}

impl<'a> TemplateParser<'a> {
    fn template(&mut self) -> Result<Option<String>, TemplateError> {
        if !self.take('/') {
            return Err(self.error("a path template starts with a slash"));
        }
        if self.at < self.text.len() {
            self.segments(false)?;
        }
        if !self.take(':') {
            return if self.at == self.text.len() { Ok(None) } else { Err(self.error("unexpected character")) };
        }
        let verb = &self.text[self.at..];
        match verb.find(|letter: char| !is_literal(letter) && letter != ':') {
            _ if verb.is_empty() => Err(self.error("the verb after the colon is missing")),
            Some(len) => {
                self.at += len;
                Err(self.error("unexpected character in a verb"))
            }
            None => Ok(Some(verb.to_owned())),
        }
    }

    fn segments(&mut self, is_variable: bool) -> Result<(), TemplateError> {
        loop {
            self.segment(is_variable)?;
            if !self.take('/') {
                return Ok(());
            }
        }
    }

    fn segment(&mut self, is_variable: bool) -> Result<(), TemplateError> {
        if self.take('*') {
            let is_rest = self.take('*');
            // With two of them, the value of each variable would be a matter of choice.
            if is_rest && self.segments.contains(&TemplateSegment::Rest) {
                return Err(self.error("a path has at most one `**`"));
            }
            self.segments.push(if is_rest { TemplateSegment::Rest } else { TemplateSegment::One });
            return Ok(());
        }
        if self.take('{') {
            return if is_variable {
                Err(self.error("a variable cannot contain another one"))
            } else {
                self.variable()
            };
        }
        let start = self.at;
        let rest = &self.text[start..];
        let mut len = rest.find(|letter: char| !is_literal(letter) && letter != ':').unwrap_or(rest.len());
        // The verb is the part after the last colon of the path.
        if let Some(colon) = rest[..len].rfind(':') {
            if len < rest.len() || is_variable {
                self.at += colon;
                return Err(self.error("a colon is allowed before the verb only"));
            }
            len = colon;
        }
        if len == 0 {
            return Err(self.error("a segment is empty"));
        }
        let literal = decode(&rest[..len]).ok_or_else(|| self.error("invalid percent-encoding"))?;
        self.at += len;
        self.segments.push(TemplateSegment::Literal(literal));
        Ok(())
    }

    fn variable(&mut self) -> Result<(), TemplateError> {
        let start = self.at;
        let rest = &self.text[start..];
        let len = rest.find(['=', '}']).ok_or_else(|| self.error("the variable is not closed with `}`"))?;
        let field = &rest[..len];
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if !field.split('.').all(is_name) {
            return Err(self.error("a variable needs the name of a field"));
        }
        if self.variables.iter().any(|other| other.field == field) {
            return Err(self.error("the same field is used twice"));
        }
        self.at += len;
        let first = self.segments.len();
        if self.take('=') {
            self.segments(true)?;
        } else {
            self.segments.push(TemplateSegment::One);
        }
        if !self.take('}') {
            return Err(self.error("the variable is not closed with `}`"));
        }
        let segments = first..self.segments.len();
        self.variables.push(TemplateVariable { field: field.to_owned(), segments });
        Ok(())
    }

    fn take(&mut self, letter: char) -> bool {
        let is_next = self.text[self.at..].starts_with(letter);
        self.at += if is_next { letter.len_utf8() } else { 0 };
        is_next
    }

    fn error(&self, what: &'static str) -> TemplateError {
        TemplateError { what, at: self.at }
    }
}

/// Returns `true` for the characters of a literal: characters of a path segment without a meaning in templates.
fn is_literal(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_.~%!$&'()+,;@".contains(letter)
}

/// Decodes percent-encoded UTF-8. Returns `None` if it is invalid.
pub(crate) fn decode(text: &str) -> Option<String> {
    decode_except(text, |_| false)
}

/// Decodes percent-encoded UTF-8, except for bytes with `is_kept`. Returns `None` if it is invalid.
pub(crate) fn decode_except(text: &str, is_kept: impl Fn(u8) -> bool) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let value = digit(digits[0])? << 4 | digit(digits[1])?;
        if is_kept(value) {
            decoded.extend([b'%', digits[0], digits[1]]);
        } else {
            decoded.push(value);
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> TemplateSegment {
        TemplateSegment::Literal(text.to_owned())
    }

    #[test]
    fn templates_consist_of_segments_variables_and_a_verb() {
        let template = PathTemplate::parse("/v1/{name=shelves/*/books/**}:a:b").unwrap();
        let segments =
            [literal("v1"), literal("shelves"), TemplateSegment::One, literal("books"), TemplateSegment::Rest];
        assert_eq!(template.segments, segments);
        assert_eq!(template.variables, [TemplateVariable { field: "name".to_owned(), segments: 1..5 }]);
        assert_eq!(template.verb(), Some("a:b"));

        let template = PathTemplate::parse("/v1/{a.b_c}/x%20y/{d}/notes:echo").unwrap();
        assert_eq!(template.fields().collect::<Vec<_>>(), ["a.b_c", "d"]);
        assert_eq!(template.segments[2], literal("x y"));
        assert_eq!((template.segments.last(), template.verb()), (Some(&literal("notes")), Some("echo")));
        assert_eq!(PathTemplate::parse("/").unwrap().segments, []);
    }

    #[test]
    fn mistakes_are_named_with_their_position() {
        for (text, error) in [
            ("", "a path template starts with a slash (at byte 0)"),
            ("v1", "a path template starts with a slash (at byte 0)"),
            ("//a", "a segment is empty (at byte 1)"),
            ("/a/", "a segment is empty (at byte 3)"),
            ("/a:", "the verb after the colon is missing (at byte 3)"),
            ("/a:b/c", "a colon is allowed before the verb only (at byte 2)"),
            ("/a:b c", "a colon is allowed before the verb only (at byte 2)"),
            ("/*:b c", "unexpected character in a verb (at byte 4)"),
            ("/**/a/**", "a path has at most one `**` (at byte 8)"),
            ("/{a=**}/{b=c/**}", "a path has at most one `**` (at byte 15)"),
            ("/{a", "the variable is not closed with `}` (at byte 2)"),
            ("/{a=b", "the variable is not closed with `}` (at byte 5)"),
            ("/{a=b*}", "the variable is not closed with `}` (at byte 5)"),
            ("/{}", "a variable needs the name of a field (at byte 2)"),
            ("/{a..b}", "a variable needs the name of a field (at byte 2)"),
            ("/{1}", "a variable needs the name of a field (at byte 2)"),
            ("/{a={b}}", "a variable cannot contain another one (at byte 5)"),
            ("/{a}/{a}", "the same field is used twice (at byte 6)"),
            ("/{a}b", "unexpected character (at byte 4)"),
            ("/a%2", "invalid percent-encoding (at byte 1)"),
            ("/a?b", "unexpected character (at byte 2)"),
            ("/\u{e9}", "a segment is empty (at byte 1)"),
        ] {
            assert_eq!(PathTemplate::parse(text).unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn escapes_are_decoded_once() {
        assert_eq!(decode("a%2525%c3%A9").as_deref(), Some("a%25\u{e9}"));
        assert_eq!(decode_except("%2f%2e", |byte| byte == b'/').as_deref(), Some("%2f."));
        for text in ["%", "%4", "%zz", "%+1", "%ff", "%c3"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
