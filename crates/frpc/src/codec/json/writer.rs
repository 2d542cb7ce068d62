use std::ops::Range;

use frpc_json::{base64, numbers, text};

use super::{
    error::{Error, ErrorKind, Result},
    time,
};

/// A writer for JSON text. Functions with a `name` write a field, and write nothing for a default value.
///
/// Serialization fails if a value has no JSON form, such as a timestamp in the year 10,000. The writer keeps the first
/// error until the end, and skips most of the output after it.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    depth: u32,
    /// `true` if the enclosing `Any` already wrote the brace of the next object.
    is_begun: bool,
    error: Option<Error>,
    /// The types for an `Any`, in the order of their search.
    any_types: [&'static dyn WriteAny; 3],
}

/// Message types an `Any` can contain.
pub(super) trait WriteAny: Sync + std::fmt::Debug {
    /// Writes an `Any`. Returns `None` if its type is not among these.
    fn write_any(&self, type_url: &str, value: &[u8], out: &mut Writer) -> Option<Result<()>>;
}

macro_rules! fields {
    ($($name:ident($type:ty), $about:literal: |$value:ident| $is_set:expr, $put:ident;)*) => {
        impl Writer {$(
            #[doc = concat!("Writes ", $about, ".")]
            pub fn $name(&mut self, name: &str, $value: $type) {
                if $is_set {
                    self.name(name);
                    self.$put($value);
                }
            }
        )*}
    };
}

fields! {
    i32(i32), "an `i32` field": |value| value != 0, put_i32;
    i64(i64), "an `i64` field as a JSON string": |value| value != 0, put_i64;
    u32(u32), "a `u32` field": |value| value != 0, put_u32;
    u64(u64), "a `u64` field as a JSON string": |value| value != 0, put_u64;
    f32(f32), "an `f32` field": |value| value.to_bits() != 0, put_f32;
    f64(f64), "an `f64` field": |value| value.to_bits() != 0, put_f64;
    string(&str), "a string field": |value| !value.is_empty(), put_string;
    bytes(&[u8]), "a bytes field in base64": |value| !value.is_empty(), put_bytes;
}

impl Writer {
    /// Maximum nesting depth of messages. Same as for reading, so readers accept the output.
    pub const DEPTH_MAX: u32 = super::Reader::DEPTH_MAX;

    pub(super) fn new(any_types: [&'static dyn WriteAny; 3]) -> Self {
        Self { out: Vec::with_capacity(LEN_EXPECTED), depth: 1, is_begun: false, error: None, any_types }
    }

    /// Returns the text, or the first error.
    pub(super) fn finish(self) -> Result<Vec<u8>> {
        self.error.map_or(Ok(self.out), Err)
    }

    /// Starts an object.
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

    /// Writes a `bool` field.
    #[inline]
    pub fn bool(&mut self, name: &str, value: bool) {
        if value {
            self.name(name);
            self.put(b"true");
        }
    }

    /// Writes a timestamp in RFC 3339 format.
    pub fn timestamp(&mut self, seconds: i64, nanos: i32) {
        self.put(b"\"");
        if time::put_timestamp(seconds, nanos, &mut self.out).is_none() {
            self.fail(ErrorKind::OutOfRange { of: "a timestamp" });
        }
        self.put(b"\"");
    }

    /// Writes a duration in seconds, such as `1.500s`.
    pub fn duration(&mut self, seconds: i64, nanos: i32) {
        self.put(b"\"");
        if time::put_duration(seconds, nanos, &mut self.out).is_none() {
            self.fail(ErrorKind::OutOfRange { of: "a duration" });
        }
        self.put(b"\"");
    }

    /// Writes the paths of a field mask in lower camel case.
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
        if type_url.is_empty() && value.is_empty() {
            self.begin();
            self.end();
            return;
        }
        let written = self.any_types.into_iter().find_map(|types| types.write_any(type_url, value, self));
        match written {
            Some(Ok(())) => {}
            Some(Err(error)) => drop(self.error.get_or_insert(error)),
            None => self.fail(ErrorKind::UnknownType { url: type_url.to_owned() }),
        }
    }

    /// Writes a number of a `google.protobuf.Value`. Infinities and NaN are errors.
    pub fn finite(&mut self, value: f64) {
        if value.is_finite() {
            self.put_f64(value);
        } else {
            self.fail(ErrorKind::Invalid { what: "a number that a google.protobuf.Value can have in JSON" });
        }
    }

    /// Writes `null`.
    pub fn null(&mut self) {
        self.put(b"null");
    }

    /// Writes the name of an enum value, or its number if it has no name. `names` must be sorted by number.
    pub(super) fn put_name_of(&mut self, names: &[(i32, &str)], number: i32) {
        match names.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(index) => self.put_string(names[index].1),
            Err(_) => numbers::put_i64(number.into(), &mut self.out),
        }
    }

    /// Writes a field name. Generated code passes names with their escapes.
    #[inline]
    pub(super) fn name(&mut self, name: &str) {
        self.comma(b'{');
        self.put(b"\"");
        self.put(name.as_bytes());
        self.put(b"\":");
    }

    /// Writes a comma, except right after the opening bracket or brace.
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
        text::put_string(&mut self.out, value);
    }

    pub(super) fn put_bytes(&mut self, value: &[u8]) {
        self.put(b"\"");
        base64::encode(value, &mut self.out);
        self.put(b"\"");
    }

    /// Starts the object of an `Any`. The next object continues it without a brace of its own.
    pub(super) fn begin_any(&mut self, type_url: &str) {
        self.begin();
        self.string("@type", type_url);
        self.is_begun = true;
    }

    /// Starts the object of an `Any` with its content in the member `value`.
    pub(super) fn begin_any_value(&mut self, type_url: &str) {
        self.begin();
        self.string("@type", type_url);
        self.name("value");
    }

    /// Enters a nested message. Returns `false` after an error or at the maximum depth.
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

    /// Writes the name of a field. Returns `false` after an error.
    pub(super) fn begin_field(&mut self, name: &str) -> bool {
        if self.is_failed() {
            return false;
        }
        self.name(name);
        true
    }

    /// Completes a field. After an error in the field, prepends its name to the path.
    pub(super) fn end_field(&mut self, name: &str) {
        if self.is_failed() {
            self.tell(|error| error.in_field(name));
        }
    }

    /// Starts a map entry. Returns the start of its key in the output.
    pub(super) fn begin_entry(&mut self) -> usize {
        self.comma(b'{');
        self.out.len()
    }

    /// Ends the key of a map entry. Returns the end of the key in the output.
    pub(super) fn end_key(&mut self) -> usize {
        let end = self.out.len();
        self.put(b":");
        end
    }

    /// Prepends a list index to the path of the error.
    #[cold]
    pub(super) fn fail_at_index(&mut self, index: usize) {
        self.tell(|error| error.at_index(index));
    }

    /// Prepends a map key, copied from the output, to the path of the error.
    #[cold]
    pub(super) fn fail_at_key(&mut self, key: Range<usize>) {
        let key = format!("[{}]", String::from_utf8_lossy(&self.out[key]));
        self.tell(|error| error.in_field(&key));
    }

    #[inline]
    pub(super) fn is_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Prepends an element to the path of the error.
    #[cold]
    fn tell(&mut self, place: impl FnOnce(Error) -> Error) {
        self.error = self.error.take().map(place);
    }

    #[cold]
    fn fail(&mut self, kind: ErrorKind) {
        self.error.get_or_insert(kind.into());
    }
}

/// Converts a field mask path to lower camel case. Returns `None` if the result would not convert back.
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

/// Initial capacity, enough for most messages.
const LEN_EXPECTED: usize = 256;
