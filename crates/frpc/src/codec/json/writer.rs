use std::ops::Range;

use super::{
    base64,
    error::{Error, ErrorKind, Result},
    numbers, text, time,
};

/// Writes JSON. Functions that take a name write a field, and nothing if it holds its default.
///
/// A message that has no JSON, such as a timestamp of the year 10,000, is an error at the end; nothing is written behind it.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    depth: u32,
    /// The object that begins next was begun by the `Any` around it.
    is_begun: bool,
    error: Option<Error>,
    pub(super) types: &'static dyn WriteAny,
}

/// The types that an `Any` can hold.
pub(super) trait WriteAny: Sync + std::fmt::Debug {
    /// Writes an `Any`.
    fn write_any(&self, type_url: &str, value: &[u8], out: &mut Writer) -> Result<()>;
}

impl Writer {
    /// The depth to which messages may be nested: no more than can be read.
    pub const DEPTH_MAX: u32 = super::Reader::DEPTH_MAX;

    pub(super) fn new(types: &'static dyn WriteAny) -> Self {
        Self { out: Vec::with_capacity(LEN_EXPECTED), depth: 1, is_begun: false, error: None, types }
    }

    /// Returns the text.
    pub(super) fn finish(self) -> Result<Vec<u8>> {
        self.error.map_or(Ok(self.out), Err)
    }

    /// Begins an object.
    #[inline]
    pub fn begin(&mut self) {
        if self.is_begun {
            self.is_begun = false;
        } else {
            self.out.push(b'{');
        }
    }

    /// Ends an object.
    #[inline]
    pub fn end(&mut self) {
        self.out.push(b'}');
    }

    /// Writes a field of type bool.
    #[inline]
    pub fn bool(&mut self, name: &str, value: bool) {
        if value {
            self.name(name);
            self.put(b"true");
        }
    }

    /// Writes a field of type i32.
    pub fn i32(&mut self, name: &str, value: i32) {
        if value != 0 {
            self.name(name);
            numbers::put_i64(value.into(), &mut self.out);
        }
    }

    /// Writes a field of type i64, which is text in JSON.
    pub fn i64(&mut self, name: &str, value: i64) {
        if value != 0 {
            self.name(name);
            self.put_i64(value);
        }
    }

    /// Writes a field of type u32.
    pub fn u32(&mut self, name: &str, value: u32) {
        if value != 0 {
            self.name(name);
            numbers::put_u64(value.into(), &mut self.out);
        }
    }

    /// Writes a field of type u64, which is text in JSON.
    pub fn u64(&mut self, name: &str, value: u64) {
        if value != 0 {
            self.name(name);
            self.put_u64(value);
        }
    }

    /// Writes a field of type f32.
    pub fn f32(&mut self, name: &str, value: f32) {
        if value.to_bits() != 0 {
            self.name(name);
            self.put_f32(value);
        }
    }

    /// Writes a field of type f64.
    pub fn f64(&mut self, name: &str, value: f64) {
        if value.to_bits() != 0 {
            self.name(name);
            self.put_f64(value);
        }
    }

    /// Writes a field of type string.
    pub fn string(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.name(name);
            self.put_string(value);
        }
    }

    /// Writes a field of type bytes, which are base64 in JSON.
    pub fn bytes(&mut self, name: &str, value: &[u8]) {
        if !value.is_empty() {
            self.name(name);
            self.put_bytes(value);
        }
    }

    /// Writes a timestamp.
    pub fn timestamp(&mut self, seconds: i64, nanos: i32) {
        self.put(b"\"");
        if time::put_timestamp(seconds, nanos, &mut self.out).is_none() {
            self.fail(ErrorKind::OutOfRange { of: "a timestamp" });
        }
        self.put(b"\"");
    }

    /// Writes a duration.
    pub fn duration(&mut self, seconds: i64, nanos: i32) {
        self.put(b"\"");
        if time::put_duration(seconds, nanos, &mut self.out).is_none() {
            self.fail(ErrorKind::OutOfRange { of: "a duration" });
        }
        self.put(b"\"");
    }

    /// Writes the paths of a field mask.
    pub fn field_mask(&mut self, paths: &[String]) {
        self.put(b"\"");
        for (index, path) in paths.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            if camel_case(path, &mut self.out).is_none() {
                self.fail(ErrorKind::Invalid { what: "a path of a field mask that JSON has a form for" });
            }
        }
        self.put(b"\"");
    }

    /// Writes an `Any`.
    pub fn any(&mut self, type_url: &str, value: &[u8]) {
        if let Err(error) = self.types.write_any(type_url, value, self) {
            self.error.get_or_insert(error);
        }
    }

    /// Writes the number of a `google.protobuf.Value`, which JSON has to have digits for.
    pub fn finite(&mut self, value: f64) {
        if value.is_finite() {
            self.put_f64(value);
        } else {
            self.fail(ErrorKind::Invalid { what: "a number that a google.protobuf.Value can have in JSON" });
        }
    }

    /// Writes a `null`.
    pub fn null(&mut self) {
        self.put(b"null");
    }

    /// Writes the name of an enum value, by its number in `names`, which are sorted.
    pub(super) fn put_name_of(&mut self, names: &[(i32, &str)], number: i32) {
        match names.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(index) => self.put_string(names[index].1),
            Err(_) => numbers::put_i64(number.into(), &mut self.out),
        }
    }

    /// Writes the name of a field, which needs no escape.
    #[inline]
    pub(super) fn name(&mut self, name: &str) {
        self.comma(b'{');
        self.put(b"\"");
        self.put(name.as_bytes());
        self.put(b"\":");
    }

    /// Writes a comma, unless the list or object that this sign opens begins here.
    #[inline]
    pub(super) fn comma(&mut self, open: u8) {
        if self.out.last() != Some(&open) {
            self.out.push(b',');
        }
    }

    #[inline]
    pub(super) fn put(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    pub(super) fn put_bool(&mut self, value: bool) {
        self.put(if value { b"true" } else { b"false" });
    }

    pub(super) fn put_i32(&mut self, value: i32) {
        numbers::put_i64(value.into(), &mut self.out);
    }

    pub(super) fn put_i64(&mut self, value: i64) {
        self.put(b"\"");
        numbers::put_i64(value, &mut self.out);
        self.put(b"\"");
    }

    pub(super) fn put_u32(&mut self, value: u32) {
        numbers::put_u64(value.into(), &mut self.out);
    }

    pub(super) fn put_u64(&mut self, value: u64) {
        self.put(b"\"");
        numbers::put_u64(value, &mut self.out);
        self.put(b"\"");
    }

    pub(super) fn put_f32(&mut self, value: f32) {
        numbers::put_f32(value, &mut self.out);
    }

    pub(super) fn put_f64(&mut self, value: f64) {
        numbers::put_f64(value, &mut self.out);
    }

    #[inline]
    pub(super) fn put_string(&mut self, value: &str) {
        self.put(b"\"");
        text::escape(value, &mut self.out);
        self.put(b"\"");
    }

    pub(super) fn put_bytes(&mut self, value: &[u8]) {
        self.put(b"\"");
        base64::encode(value, &mut self.out);
        self.put(b"\"");
    }

    /// Begins the object of an `Any`, and has the one that begins next go on with it.
    pub(super) fn begin_any(&mut self, type_url: &str) {
        self.begin();
        self.string("@type", type_url);
        self.is_begun = true;
    }

    /// Begins the object of an `Any` that holds its content as a value.
    pub(super) fn begin_any_value(&mut self, type_url: &str) {
        self.begin();
        self.string("@type", type_url);
        self.name("value");
    }

    /// Steps into a message, unless it is too deep or something went wrong before.
    #[inline]
    pub(super) fn enter(&mut self) -> bool {
        if self.error.is_some() {
            return false;
        }
        if self.depth == Self::DEPTH_MAX {
            self.fail(ErrorKind::TooDeep { limit: Self::DEPTH_MAX });
            return false;
        }
        self.depth += 1;
        true
    }

    #[inline]
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Begins a field, whatever its value, unless something went wrong before.
    pub(super) fn begin_field(&mut self, name: &str) -> bool {
        if self.is_failed() {
            return false;
        }
        self.name(name);
        true
    }

    /// Ends a field.
    pub(super) fn end_field(&mut self, name: &str) {
        if self.is_failed() {
            self.tell(|error| error.in_field(name));
        }
    }

    pub(super) fn open_list(&mut self) {
        self.put(b"[");
    }

    pub(super) fn begin_item(&mut self) {
        self.comma(b'[');
    }

    pub(super) fn close_list(&mut self) {
        self.put(b"]");
    }

    pub(super) fn open_map(&mut self) {
        self.put(b"{");
    }

    /// Begins an entry of a map, and returns where its key begins.
    pub(super) fn begin_entry(&mut self) -> usize {
        self.comma(b'{');
        self.out.len()
    }

    /// Ends the key of an entry, and returns where it ends.
    pub(super) fn end_key(&mut self) -> usize {
        let end = self.out.len();
        self.put(b":");
        end
    }

    /// Puts an index in front of the path of the error.
    #[cold]
    pub(super) fn fail_at_index(&mut self, index: usize) {
        self.tell(|error| error.at_index(index));
    }

    /// Puts a key that was written in front of the path of the error.
    #[cold]
    pub(super) fn fail_at_key(&mut self, key: Range<usize>) {
        let key = format!("[{}]", String::from_utf8_lossy(&self.out[key]));
        self.tell(|error| error.in_field(&key));
    }

    #[inline]
    pub(super) fn is_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Puts something in front of the path of the error.
    #[cold]
    fn tell(&mut self, place: impl FnOnce(Error) -> Error) {
        self.error = self.error.take().map(place);
    }

    #[cold]
    fn fail(&mut self, kind: ErrorKind) {
        self.error.get_or_insert(kind.into());
    }
}

/// Writes a path of a field mask, or returns `None` if it could not be read again.
fn camel_case(path: &str, out: &mut Vec<u8>) -> Option<()> {
    let mut letters = path.bytes();
    while let Some(letter) = letters.next() {
        match letter {
            b'_' => out.push(letters.next().filter(u8::is_ascii_lowercase)?.to_ascii_uppercase()),
            b'a'..=b'z' | b'0'..=b'9' | b'.' => out.push(letter),
            _ => return None,
        }
    }
    (!path.is_empty()).then_some(())
}

/// The length of most messages.
const LEN_EXPECTED: usize = 256;
