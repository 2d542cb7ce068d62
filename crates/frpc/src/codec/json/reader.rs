use std::{borrow::Cow, mem};

use frpc_json::{Scanner, SyntaxError, base64, numbers, text::unpaired_surrogate};

use super::{
    error::{Error, ErrorKind, Result},
    time,
};
use crate::codec::{
    layout::MemoryBudget,
    polyglot::{ALLOCATION_LEN, stack_address},
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
    scanner: Scanner<'a>,
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
    /// The types for an `Any`, in the order of their search.
    any_types: [&'static dyn ReadAny; 3],
}

/// Message types an `Any` can contain.
pub(super) trait ReadAny: Sync + std::fmt::Debug {
    /// Parses an `Any` and returns its encoded content. Returns `None` if its type is not among these.
    fn read_any(&self, url: &str, input: &mut Reader<'_>) -> Option<Result<Vec<u8>>>;
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

    pub(super) fn new(
        text: &'a str,
        any_types: [&'static dyn ReadAny; 3],
        budget: MemoryBudget,
        is_strict: bool,
    ) -> Self {
        let memory_max = budget.within(Self::memory_max(text), text.len());
        Self {
            scanner: Scanner::new(text, 0),
            depth: 1,
            stack_end: stack_address().saturating_sub(Self::STACK_LEN_MAX),
            memory_left: memory_max,
            memory_max,
            is_any: false,
            is_unknown: false,
            is_strict,
            has_unknown: false,
            any_types,
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
        match self.text("text")? {
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
        let text = self.text("base64 in quotes")?;
        self.charge(text.len())?;
        base64::decode(&text).ok_or_else(|| self.invalid("base64"))
    }

    /// Parses an enum value from its number or from a name in `names`, sorted by name. For an unknown name, `into`
    /// keeps its value, and the caller drops the field or element.
    pub(super) fn number_of(&mut self, names: &[(&str, i32)], into: &mut i32) -> Result<()> {
        if self.peek() != Some(b'"') {
            return self.i32(into);
        }
        let name = self.text("the name of an enum value")?;
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
        let text = self.text("a timestamp in quotes")?;
        (*seconds, *nanos) = time::timestamp(&text).ok_or_else(|| self.invalid("a timestamp"))?;
        Ok(())
    }

    /// Parses a duration in seconds, such as `1.5s`.
    pub fn duration(&mut self, seconds: &mut i64, nanos: &mut i32) -> Result<()> {
        let text = self.text("a duration in quotes")?;
        (*seconds, *nanos) = time::duration(&text).ok_or_else(|| self.invalid("a duration"))?;
        Ok(())
    }

    /// Parses the paths of a field mask.
    pub fn field_mask(&mut self, into: &mut Vec<String>) -> Result<()> {
        let text = self.text("the paths of a field mask in quotes")?;
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
        let Some(url) = self.any_type()? else {
            return self.object(&[], &mut |_, _| Ok(()));
        };
        let content = self.any_types.into_iter().find_map(|types| types.read_any(&url, self));
        let content = content.unwrap_or_else(|| Err(self.error(ErrorKind::UnknownType { url: url.to_string() })))?;
        (*type_url, *value) = (url.into_owned(), content.into());
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
        self.next_value()?;
        self.scanner.set_depth_max(Self::DEPTH_MAX - self.depth);
        let value = self.scanner.value().map_err(|error| self.syntax(error))?;
        match unpaired_surrogate(value) {
            None => Ok(()),
            Some(position) => {
                self.scanner.rewind(self.scanner.position() - value.len() + position);
                Err(self.invalid("an escape"))
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
    fn any_type(&mut self) -> Result<Option<Cow<'a, str>>> {
        self.peek();
        let start = self.scanner.position();
        let mut is_more = self.begin(b'{', b'}', "an object")?;
        if !is_more {
            self.scanner.rewind(start);
            return Ok(None);
        }
        let mut skipped = 0;
        while is_more {
            if self.name()? == "@type" {
                let url = self.text("a type in quotes").map_err(|error| error.in_field("@type"))?;
                self.scanner.rewind(start);
                // Text scanned twice counts as memory. Otherwise a chain of nested `Any` values could rescan it at each
                // level.
                self.charge(skipped * RESCAN_COST + url.len())?;
                return Ok(Some(url));
            }
            self.skip()?;
            skipped = self.scanner.position() - start;
            is_more = self.is_more(b'}')?;
        }
        self.scanner.rewind(start);
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
        self.scanner.open(open, close, expected).map_err(|error| self.syntax(error))
    }

    /// Parses the comma or closing bracket after an element. Returns `true` if another element follows.
    #[inline]
    pub(super) fn is_more(&mut self, close: u8) -> Result<bool> {
        self.scanner.next_item(close).map_err(|error| self.syntax(error))
    }

    /// Skips this name and its colon if they come next without escapes and without spaces before the colon.
    #[inline]
    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        self.scanner.skip_name(name)
    }

    /// Parses a name and the colon after it.
    #[inline]
    pub(super) fn name(&mut self) -> Result<Cow<'a, str>> {
        self.scanner.name_text().map_err(|error| self.syntax(error))
    }

    /// Parses a string. Borrows from the text if the string has no escapes.
    #[inline]
    fn text(&mut self, expected: &'static str) -> Result<Cow<'a, str>> {
        self.scanner.text(expected).map_err(|error| self.syntax(error))
    }

    /// Parses an integer, quoted or not. Returns `true` for a negative one, and the absolute value.
    #[inline]
    fn integer(&mut self) -> Result<(bool, u64)> {
        match self.scanner.plain_integer() {
            Some(integer) => Ok(integer),
            None => self.long_integer(),
        }
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
        match self.peek() {
            Some(b'"') => {}
            Some(b'-' | b'0'..=b'9') => {
                let start = self.scanner.position();
                self.scanner.number().map_err(|error| self.syntax(error))?;
                return Ok(Cow::Borrowed(self.scanner.since(start)));
            }
            _ => return Err(self.expected("a number")),
        }
        let text = self.text("a number")?;
        if !numbers::is_number(&text) && !matches!(&*text, "NaN" | "Infinity" | "-Infinity") {
            return Err(self.invalid("a number"));
        }
        Ok(text)
    }

    fn word(&mut self, word: &'static str, expected: &'static str) -> Result<()> {
        self.scanner.word(word, expected).map_err(|error| self.syntax(error))
    }

    /// Skips white space and returns the next byte.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.scanner.peek()
    }

    #[cold]
    pub(super) fn error(&self, kind: ErrorKind) -> Error {
        Error::at_byte(kind, self.scanner.position())
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
    fn expected(&mut self, expected: &'static str) -> Error {
        self.syntax(SyntaxError::Expected(expected))
    }

    /// Adds the position to an error of the scanner, and the token in place of the expected one.
    #[cold]
    fn syntax(&mut self, error: SyntaxError) -> Error {
        let kind = match error {
            SyntaxError::Truncated => ErrorKind::Truncated,
            SyntaxError::Expected(expected) => match self.scanner.found() {
                Some(found) => ErrorKind::Expected { expected, found },
                None => ErrorKind::Truncated,
            },
            SyntaxError::Invalid(what) => ErrorKind::Invalid { what },
            SyntaxError::TooDeep(_) => ErrorKind::TooDeep { limit: Self::DEPTH_MAX },
        };
        self.error(kind)
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

/// Maximum element size for growing an empty list to more than one element.
const SMALL_LEN: usize = 256;

/// Bytes of memory counted per byte of text scanned twice.
const RESCAN_COST: usize = 4;
