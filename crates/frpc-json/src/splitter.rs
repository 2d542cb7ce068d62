use crate::{
    search::{flat_len, next_token},
    text::string_len,
};

/// A reader of values in text that a [`Scanner`](crate::Scanner) accepted. It makes fewer checks, so malformed text has
/// meaningless values, but never causes a panic.
#[derive(Clone, Debug)]
pub struct Splitter<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Splitter<'a> {
    /// Starts at the beginning of `text`.
    #[inline]
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Skips white space and returns the next byte.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        next_token(self.text, &mut self.at)
    }

    /// Skips white space and takes the next byte.
    #[inline]
    pub fn next_byte(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Takes the text of the next value. Returns `None` if there is none.
    #[inline]
    pub fn value(&mut self) -> Option<&'a str> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => self.skip_string()?,
            b'[' | b'{' => self.skip_nested()?,
            _ => self.skip_word(),
        }
        // A value ends next to an ASCII character, unless the text is malformed.
        self.text.get(start..self.at).filter(|value| !value.is_empty())
    }

    #[inline]
    fn skip_word(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let is_end = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b':' | b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().position(is_end).unwrap_or(rest.len());
    }

    #[inline]
    fn skip_string(&mut self) -> Option<()> {
        self.at += 1;
        self.at += string_len(self.text.as_bytes().get(self.at..)?)? + 1;
        Some(())
    }

    fn skip_nested(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let mut depth = 0_usize;
        loop {
            let rest = bytes.get(self.at..)?;
            let len = flat_len(rest);
            self.at += len;
            match *rest.get(len)? {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'[' | b'{' => depth += 1,
                _ => depth -= 1,
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}
