use std::{borrow::Cow, mem};

use super::{
    base64,
    error::{Error, ErrorKind, Result},
    numbers, text, time,
};
use crate::codec::{
    polyglot::{ALLOCATION_LEN, stack_address},
    reading::Reading,
};

/// Kind of the next value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "JSON has no others")]
pub enum Next {
    Null,
    Bool,
    Number,
    String,
    List,
    Object,
}

/// A JSON parser with limits on memory, stack and nesting depth, safe for untrusted input.
///
/// Values are parsed into existing places. Each place must hold the default of its type.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    /// Current position in the text.
    at: usize,
    depth: u32,
    /// Lowest stack address allowed. Each enclosing message raises it by its size in memory.
    stack_end: usize,
    /// Number of bytes left to allocate.
    memory_left: usize,
    memory_max: usize,
    /// `true` if the next object is the content of an `Any`, so its member `@type` is expected.
    is_any: bool,
    /// `true` if the value parsed last was an unknown enum name.
    is_unknown: bool,
    /// `true` if unknown fields and enum names are errors.
    is_strict: bool,
    /// `true` after an unknown field or enum name was ignored.
    has_unknown: bool,
    pub(super) types: &'static dyn ReadAny,
}

/// Message types an `Any` can contain.
pub(super) trait ReadAny: Sync + std::fmt::Debug {
    /// Parses an `Any` and returns its type URL and encoded content.
    fn read_any(&self, input: &mut Reader<'_>) -> Result<(String, Vec<u8>)>;
}

impl<'a> Reader<'a> {
    /// Maximum nesting depth of messages. Maps and values of `google.protobuf.Struct` count as messages.
    pub const DEPTH_MAX: u32 = 100;

    /// Maximum stack use in bytes. Enclosing messages also count with their size in memory.
    pub const STACK_LEN_MAX: usize = 512 << 10;

    /// Number of bytes every message may take in memory, however short its text is.
    pub const MEMORY_LEN_MIN: usize = 1 << 20;

    /// Additional bytes of memory allowed per byte of text, on top of [`MEMORY_LEN_MIN`](Self::MEMORY_LEN_MIN). Large,
    /// because JSON omits default fields: a short text can be a large message.
    pub const MEMORY_FACTOR: usize = 64;

    pub(super) fn new(text: &'a str, types: &'static dyn ReadAny, reading: &Reading) -> Self {
        let memory_max = reading.budget.within(Self::memory_max(text), text.len());
        Self {
            text,
            at: 0,
            depth: 1,
            stack_end: stack_address().saturating_sub(Self::STACK_LEN_MAX),
            memory_left: memory_max,
            memory_max,
            is_any: false,
            is_unknown: false,
            is_strict: reading.is_strict,
            has_unknown: false,
            types,
        }
    }

    /// Parses a `bool`.
    pub fn bool(&mut self, into: &mut bool) -> Result<()> {
        *into = self.peek() == Some(b't');
        self.word(if *into { "true" } else { "false" }, "true or false")
    }

    /// Parses an `i32`.
    pub fn i32(&mut self, into: &mut i32) -> Result<()> {
        let (is_negative, number) = self.integer()?;
        let number = numbers::signed(is_negative, number).and_then(|number| i32::try_from(number).ok());
        *into = number.ok_or_else(|| self.error(ErrorKind::OutOfRange { of: "an i32" }))?;
        Ok(())
    }

    /// Parses an `i64`.
    pub fn i64(&mut self, into: &mut i64) -> Result<()> {
        let (is_negative, number) = self.integer()?;
        *into =
            numbers::signed(is_negative, number).ok_or_else(|| self.error(ErrorKind::OutOfRange { of: "an i64" }))?;
        Ok(())
    }

    /// Parses a `u32`.
    pub fn u32(&mut self, into: &mut u32) -> Result<()> {
        let (is_negative, number) = self.integer()?;
        let number = numbers::unsigned(is_negative, number).and_then(|number| u32::try_from(number).ok());
        *into = number.ok_or_else(|| self.error(ErrorKind::OutOfRange { of: "a u32" }))?;
        Ok(())
    }

    /// Parses a `u64`.
    pub fn u64(&mut self, into: &mut u64) -> Result<()> {
        let (is_negative, number) = self.integer()?;
        *into =
            numbers::unsigned(is_negative, number).ok_or_else(|| self.error(ErrorKind::OutOfRange { of: "a u64" }))?;
        Ok(())
    }

    /// Parses an `f32`.
    pub fn f32(&mut self, into: &mut f32) -> Result<()> {
        let number: f32 = match &*self.number_text()? {
            "NaN" => f32::NAN,
            "Infinity" => f32::INFINITY,
            "-Infinity" => f32::NEG_INFINITY,
            number => {
                number.parse().ok().filter(|number: &f32| number.is_finite()).ok_or_else(|| self.too_large("an f32"))?
            }
        };
        *into = number;
        Ok(())
    }

    /// Parses an `f64`.
    pub fn f64(&mut self, into: &mut f64) -> Result<()> {
        let number: f64 = match &*self.number_text()? {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            number => {
                number.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| self.too_large("an f64"))?
            }
        };
        *into = number;
        Ok(())
    }

    /// Parses a string.
    pub fn string(&mut self, into: &mut String) -> Result<()> {
        match self.string_text("text")? {
            Cow::Borrowed(text) => {
                self.charge(text.len())?;
                *into = text.to_owned();
            }
            Cow::Owned(text) => {
                self.charge(text.capacity())?;
                *into = text;
            }
        }
        Ok(())
    }

    /// Parses bytes from base64.
    pub fn bytes<T: From<Vec<u8>>>(&mut self, into: &mut T) -> Result<()> {
        *into = self.base64()?.into();
        Ok(())
    }

    fn base64(&mut self) -> Result<Vec<u8>> {
        let text = self.string_text("base64 in quotes")?;
        self.charge(text.len())?;
        base64::decode(&text).ok_or_else(|| self.invalid("base64"))
    }

    /// Parses an enum value from its number or from a name in `names`, sorted by name. For an unknown name, `into`
    /// keeps its value, and the caller drops the field or element.
    pub(super) fn number_of(&mut self, names: &[(&str, i32)], into: &mut i32) -> Result<()> {
        if self.peek() != Some(b'"') {
            return self.i32(into);
        }
        let name = self.string_text("the name of an enum value")?;
        match names.binary_search_by(|(known, _)| (**known).cmp(&name)) {
            Ok(index) => *into = names[index].1,
            Err(_) => {
                self.ignore_unknown(|| ErrorKind::UnknownEnumName { name: name.into_owned() })?;
                self.is_unknown = true;
            }
        }
        Ok(())
    }

    /// Returns `true` once if the value parsed last was an unknown enum name.
    pub(super) fn take_unknown(&mut self) -> bool {
        mem::take(&mut self.is_unknown)
    }

    /// Records an unknown field or enum name.
    ///
    /// # Errors
    ///
    /// Fails in strict mode.
    #[cold]
    pub(super) fn ignore_unknown(&mut self, kind: impl FnOnce() -> ErrorKind) -> Result<()> {
        if self.is_strict {
            return Err(self.error(kind()));
        }
        self.has_unknown = true;
        Ok(())
    }

    /// Returns `true` if an unknown field or enum name was ignored.
    pub(super) fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    /// Parses a timestamp in RFC 3339 format.
    pub fn timestamp(&mut self, seconds: &mut i64, nanos: &mut i32) -> Result<()> {
        let text = self.string_text("a timestamp in quotes")?;
        (*seconds, *nanos) = time::timestamp(&text).ok_or_else(|| self.invalid("a timestamp"))?;
        Ok(())
    }

    /// Parses a duration in seconds, such as `1.5s`.
    pub fn duration(&mut self, seconds: &mut i64, nanos: &mut i32) -> Result<()> {
        let text = self.string_text("a duration in quotes")?;
        (*seconds, *nanos) = time::duration(&text).ok_or_else(|| self.invalid("a duration"))?;
        Ok(())
    }

    /// Parses the paths of a field mask.
    pub fn field_mask(&mut self, into: &mut Vec<String>) -> Result<()> {
        let text = self.string_text("the paths of a field mask in quotes")?;
        if text.is_empty() {
            return Ok(());
        }
        for path in text.split(',') {
            let path = snake_case(path).ok_or_else(|| self.invalid("a path of a field mask"))?;
            self.charge(path.capacity())?;
            self.reserve(into)?;
            into.push(path);
        }
        Ok(())
    }

    /// Parses an `Any`.
    pub fn any<T: From<Vec<u8>>>(&mut self, type_url: &mut String, value: &mut T) -> Result<()> {
        let (url, bytes) = self.types.read_any(self)?;
        (*type_url, *value) = (url, bytes.into());
        Ok(())
    }

    /// Parses `null`.
    pub fn null(&mut self) -> Result<()> {
        self.word("null", "null")
    }

    /// Returns the kind of the next value.
    pub fn next_value(&mut self) -> Result<Next> {
        match self.peek() {
            Some(b'n') => Ok(Next::Null),
            Some(b't' | b'f') => Ok(Next::Bool),
            Some(b'-' | b'0'..=b'9') => Ok(Next::Number),
            Some(b'"') => Ok(Next::String),
            Some(b'[') => Ok(Next::List),
            Some(b'{') => Ok(Next::Object),
            _ => Err(self.expected("a value")),
        }
    }

    /// Skips a value of any kind.
    pub fn skip(&mut self) -> Result<()> {
        match self.next_value()? {
            Next::Null => self.null(),
            Next::Bool => self.bool(&mut false),
            Next::Number => self.number_token().map(drop),
            Next::String => self.string_text("text").map(drop),
            Next::List => {
                self.enter(0)?;
                let mut is_more = self.begin(b'[', b']', "a list")?;
                while is_more {
                    self.skip()?;
                    is_more = self.is_more(b']')?;
                }
                self.leave(0);
                Ok(())
            }
            Next::Object => {
                self.enter(0)?;
                let mut is_more = self.begin(b'{', b'}', "an object")?;
                while is_more {
                    self.name()?;
                    self.skip()?;
                    is_more = self.is_more(b'}')?;
                }
                self.leave(0);
                Ok(())
            }
        }
    }

    /// Fails if text remains after the message.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error(ErrorKind::Trailing)),
        }
    }

    /// Returns the type URL of the next `Any` without moving the position. Returns `None` for an empty object.
    pub(super) fn any_type(&mut self) -> Result<Option<Cow<'a, str>>> {
        self.peek();
        let start = self.at;
        let mut is_more = self.begin(b'{', b'}', "an object")?;
        if !is_more {
            self.at = start;
            return Ok(None);
        }
        let mut skipped = 0;
        while is_more {
            if self.name()? == "@type" {
                let url = self.string_text("a type in quotes").map_err(|error| error.in_field("@type"))?;
                self.at = start;
                // Text scanned twice counts as memory. Otherwise a chain of nested `Any` values could rescan it at each
                // level.
                self.charge(skipped * RESCAN_COST + url.len())?;
                return Ok(Some(url));
            }
            self.skip()?;
            skipped = self.at - start;
            is_more = self.is_more(b'}')?;
        }
        self.at = start;
        Err(self.error(ErrorKind::NoType))
    }

    /// Marks the next object as the content of an `Any`.
    pub(super) fn expect_any(&mut self) {
        self.is_any = true;
    }

    /// Counts the outermost message. It may use the whole stack allowance.
    pub(super) fn outermost(&mut self, len: usize) {
        self.stack_end += len;
    }

    /// Returns `true` once if the next object is the content of an `Any`.
    pub(super) fn take_any(&mut self) -> bool {
        mem::take(&mut self.is_any)
    }

    /// Enters a message of `len` bytes in memory. Fails at the maximum depth or stack use.
    pub(super) fn enter(&mut self, len: usize) -> Result<()> {
        if self.depth == Self::DEPTH_MAX || stack_address() < self.stack_end {
            return Err(self.error(ErrorKind::TooDeep { limit: self.depth }));
        }
        self.depth += 1;
        self.stack_end += len;
        Ok(())
    }

    /// Leaves a message after success. After an error parsing stops, so the counters no longer matter.
    pub(super) fn leave(&mut self, len: usize) {
        self.stack_end -= len;
        self.depth -= 1;
    }

    /// Returns the number of bytes allocated so far.
    pub(super) fn memory_taken(&self) -> usize {
        self.memory_max - self.memory_left
    }

    /// Counts an allocation of `len` bytes against the memory limit.
    pub(super) fn charge(&mut self, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        match self.memory_left.checked_sub(len.saturating_add(ALLOCATION_LEN)) {
            Some(left) => {
                self.memory_left = left;
                Ok(())
            }
            None => Err(self.error(ErrorKind::TooMuchMemory { limit: self.memory_max })),
        }
    }

    /// Grows a full list for another element. Counts the memory before allocating it.
    pub(super) fn reserve<T>(&mut self, list: &mut Vec<T>) -> Result<()> {
        if list.len() == list.capacity() {
            list.reserve_exact(self.more(list.len(), size_of::<T>())?);
        }
        Ok(())
    }

    /// Returns the number of elements to add to the capacity of a full list, after counting their memory.
    fn more(&mut self, len: usize, item_len: usize) -> Result<usize> {
        let more = len.max(if item_len <= SMALL_LEN { 4 } else { 1 });
        // During the reallocation the old elements exist twice.
        self.charge((len + more).saturating_mul(item_len))?;
        Ok(more)
    }

    /// Parses the opening bracket or brace. Returns `false` if the list or object is empty.
    #[inline]
    pub(super) fn begin(&mut self, open: u8, close: u8, expected: &'static str) -> Result<bool> {
        if self.peek() != Some(open) {
            return Err(self.expected(expected));
        }
        self.at += 1;
        let is_empty = self.peek() == Some(close);
        self.at += usize::from(is_empty);
        Ok(!is_empty)
    }

    /// Parses the comma or closing bracket after an element. Returns `true` if another element follows.
    #[inline]
    pub(super) fn is_more(&mut self, close: u8) -> Result<bool> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.expected(if close == b'}' { "a comma or a brace" } else { "a comma or a bracket" })),
        }
    }

    /// Skips this name and its colon if they come next without escapes and without spaces before the colon.
    #[inline]
    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let bytes = &self.text.as_bytes()[self.at..];
        let Some((b'"', bytes)) = bytes.split_first() else { return false };
        let Some((found, [b'"', b':', ..])) = bytes.split_at_checked(name.len()) else { return false };
        let is_next = found == name.as_bytes();
        if is_next {
            self.at += name.len() + 3;
        }
        is_next
    }

    /// Parses a name and the colon after it.
    #[inline]
    pub(super) fn name(&mut self) -> Result<Cow<'a, str>> {
        let name = self.string_text("a name in quotes")?;
        if self.peek() != Some(b':') {
            return Err(self.expected("a colon"));
        }
        self.at += 1;
        Ok(name)
    }

    /// Parses a string. Borrows from the text if the string has no escapes.
    #[inline]
    fn string_text(&mut self, expected: &'static str) -> Result<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return Err(self.expected(expected));
        }
        let start = self.at + 1;
        let len = text::plain_len(&self.text.as_bytes()[start..]);
        self.at = start + len;
        if self.text.as_bytes().get(self.at) != Some(&b'"') {
            return self.string_with_escapes(start).map(Cow::Owned);
        }
        self.at += 1;
        Ok(Cow::Borrowed(&self.text[start..start + len]))
    }

    /// Parses the rest of a string from its first escape. The text from `start` to the current position has none.
    #[cold]
    fn string_with_escapes(&mut self, mut start: usize) -> Result<String> {
        // A small reserve only: most strings with escapes have few of them.
        let mut string = String::with_capacity(self.at - start + ESCAPES_LEN);
        loop {
            string.push_str(&self.text[start..self.at]);
            let rest = &self.text.as_bytes()[self.at..];
            match rest {
                [b'"', ..] => {
                    self.at += 1;
                    return Ok(string);
                }
                [b'\\', escape @ ..] => {
                    let len = text::unescape(escape, &mut string).ok_or_else(|| self.invalid("an escape"))?;
                    self.at += 1 + len;
                }
                [] => return Err(self.error(ErrorKind::Truncated)),
                _ => return Err(self.invalid("a letter of a string, but a control character without escape")),
            }
            start = self.at;
            self.at += text::plain_len(&self.text.as_bytes()[start..]);
        }
    }

    /// Parses an integer, quoted or not. Returns `true` for a negative one, and the absolute value.
    #[inline]
    fn integer(&mut self) -> Result<(bool, u64)> {
        let is_quoted = self.peek() == Some(b'"');
        let bytes = self.text.as_bytes();
        let start = self.at + usize::from(is_quoted);
        let is_negative = bytes.get(start) == Some(&b'-');
        let start = start + usize::from(is_negative);
        let (mut at, mut number) = (start, 0);
        while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit <= 9) {
            if at - start == PLAIN_DIGITS_MAX {
                return self.long_integer();
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
            return self.long_integer();
        }
        self.at = at + usize::from(is_quoted);
        Ok((is_negative, number))
    }

    #[cold]
    fn long_integer(&mut self) -> Result<(bool, u64)> {
        let text = self.number_text()?;
        if text.ends_with(['N', 'y']) {
            return Err(self.invalid("an integer"));
        }
        numbers::integer(&text).ok_or_else(|| self.invalid("an integer of 64 bits"))
    }

    /// Parses a number, quoted or not, or a quoted word such as `NaN`. Returns its text.
    fn number_text(&mut self) -> Result<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return self.number_token().map(Cow::Borrowed);
        }
        let text = self.string_text("a number")?;
        let is_number = numbers::len(text.as_bytes()) == Some(text.len());
        if !is_number && !matches!(&*text, "NaN" | "Infinity" | "-Infinity") {
            return Err(self.invalid("a number"));
        }
        Ok(text)
    }

    fn number_token(&mut self) -> Result<&'a str> {
        self.peek();
        let rest = &self.text[self.at..];
        let len = numbers::len(rest.as_bytes()).ok_or_else(|| self.expected("a number"))?;
        self.at += len;
        Ok(&rest[..len])
    }

    fn word(&mut self, word: &str, expected: &'static str) -> Result<()> {
        self.peek();
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.expected(expected));
        }
        self.at += word.len();
        Ok(())
    }

    /// Skips white space and returns the next byte.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    #[cold]
    pub(super) fn error(&self, kind: ErrorKind) -> Error {
        Error::at_byte(kind, self.at)
    }

    #[cold]
    pub(super) fn invalid(&self, what: &'static str) -> Error {
        self.error(ErrorKind::Invalid { what })
    }

    #[cold]
    fn too_large(&self, of: &'static str) -> Error {
        self.error(ErrorKind::OutOfRange { of })
    }

    #[cold]
    pub(super) fn expected(&mut self, expected: &'static str) -> Error {
        let found = match self.peek() {
            None => return self.error(ErrorKind::Truncated),
            Some(b'"') => "text",
            Some(b'-' | b'0'..=b'9') => "a number",
            Some(b't' | b'f') => "true or false",
            Some(b'n') => "null",
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'}') => "a closing brace",
            Some(b']') => "a closing bracket",
            Some(b',') => "a comma",
            Some(b':') => "a colon",
            Some(_) => "something else",
        };
        self.error(ErrorKind::Expected { expected, found })
    }

    /// Returns the memory limit for this text.
    fn memory_max(text: &str) -> usize {
        text.len().saturating_mul(Self::MEMORY_FACTOR).saturating_add(Self::MEMORY_LEN_MIN)
    }
}

/// Converts a field mask path from lower camel case to the names of the proto file.
fn snake_case(path: &str) -> Option<String> {
    let mut snake = String::with_capacity(path.len() + 8);
    for letter in path.chars() {
        match letter {
            'A'..='Z' => snake.extend(['_', letter.to_ascii_lowercase()]),
            'a'..='z' | '0'..='9' | '.' => snake.push(letter),
            _ => return None,
        }
    }
    Some(snake).filter(|snake| !snake.is_empty())
}

/// Maximum number of decimal digits that always fit in a `u64`.
const PLAIN_DIGITS_MAX: usize = 19;

/// Extra capacity of a string for the text after its first escape.
const ESCAPES_LEN: usize = 24;

/// Maximum element size for growing an empty list to more than one element.
const SMALL_LEN: usize = 256;

/// Bytes of memory counted per byte of text scanned twice.
const RESCAN_COST: usize = 4;
