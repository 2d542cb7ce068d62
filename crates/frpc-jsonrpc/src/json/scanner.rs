use std::fmt;

use super::text::{digits_len, plain_len};

/// A validating JSON scanner that finds the ends of values. It neither allocates nor recurses, whatever the nesting.
#[derive(Clone, Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth_max: u32,
    /// The number of objects and arrays around the position.
    depth: u32,
}

/// The largest depth supported by [`Scanner`].
pub(crate) const DEPTH_MAX: u32 = 127;

/// The reason for rejecting JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The text ends in the middle of a value. With more text it may become valid.
    Ends,
    /// Something else was expected at the position.
    Expected(&'static str),
    /// The nesting is deeper than this limit.
    TooDeep(u32),
}

pub(crate) type Result<T> = std::result::Result<T, Fault>;

impl<'a> Scanner<'a> {
    #[inline]
    pub(crate) fn new(text: &'a str, depth_max: u32) -> Self {
        Self { text, at: 0, depth_max: depth_max.min(DEPTH_MAX), depth: 0 }
    }

    /// Returns the number of bytes read.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Returns the text from `start` to the current position.
    #[inline]
    pub(crate) fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    /// Skips white space and returns the next byte.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Enters an object or array at its opening byte. Returns `true` unless it is empty.
    #[inline]
    pub(crate) fn enter(&mut self, close: u8) -> Result<bool> {
        if self.depth == self.depth_max {
            return Err(Fault::TooDeep(self.depth_max));
        }
        self.depth += 1;
        self.at += 1;
        match self.peek() {
            None => Err(Fault::Ends),
            Some(byte) if byte == close => {
                self.leave();
                Ok(false)
            }
            Some(_) => Ok(true),
        }
    }

    #[inline]
    fn leave(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    /// Reads the byte after an item: a comma or `close`. Returns `true` if another item follows.
    #[inline]
    pub(crate) fn is_more(&mut self, close: u8) -> Result<bool> {
        match self.peek() {
            None => Err(Fault::Ends),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.leave();
                Ok(false)
            }
            Some(_) => Err(Fault::Expected(if close == b'}' { "a comma or a brace" } else { "a comma or a bracket" })),
        }
    }

    /// Reads a member name and its colon. Returns the name without quotes, still escaped.
    #[inline]
    pub(crate) fn name(&mut self) -> Result<&'a str> {
        match self.peek() {
            None => return Err(Fault::Ends),
            Some(b'"') => {}
            Some(_) => return Err(Fault::Expected("a name in quotes")),
        }
        let name = self.string()?;
        match self.peek() {
            None => Err(Fault::Ends),
            Some(b':') => {
                self.at += 1;
                Ok(name)
            }
            Some(_) => Err(Fault::Expected("a colon")),
        }
    }

    /// Reads a string at its opening quote. Returns the text without quotes, still escaped.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<&'a str> {
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
                Some(b'\\') => at += 1 + escape_len(&bytes[at + 1..])?,
                Some(_) => {
                    self.at = at;
                    return Err(Fault::Expected("a letter of a string, not a control character"));
                }
                None => return Err(Fault::Ends),
            }
        }
    }

    /// Reads a value of any type and returns its text.
    #[inline]
    pub(crate) fn value(&mut self) -> Result<&'a str> {
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
                None => return Err(Fault::Ends),
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
                Some(b't') => self.word("true").map(|()| false)?,
                Some(b'f') => self.word("false").map(|()| false)?,
                Some(b'n') => self.word("null").map(|()| false)?,
                Some(_) => return Err(Fault::Expected("a value")),
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

    fn word(&mut self, word: &'static str) -> Result<()> {
        let rest = &self.text.as_bytes()[self.at..];
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(());
        }
        Err(if word.as_bytes().starts_with(rest) { Fault::Ends } else { Fault::Expected("a value") })
    }

    /// Reads a number of any length. A number at the end of the text may continue after it, and the caller has to
    /// consider that.
    #[inline]
    fn number(&mut self) -> Result<()> {
        let bytes = self.text.as_bytes();
        let digits = |at: usize| {
            let len = digits_len(&bytes[at..]);
            match (len, bytes.get(at)) {
                (0, None) => Err(Fault::Ends),
                (0, Some(_)) => Err(Fault::Expected("a digit")),
                _ => Ok(at + len),
            }
        };
        let mut at = self.at + usize::from(bytes[self.at] == b'-');
        at = if bytes.get(at) == Some(&b'0') { at + 1 } else { digits(at)? };
        if bytes.get(at) == Some(&b'.') {
            at = digits(at + 1)?;
        }
        if let Some(b'e' | b'E') = bytes.get(at) {
            let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            at = digits(at + 1 + sign)?;
        }
        self.at = at;
        Ok(())
    }
}

/// Returns the length of an escape sequence without its backslash.
fn escape_len(escape: &[u8]) -> Result<usize> {
    match escape.first() {
        None => Err(Fault::Ends),
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(1),
        Some(b'u') => match escape[1..].iter().take(4).position(|byte| !byte.is_ascii_hexdigit()) {
            Some(_) => Err(Fault::Expected("four hexadecimal digits")),
            None if escape.len() < 5 => Err(Fault::Ends),
            None => Ok(5),
        },
        Some(_) => Err(Fault::Expected("an escape")),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ends => f.write_str("the JSON ends too early"),
            Self::Expected(what) => write!(f, "expected {what}"),
            Self::TooDeep(limit) => write!(f, "nested deeper than {limit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn read(text: &str) -> Result<()> {
        let mut scanner = Scanner::new(text, 100);
        scanner.value()?;
        scanner.peek().map_or(Ok(()), |_| Err(Fault::Expected("nothing more")))
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
            assert_eq!(read(&text[..at]), Err(Fault::Ends), "{}", &text[..at]);
        }
    }

    #[test]
    fn depth_has_a_limit() {
        for (depth, limit, is_taken) in [(3, 3, true), (4, 3, false), (127, 1000, true), (128, 1000, false)] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let mut scanner = Scanner::new(&text, limit);
                let expected = if is_taken { Ok(&text[..]) } else { Err(Fault::TooDeep(limit.min(DEPTH_MAX))) };
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
