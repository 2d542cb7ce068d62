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

/// The kind of value that comes next.
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

/// Reads JSON. Trusts nothing: memory, stack and depth have limits.
///
/// Values are read into the places where they stay, which hold the default of their type before.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    /// The number of bytes that were read.
    at: usize,
    depth: u32,
    /// The lowest address that the stack may reach, raised by what the messages around this one take in memory.
    stack_end: usize,
    /// The number of bytes that may still be allocated.
    memory_left: usize,
    memory_max: usize,
    /// The next object is the content of an `Any`, so it has `@type`.
    is_any: bool,
    /// The value that was read last was a name that its enum does not have.
    is_unknown: bool,
    /// Fields and enum names that this side does not know are errors.
    is_strict: bool,
    /// There was such a field or name, and it was ignored.
    has_unknown: bool,
    pub(super) types: &'static dyn ReadAny,
}

/// The types that an `Any` can hold.
pub(super) trait ReadAny: Sync + std::fmt::Debug {
    /// Reads an `Any`: its type and its bytes.
    fn read_any(&self, input: &mut Reader<'_>) -> Result<(String, Vec<u8>)>;
}

impl<'a> Reader<'a> {
    /// The depth to which messages may be nested. Values of `google.protobuf.Struct` are messages too, and entries of maps count
    /// as such.
    pub const DEPTH_MAX: u32 = 100;

    /// The number of bytes of stack that reading may take. The messages around the one being read count with their size in
    /// memory.
    pub const STACK_LEN_MAX: usize = 512 << 10;

    /// The number of bytes that a message may take in memory, whatever the length of its text.
    pub const MEMORY_LEN_MIN: usize = 1 << 20;

    /// The number of bytes that a message may take in memory for each byte of its text, on top of
    /// [`MEMORY_LEN_MIN`](Self::MEMORY_LEN_MIN). Fields are left out of JSON, so a short text can be a large message.
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

    /// Reads a bool.
    pub fn bool(&mut self, into: &mut bool) -> Result<()> {
        *into = self.peek() == Some(b't');
        self.word(if *into { "true" } else { "false" }, "true or false")
    }

    /// Reads an i32.
    pub fn i32(&mut self, into: &mut i32) -> Result<()> {
        let (is_negative, number) = self.integer()?;
        let number = numbers::signed(is_negative, number).and_then(|number| i32::try_from(number).ok());
        *into = number.ok_or_else(|| self.error(ErrorKind::OutOfRange { of: "an i32" }))?;
        Ok(())
    }

    /// Reads an i64.
    pub fn i64(&mut self, into: &mut i64) -> Result<()> {
        let (is_negative, number) = self.integer()?;
        *into =
            numbers::signed(is_negative, number).ok_or_else(|| self.error(ErrorKind::OutOfRange { of: "an i64" }))?;
        Ok(())
    }

    /// Reads a u32.
    pub fn u32(&mut self, into: &mut u32) -> Result<()> {
        let (is_negative, number) = self.integer()?;
        let number = numbers::unsigned(is_negative, number).and_then(|number| u32::try_from(number).ok());
        *into = number.ok_or_else(|| self.error(ErrorKind::OutOfRange { of: "a u32" }))?;
        Ok(())
    }

    /// Reads a u64.
    pub fn u64(&mut self, into: &mut u64) -> Result<()> {
        let (is_negative, number) = self.integer()?;
        *into =
            numbers::unsigned(is_negative, number).ok_or_else(|| self.error(ErrorKind::OutOfRange { of: "a u64" }))?;
        Ok(())
    }

    /// Reads an f32.
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

    /// Reads an f64.
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

    /// Reads a string.
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

    /// Reads bytes, which are base64 in JSON.
    pub fn bytes<T: From<Vec<u8>>>(&mut self, into: &mut T) -> Result<()> {
        *into = self.base64()?.into();
        Ok(())
    }

    fn base64(&mut self) -> Result<Vec<u8>> {
        let text = self.string_text("base64 in quotes")?;
        self.charge(text.len())?;
        base64::decode(&text).ok_or_else(|| self.invalid("base64"))
    }

    /// Reads the number of an enum, or a name in `names`, which are sorted. One that is unknown leaves `into` as it is, and its
    /// owner leaves it out.
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

    /// Returns whether the value that was just read is a name that its enum does not have.
    pub(super) fn take_unknown(&mut self) -> bool {
        mem::take(&mut self.is_unknown)
    }

    /// Notes that the message has a field or an enum name that this side does not know.
    ///
    /// # Errors
    ///
    /// If the message may have none.
    #[cold]
    pub(super) fn ignore_unknown(&mut self, kind: impl FnOnce() -> ErrorKind) -> Result<()> {
        if self.is_strict {
            return Err(self.error(kind()));
        }
        self.has_unknown = true;
        Ok(())
    }

    /// Returns whether something unknown was ignored.
    pub(super) fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    /// Reads a timestamp.
    pub fn timestamp(&mut self, seconds: &mut i64, nanos: &mut i32) -> Result<()> {
        let text = self.string_text("a timestamp in quotes")?;
        (*seconds, *nanos) = time::timestamp(&text).ok_or_else(|| self.invalid("a timestamp"))?;
        Ok(())
    }

    /// Reads a duration.
    pub fn duration(&mut self, seconds: &mut i64, nanos: &mut i32) -> Result<()> {
        let text = self.string_text("a duration in quotes")?;
        (*seconds, *nanos) = time::duration(&text).ok_or_else(|| self.invalid("a duration"))?;
        Ok(())
    }

    /// Reads the paths of a field mask.
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

    /// Reads an `Any`.
    pub fn any<T: From<Vec<u8>>>(&mut self, type_url: &mut String, value: &mut T) -> Result<()> {
        let (url, bytes) = self.types.read_any(self)?;
        (*type_url, *value) = (url, bytes.into());
        Ok(())
    }

    /// Reads a `null`.
    pub fn null(&mut self) -> Result<()> {
        self.word("null", "null")
    }

    /// Returns what comes next.
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

    /// Steps over a value of any kind.
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

    /// Checks that nothing follows.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error(ErrorKind::Trailing)),
        }
    }

    /// Returns the type that the `Any` which comes next says it has, without a step forward. `None` if it is empty.
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
                // Text that is read twice is paid for, or nested ones could have everything read a hundred times.
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

    /// Says that the next object is the content of an `Any`.
    pub(super) fn expect_any(&mut self) {
        self.is_any = true;
    }

    /// Counts the outermost message, which has the whole stack before it.
    pub(super) fn outermost(&mut self, len: usize) {
        self.stack_end += len;
    }

    /// Returns whether the next object is the content of an `Any`.
    pub(super) fn take_any(&mut self) -> bool {
        mem::take(&mut self.is_any)
    }

    /// Steps into a message of `len` bytes in memory, if it is not too deep.
    pub(super) fn enter(&mut self, len: usize) -> Result<()> {
        if self.depth == Self::DEPTH_MAX || stack_address() < self.stack_end {
            return Err(self.error(ErrorKind::TooDeep { limit: self.depth }));
        }
        self.depth += 1;
        self.stack_end += len;
        Ok(())
    }

    /// Steps out of a message that was read whole. After an error nothing is read, so nobody steps out.
    pub(super) fn leave(&mut self, len: usize) {
        self.stack_end -= len;
        self.depth -= 1;
    }

    /// Returns how many bytes were allocated.
    pub(super) fn memory_taken(&self) -> usize {
        self.memory_max - self.memory_left
    }

    /// Takes the memory of an allocation from what is left.
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

    /// Makes room for another item of a list, whose memory is paid for as it grows.
    pub(super) fn reserve<T>(&mut self, list: &mut Vec<T>) -> Result<()> {
        if list.len() == list.capacity() {
            list.reserve_exact(self.more(list.len(), size_of::<T>())?);
        }
        Ok(())
    }

    /// Returns for how many more items of `item_len` bytes a full list makes room. They are paid for.
    fn more(&mut self, len: usize, item_len: usize) -> Result<usize> {
        let more = len.max(if item_len <= SMALL_LEN { 4 } else { 1 });
        // The items of before are there once more while they move.
        self.charge((len + more).saturating_mul(item_len))?;
        Ok(more)
    }

    /// Reads the sign that a list or object begins with, and returns whether anything is in it.
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

    /// Reads the sign behind an item, and returns whether another follows.
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

    /// Steps over this name, its quotes and the colon behind it, if it is what comes next, written as most write it.
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

    /// Reads a name and the colon behind it.
    #[inline]
    pub(super) fn name(&mut self) -> Result<Cow<'a, str>> {
        let name = self.string_text("a name in quotes")?;
        if self.peek() != Some(b':') {
            return Err(self.expected("a colon"));
        }
        self.at += 1;
        Ok(name)
    }

    /// Reads a string, which is a slice of the text unless there are escapes in it.
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

    /// Reads a string that begins at `start` and is plain as far as it was read.
    #[cold]
    fn string_with_escapes(&mut self, mut start: usize) -> Result<String> {
        // Room for what was read and a little more, as the next escape may be the last one.
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

    /// Reads an integer, in quotes or not: whether it is negative, and its absolute value.
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

    /// Reads a number, in quotes or not, or one of the words that stand for numbers in quotes.
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

    /// Returns the next byte that is no white space.
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

    /// Returns the number of bytes that may be allocated for a message.
    fn memory_max(text: &str) -> usize {
        text.len().saturating_mul(Self::MEMORY_FACTOR).saturating_add(Self::MEMORY_LEN_MIN)
    }
}

/// Returns a path of a field mask as the proto file has it.
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

/// The number of digits that fit in a u64, whatever they are.
const PLAIN_DIGITS_MAX: usize = 19;

/// The room that a string with escapes gets for what is behind the first of them.
const ESCAPES_LEN: usize = 24;

/// The size up to which a list gets room for several items at first.
const SMALL_LEN: usize = 256;

/// The bytes of memory that are charged for each byte that is read twice.
const RESCAN_COST: usize = 4;
