use std::borrow::Cow;

use crate::{
    error::{Result, SyntaxError},
    search::{digits_len, next_token, plain_len},
    text::unescape_into,
};

/// A JSON tokenizer for untrusted text. It does not recurse, and it allocates only to unescape strings.
///
/// [`value`](Self::value) and [`enter`](Self::enter) limit the nesting. [`open`](Self::open) and
/// [`next_item`](Self::next_item) do not count it.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth_max: u32,
    /// The number of objects and arrays around the position.
    depth: u32,
}

/// The largest depth supported by [`Scanner`].
pub const DEPTH_MAX: u32 = 127;

impl<'a> Scanner<'a> {
    /// Starts at the beginning of `text`. Nesting deeper than `depth_max` or [`DEPTH_MAX`] is an error.
    #[inline]
    pub fn new(text: &'a str, depth_max: u32) -> Self {
        Self { text, at: 0, depth_max: depth_max.min(DEPTH_MAX), depth: 0 }
    }

    /// Sets the maximum nesting of the next values.
    pub fn set_depth_max(&mut self, depth_max: u32) {
        self.depth_max = depth_max.min(DEPTH_MAX);
    }

    /// Returns the number of bytes read. After an error, this is its position.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns to an earlier position at the same depth.
    #[inline]
    pub fn rewind(&mut self, position: usize) {
        self.at = position;
    }

    /// Returns the text from `start` to the current position.
    #[inline]
    pub fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    /// Skips white space and returns the next byte.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        next_token(self.text, &mut self.at)
    }

    /// Returns a description of the next token for errors, or `None` at the end of the text.
    #[cold]
    pub fn found(&mut self) -> Option<&'static str> {
        Some(match self.peek()? {
            b'"' => "text",
            b'-' | b'0'..=b'9' => "a number",
            b't' | b'f' => "true or false",
            b'n' => "null",
            b'{' => "an object",
            b'[' => "a list",
            b'}' => "a closing brace",
            b']' => "a closing bracket",
            b',' => "a comma",
            b':' => "a colon",
            _ => "something else",
        })
    }

    #[cold]
    fn expected<T>(&self, expected: &'static str) -> Result<T> {
        let is_end = self.at >= self.text.len();
        Err(if is_end { SyntaxError::Truncated } else { SyntaxError::Expected(expected) })
    }

    /// Reads the opening byte of an object or array, if it is the next one. Returns `true` unless it is empty. Does not
    /// count the depth.
    #[inline]
    pub fn open(&mut self, open: u8, close: u8, expected: &'static str) -> Result<bool> {
        if self.peek() != Some(open) {
            return self.expected(expected);
        }
        self.at += 1;
        let is_empty = self.peek() == Some(close);
        self.at += usize::from(is_empty);
        Ok(!is_empty)
    }

    /// Reads the byte after an item: a comma or `close`. Returns `true` if another item follows. Does not count the
    /// depth.
    #[inline]
    pub fn next_item(&mut self, close: u8) -> Result<bool> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => self.expected(if close == b'}' { "a comma or a brace" } else { "a comma or a bracket" }),
        }
    }

    /// Enters an object or array at its opening byte. Returns `true` unless it is empty.
    #[inline]
    pub fn enter(&mut self, close: u8) -> Result<bool> {
        if self.depth == self.depth_max {
            return Err(SyntaxError::TooDeep(self.depth_max));
        }
        self.depth += 1;
        self.at += 1;
        match self.peek() {
            None => Err(SyntaxError::Truncated),
            Some(byte) if byte == close => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            Some(_) => Ok(true),
        }
    }

    /// Reads the byte after an item of an [entered](Self::enter) object or array: a comma or `close`. Returns `true` if
    /// another item follows.
    #[inline]
    pub fn is_more(&mut self, close: u8) -> Result<bool> {
        let is_more = self.next_item(close)?;
        if !is_more {
            self.depth -= 1;
        }
        Ok(is_more)
    }

    /// Reads a member name and its colon. Returns the name without quotes, still escaped.
    #[inline]
    pub fn name(&mut self) -> Result<&'a str> {
        if self.peek() != Some(b'"') {
            return self.expected(NAME);
        }
        let name = self.string()?;
        self.colon()?;
        Ok(name)
    }

    /// Reads a member name and its colon, and unescapes the name.
    #[inline]
    pub fn name_text(&mut self) -> Result<Cow<'a, str>> {
        let name = self.text(NAME)?;
        self.colon()?;
        Ok(name)
    }

    #[inline]
    fn colon(&mut self) -> Result<()> {
        if self.peek() != Some(b':') {
            return self.expected("a colon");
        }
        self.at += 1;
        Ok(())
    }

    /// Skips this name and its colon if they come next without escapes and without spaces before the colon.
    #[inline]
    pub fn skip_name(&mut self, name: &str) -> bool {
        let bytes = &self.text.as_bytes()[self.at..];
        let Some((b'"', bytes)) = bytes.split_first() else { return false };
        let Some((found, [b'"', b':', ..])) = bytes.split_at_checked(name.len()) else { return false };
        let is_next = found == name.as_bytes();
        if is_next {
            self.at += name.len() + 3;
        }
        is_next
    }

    /// Reads a string at its opening quote. Returns the text without quotes, still escaped.
    #[inline]
    pub fn string(&mut self) -> Result<&'a str> {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut at = start;
        loop {
            at += plain_len(&bytes[at..]);
            match bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(&self.text[start..at]);
                }
                Some(b'\\') => match escape_len(&bytes[at + 1..]) {
                    Ok(len) => at += 1 + len,
                    Err(error) => {
                        self.at = at;
                        return Err(error);
                    }
                },
                Some(_) => {
                    self.at = at;
                    return Err(CONTROL_CHARACTER);
                }
                None => return Err(SyntaxError::Truncated),
            }
        }
    }

    /// Reads a string and unescapes it. Half of a surrogate pair is an error.
    #[inline]
    pub fn text(&mut self, expected: &'static str) -> Result<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return self.expected(expected);
        }
        let start = self.at + 1;
        let end = start + plain_len(&self.text.as_bytes()[start..]);
        if self.text.as_bytes().get(end) != Some(&b'"') {
            return self.text_with_escapes(start, end).map(Cow::Owned);
        }
        self.at = end + 1;
        Ok(Cow::Borrowed(&self.text[start..end]))
    }

    /// Reads the rest of a string from its first escape. The text from `start` to `end` has none.
    #[cold]
    fn text_with_escapes(&mut self, start: usize, end: usize) -> Result<String> {
        // A small reserve only: most strings with escapes have few of them.
        let mut text = String::with_capacity(end - start + ESCAPES_LEN);
        text.push_str(&self.text[start..end]);
        let (rest, error) = match unescape_into(&self.text[end..], &mut text) {
            Ok(len) => (end + len, None),
            Err(len) => (end + len, Some(BAD_ESCAPE)),
        };
        self.at = rest;
        match (error, self.text.as_bytes().get(rest)) {
            (Some(error), _) => Err(error),
            (None, Some(b'"')) => {
                self.at += 1;
                Ok(text)
            }
            (None, Some(_)) => Err(CONTROL_CHARACTER),
            (None, None) => Err(SyntaxError::Truncated),
        }
    }

    /// Reads a value of any type and returns its text.
    #[inline]
    pub fn value(&mut self) -> Result<&'a str> {
        self.peek();
        let start = self.at;
        self.skip()?;
        Ok(self.since(start))
    }

    fn skip(&mut self) -> Result<()> {
        let outside = self.depth;
        // One bit per nesting level, set for objects. The innermost level has the lowest bit.
        let mut objects = 0_u128;
        loop {
            // Expect a value.
            let is_inside = match self.peek() {
                None => return Err(SyntaxError::Truncated),
                Some(b'"') => self.string().map(|_| false)?,
                Some(b'{') => {
                    objects = objects << 1 | 1;
                    let is_inside = self.enter(b'}')?;
                    if !is_inside {
                        objects >>= 1;
                    }
                    is_inside
                }
                Some(b'[') => {
                    objects <<= 1;
                    let is_inside = self.enter(b']')?;
                    if !is_inside {
                        objects >>= 1;
                    }
                    is_inside
                }
                Some(b'-' | b'0'..=b'9') => self.number().map(|()| false)?,
                Some(b't') => self.word("true", "a value").map(|()| false)?,
                Some(b'f') => self.word("false", "a value").map(|()| false)?,
                Some(b'n') => self.word("null", "a value").map(|()| false)?,
                Some(_) => return Err(SyntaxError::Expected("a value")),
            };
            let mut is_next = is_inside;
            while !is_next {
                if self.depth == outside {
                    return Ok(());
                }
                let close = if objects & 1 == 1 { b'}' } else { b']' };
                is_next = self.is_more(close)?;
                if !is_next {
                    objects >>= 1;
                }
            }
            if objects & 1 == 1 {
                self.name()?;
            }
        }
    }

    /// Reads this word.
    pub fn word(&mut self, word: &'static str, expected: &'static str) -> Result<()> {
        self.peek();
        let rest = &self.text.as_bytes()[self.at..];
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(());
        }
        Err(if word.as_bytes().starts_with(rest) { SyntaxError::Truncated } else { SyntaxError::Expected(expected) })
    }

    /// Reads a number of any length. A number at the end of the text may continue after it, and the caller has to
    /// consider that.
    #[inline]
    pub fn number(&mut self) -> Result<()> {
        let bytes = self.text.as_bytes();
        if self.at >= bytes.len() {
            return Err(SyntaxError::Truncated);
        }
        match number_end(bytes, self.at) {
            Ok(end) => {
                self.at = end;
                Ok(())
            }
            Err(at) => {
                self.at = at;
                self.expected("a digit")
            }
        }
    }

    /// Reads an integer, quoted or not, if it has at most 19 digits and neither a fraction nor an exponent. Returns
    /// `true` for a negative one, and the absolute value. Otherwise reads nothing.
    #[inline]
    pub fn plain_integer(&mut self) -> Option<(bool, u64)> {
        let is_quoted = self.peek() == Some(b'"');
        let bytes = self.text.as_bytes();
        let start = self.at + usize::from(is_quoted);
        let is_negative = bytes.get(start) == Some(&b'-');
        let start = start + usize::from(is_negative);
        let (mut at, mut number) = (start, 0);
        while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit <= 9) {
            if at - start == PLAIN_DIGITS_MAX {
                return None;
            }
            number = number * 10 + u64::from(digit);
            at += 1;
        }
        let is_plain = match at - start {
            0 => false,
            len => len == 1 || bytes[start] != b'0',
        };
        let is_end = match bytes.get(at) {
            Some(b'"') => is_quoted,
            Some(b'.' | b'e' | b'E') => false,
            _ => !is_quoted,
        };
        if !is_plain || !is_end {
            return None;
        }
        self.at = at + usize::from(is_quoted);
        Some((is_negative, number))
    }
}

/// Returns the end of the number at `at`, or the position of a missing digit.
#[inline(always)] // Called once.
fn number_end(bytes: &[u8], at: usize) -> Result<usize, usize> {
    let digits = |at: usize| match digits_len(&bytes[at..]) {
        0 => Err(at),
        len => Ok(at + len),
    };
    let mut end = at + usize::from(bytes[at] == b'-');
    end = if bytes.get(end) == Some(&b'0') { end + 1 } else { digits(end)? };
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end = digits(end + 1 + sign)?;
    }
    Ok(end)
}

/// Returns the length of an escape sequence without its backslash.
fn escape_len(escape: &[u8]) -> Result<usize> {
    match escape.first() {
        None => Err(SyntaxError::Truncated),
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(1),
        Some(b'u') => match escape[1..].iter().take(4).position(|byte| !byte.is_ascii_hexdigit()) {
            Some(_) => Err(BAD_ESCAPE),
            None if escape.len() < 5 => Err(SyntaxError::Truncated),
            None => Ok(5),
        },
        Some(_) => Err(BAD_ESCAPE),
    }
}

const NAME: &str = "a name in quotes";
const BAD_ESCAPE: SyntaxError = SyntaxError::Invalid("an escape");
const CONTROL_CHARACTER: SyntaxError =
    SyntaxError::Invalid("a letter of a string, but a control character without escape");

/// Maximum number of decimal digits that always fit in a `u64`.
const PLAIN_DIGITS_MAX: usize = 19;

/// Extra capacity of a string for the text after its first escape.
const ESCAPES_LEN: usize = 24;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn read(text: &str) -> Result<()> {
        let mut scanner = Scanner::new(text, 100);
        scanner.value()?;
        scanner.peek().map_or(Ok(()), |_| Err(SyntaxError::Expected("nothing more")))
    }

    #[test]
    fn what_serde_json_takes_is_taken_and_nothing_else() {
        let texts = [
            "{}",
            "[]",
            "[[],{}]",
            r#"{"a":[1,{"b":null}],"c":"d"}"#,
            "-0",
            "0.5e-7",
            "1E+9",
            "123456789012345678901234567890",
            "true",
            " false ",
            "\"\\u00e4\\n\"",
            "[1,]",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "-",
            "nul",
            "nulll",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\u{1}\"",
            "\"",
            "{a:1}",
            "[1 2]",
            "[}",
            "{]",
            "",
            " ",
            "1 2",
            "//",
            "'a'",
            "[1]]",
            "NaN",
            "{\"a\":1}{",
            "[[[[1]]],2]",
            "[{\"a\":[{}]},3]",
        ];
        for text in texts {
            assert_eq!(read(text).is_ok(), serde_json::from_str::<Value>(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_cut_off_ends_too_early_and_is_not_wrong() {
        let text = r#"{"a":[1.5e-7,true,{"b":null,"ü\u00e4":"d\\"},false],"":[[],{}]}"#;
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            assert_eq!(read(&text[..at]), Err(SyntaxError::Truncated), "{}", &text[..at]);
        }
    }

    #[test]
    fn depth_has_a_limit() {
        for (depth, limit, is_taken) in [(3, 3, true), (4, 3, false), (127, 1000, true), (128, 1000, false)] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let mut scanner = Scanner::new(&text, limit);
                let expected = if is_taken { Ok(&text[..]) } else { Err(SyntaxError::TooDeep(limit.min(DEPTH_MAX))) };
                assert_eq!(scanner.value(), expected, "{depth}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_long_text_is_taken_if_serde_json_takes_it(text in r#"[{\["]{1,3}[a-z1]{0,70}[\\"a1,:ü\n]{0,6}[a-z1]{0,70}["}\]]{1,3}"#) {
            prop_assert_eq!(read(&text).is_ok(), serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{}", text);
        }

        #[test]
        fn any_text_is_taken_if_serde_json_takes_it(text in r#"[\[\]{}:,"\\ea1.0tnul -]{0,14}"#) {
            prop_assert_eq!(read(&text).is_ok(), serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{}", text);
        }
    }
}
