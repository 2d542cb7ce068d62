//! Names and values that travel beside the messages of a call.

use std::{borrow::Cow, fmt};

use bytes::Bytes;

/// Names and values beside the messages of a call, such as credentials and the ids of traces. A name can have several
/// values, which keep their order.
///
/// Values are printable ASCII, or any bytes under names that end in `-bin`. Functions for one kind never see the other:
/// [`get`](Self::get) finds nothing under `trace-bin`, and [`insert`](Self::insert) refuses it.
///
/// ```
/// use frpc::Metadata;
///
/// let mut metadata = Metadata::new();
/// metadata.insert("x-request-id", "7")?;
/// metadata.append("accept-language", "de")?;
/// metadata.append("Accept-Language", "en")?;
/// metadata.insert_bin("trace-bin", &b"\x00\x01"[..])?;
///
/// assert_eq!(metadata.get("X-Request-Id"), Some("7"));
/// assert_eq!(metadata.get_all("accept-language").collect::<Vec<_>>(), ["de", "en"]);
/// # Ok::<(), frpc::InvalidMetadata>(())
/// ```
///
/// # Names
///
/// Names are those of gRPC, so that every wire can carry them: ASCII letters, digits, `_`, `-` and `.`. Case does not
/// matter, and upper case is stored as lower case. Reserved are
///
/// - all names that begin with `grpc-`,
/// - and the names by which HTTP frames, routes or types a message: `connection`, `content-length`, `content-type`,
///   `host`, `keep-alive`, `proxy-connection`, `te`, `trailer`, `transfer-encoding` and `upgrade`. A value of the
///   application under one of them could make two HTTP parsers disagree about where a message ends.
///
/// `user-agent` is not reserved: handlers of gRPC servers may read it, so a wire has to be able to show it to them. A
/// wire that sends one of its own replaces it.
///
/// # Values
///
/// Blanks at either end of a value may get lost on the way, and several values of one name may arrive as one, joined by
/// commas, if they are not binary: gRPC allows both.
///
/// # Debug
///
/// `{:?}` hides the values of names that usually hold secrets: those that contain `api-key`, `api_key`, `apikey`,
/// `authorization`, `cookie`, `credential`, `password`, `secret` or `token`. It shows all others.
///
/// # How far it gets
///
/// In process and between two Rust peers it arrives, as far as the peer accepts its size
/// ([`ServerBuilder::metadata_len_max`](crate::ServerBuilder::metadata_len_max)). Plain fRPC, which Go peers speak, does not carry
/// it: a call fails then, unless [`LostMetadata`](crate::LostMetadata) says otherwise, and what a handler adds to its answer is lost.
//
// Calls have few entries, so a list in the order of insertion beats a map: it is one allocation, and scanning it is cheap.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    /// Valid, in lower case.
    name: Cow<'static, str>,
    value: Value,
}

/// Binary exactly if the name ends in `-bin`.
#[derive(Clone, PartialEq, Eq)]
enum Value {
    Ascii(String),
    Binary(Bytes),
}

/// One value of [`Metadata`], of one of the two kinds that gRPC has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataValue<'a> {
    /// Printable ASCII.
    Ascii(&'a str),
    /// Any bytes. The name ends in `-bin`.
    Binary(&'a Bytes),
}

impl Metadata {
    /// Returns metadata without entries. Allocates nothing.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Returns the first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values(name).find_map(Value::ascii)
    }

    /// Returns the values of a name, in their order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.values(name).filter_map(Value::ascii)
    }

    /// Returns the first value of a name that ends in `-bin`.
    pub fn get_bin(&self, name: &str) -> Option<&Bytes> {
        self.values(name).find_map(Value::binary)
    }

    /// Returns the values of a name that ends in `-bin`, in their order.
    pub fn get_all_bin<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Bytes> {
        self.values(name).filter_map(Value::binary)
    }

    /// Sets the value of a name, in place of all values that it had.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if gRPC does not allow the name or the value; see [names](#names).
    pub fn insert(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Result<(), InvalidMetadata> {
        let entry = Entry::ascii(name.into(), value.into())?;
        self.replace(entry);
        Ok(())
    }

    /// Adds a value to those of a name, as the last of them.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if gRPC does not allow the name or the value; see [names](#names).
    pub fn append(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Result<(), InvalidMetadata> {
        self.entries.push(Entry::ascii(name.into(), value.into())?);
        Ok(())
    }

    /// Sets the value of a name that ends in `-bin`, in place of all values that it had.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if gRPC does not allow the name; see [names](#names).
    pub fn insert_bin(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Bytes>,
    ) -> Result<(), InvalidMetadata> {
        let entry = Entry::binary(name.into(), value.into())?;
        self.replace(entry);
        Ok(())
    }

    /// Adds a value to those of a name that ends in `-bin`, as the last of them.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if gRPC does not allow the name; see [names](#names).
    pub fn append_bin(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Bytes>,
    ) -> Result<(), InvalidMetadata> {
        self.entries.push(Entry::binary(name.into(), value.into())?);
        Ok(())
    }

    /// Removes all values of a name, binary or not. Returns `true` if it had any.
    pub fn remove(&mut self, name: &str) -> bool {
        let len_before = self.entries.len();
        self.entries.retain(|entry| !entry.name.eq_ignore_ascii_case(name));
        self.entries.len() < len_before
    }

    /// Returns `true` if the name has a value, binary or not.
    pub fn contains_key(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Returns each name once, in lower case, in the order of their first values.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let names = self.entries.iter().map(|entry| &*entry.name);
        names.enumerate().filter(|(index, name)| !self.has_before(*index, name)).map(|(_, name)| name)
    }

    /// Returns the number of values, which is at least that of names.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if there are no values.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns all values, each with its name in lower case. The values of one name are in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, MetadataValue<'_>)> {
        self.entries.iter().map(|entry| (&*entry.name, entry.value.as_ref()))
    }

    /// Returns the values of these names alone.
    pub(crate) fn only(&self, names: &[String]) -> Self {
        let is_wanted = |entry: &&Entry| names.iter().any(|name| entry.name.eq_ignore_ascii_case(name));
        Self { entries: self.entries.iter().filter(is_wanted).cloned().collect() }
    }

    /// Adds the values of names that have none here.
    pub(crate) fn inherit(&mut self, others: &Self) {
        let missing = others.entries.iter().filter(|entry| !self.contains_key(&entry.name));
        let missing: Vec<_> = missing.cloned().collect();
        self.entries.extend(missing);
    }

    /// Removes all names and values.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Takes over the entries of `other`, in place of the values that its names have here. To add to them instead,
    /// [`append`](Self::append) each value.
    pub fn merge(&mut self, other: Self) {
        self.entries.retain(|entry| !other.entries.iter().any(|theirs| theirs.name == entry.name));
        self.entries.extend(other.entries);
    }

    /// Returns what the limits on the size of metadata count: the bytes of every value and of its name, and 32 more for
    /// each value, as HTTP/2 counts header lists. Binary values count as they are, not as base64.
    pub fn size(&self) -> usize {
        self.entries.iter().map(|entry| entry.name.len() + entry.value.len() + ENTRY_OVERHEAD).sum()
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.entries.iter().filter(move |entry| entry.name.eq_ignore_ascii_case(name)).map(|entry| &entry.value)
    }

    fn has_before(&self, index: usize, name: &str) -> bool {
        self.entries[..index].iter().any(|entry| entry.name == name)
    }

    fn replace(&mut self, entry: Entry) {
        self.entries.retain(|known| known.name != entry.name);
        self.entries.push(entry);
    }
}

/// See [`Metadata::size`].
const ENTRY_OVERHEAD: usize = 32;

impl Entry {
    fn ascii(name: Cow<'static, str>, value: String) -> Result<Self, InvalidMetadata> {
        let name = checked(name)?;
        if is_binary(&name) {
            return Err(InvalidMetadata::BinaryName { name: name.into() });
        }
        let is_other = |byte: u8| !matches!(byte, 0x20..=0x7e);
        // Looked at to the end, which takes less than to stop where it could.
        if !value.bytes().fold(false, |found, byte| found | is_other(byte)) {
            return Ok(Self { name, value: Value::Ascii(value) });
        }
        let position = value.bytes().position(is_other).unwrap_or_default();
        Err(InvalidMetadata::NotPrintable { name: name.into(), position })
    }

    fn binary(name: Cow<'static, str>, value: Bytes) -> Result<Self, InvalidMetadata> {
        let name = checked(name)?;
        if is_binary(&name) {
            Ok(Self { name, value: Value::Binary(value) })
        } else {
            Err(InvalidMetadata::AsciiName { name: name.into() })
        }
    }
}

impl Value {
    fn ascii(&self) -> Option<&str> {
        match self {
            Self::Ascii(value) => Some(value),
            Self::Binary(_) => None,
        }
    }

    fn binary(&self) -> Option<&Bytes> {
        match self {
            Self::Ascii(_) => None,
            Self::Binary(value) => Some(value),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Ascii(value) => value.len(),
            Self::Binary(value) => value.len(),
        }
    }

    fn as_ref(&self) -> MetadataValue<'_> {
        match self {
            Self::Ascii(value) => MetadataValue::Ascii(value),
            Self::Binary(value) => MetadataValue::Binary(value),
        }
    }
}

/// Returns the name in lower case if the application may use it.
fn checked(name: Cow<'static, str>) -> Result<Cow<'static, str>, InvalidMetadata> {
    if name.is_empty() {
        return Err(InvalidMetadata::EmptyName);
    }
    let found = name.bytes().fold(0, |found, byte| found | NAME_BYTES[usize::from(byte)]);
    if found & FORBIDDEN != 0 {
        return Err(InvalidMetadata::NameCharacters { name: name.into() });
    }
    let name = if found & UPPER_CASE == 0 { name } else { Cow::Owned(name.to_ascii_lowercase()) };
    if name.starts_with("grpc-") || OF_HTTP.contains(&&*name) {
        return Err(InvalidMetadata::ReservedName { name: name.into() });
    }
    Ok(name)
}

const UPPER_CASE: u8 = 1;
const FORBIDDEN: u8 = 2;

/// What each byte is in a name.
const NAME_BYTES: [u8; 256] = {
    let mut kinds = [FORBIDDEN; 256];
    let mut byte = 0;
    loop {
        match byte {
            b'A'..=b'Z' => kinds[byte as usize] = UPPER_CASE,
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' => kinds[byte as usize] = 0,
            u8::MAX => break,
            _ => {}
        }
        byte += 1;
    }
    kinds
};

/// The names by which HTTP frames, routes or types a message. The documentation of [`Metadata`] lists them.
const OF_HTTP: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn is_binary(name: &str) -> bool {
    name.ends_with("-bin")
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries.iter();
        f.debug_map().entries(entries.map(|Entry { name, value }| (name, Shown { name, value }))).finish()
    }
}

/// A value as `{:?}` of the metadata shows it.
struct Shown<'a> {
    name: &'a str,
    value: &'a Value,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            _ if SECRETS.iter().any(|secret| self.name.contains(secret)) => f.write_str("<hidden>"),
            Value::Ascii(value) => value.fmt(f),
            Value::Binary(value) => value.fmt(f),
        }
    }
}

/// Parts of the names of secrets. The documentation of [`Metadata`] lists them.
const SECRETS: &[&str] =
    &["api-key", "api_key", "apikey", "authorization", "cookie", "credential", "password", "secret", "token"];

/// A name or value that [`Metadata`] does not take. Neither of its texts shows the value, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidMetadata {
    /// The name is empty.
    EmptyName,
    /// The name has characters that are not allowed in names.
    NameCharacters {
        /// The name.
        name: String,
    },
    /// The name belongs to the protocols that carry calls; see [`Metadata`](Metadata#names).
    ReservedName {
        /// The name, in lower case.
        name: String,
    },
    /// The name ends in `-bin`, and text was to be its value.
    BinaryName {
        /// The name, in lower case.
        name: String,
    },
    /// The name does not end in `-bin`, and bytes were to be its value.
    AsciiName {
        /// The name, in lower case.
        name: String,
    },
    /// The value has a character that is not printable ASCII, such as a line break at its end.
    NotPrintable {
        /// The name, in lower case.
        name: String,
        /// The index in bytes of the first such character.
        position: usize,
    },
}

impl fmt::Display for InvalidMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => write!(f, "the name of a metadata entry is empty"),
            Self::NameCharacters { name } => {
                write!(f, "metadata cannot be named {name:?}: names have ASCII letters, digits, '_', '-' and '.'")
            }
            Self::ReservedName { name } => {
                write!(f, "metadata cannot be named '{name}': the protocols that carry calls use the name themselves")
            }
            Self::BinaryName { name } => {
                write!(f, "metadata '{name}' holds bytes: use insert_bin or append_bin, or a name without '-bin'")
            }
            Self::AsciiName { name } => {
                write!(f, "metadata '{name}' holds text: use insert or append, or a name that ends in '-bin'")
            }
            Self::NotPrintable { name, position } => write!(
                f,
                "the value of metadata '{name}' is not printable ASCII at byte {position}: encode it, or send it as \
                 bytes under a name that ends in '-bin'"
            ),
        }
    }
}

impl std::error::Error for InvalidMetadata {}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    #[test]
    fn a_name_has_several_values_in_the_order_they_were_appended() {
        let mut metadata = Metadata::new();
        for (name, value) in [("a", "1"), ("b", "2"), ("A", "3"), ("a", "1")] {
            metadata.append(name, value).unwrap();
        }
        metadata.append_bin("c-bin", vec![4]).unwrap();
        metadata.append_bin("C-Bin", vec![5]).unwrap();
        assert_eq!(metadata.get_all("a").collect::<Vec<_>>(), ["1", "3", "1"]);
        assert_eq!(metadata.get_all_bin("c-bin").collect::<Vec<_>>(), [&[4][..], &[5]]);
        assert_eq!((metadata.get("a"), metadata.get_bin("c-bin")), (Some("1"), Some(&Bytes::from_static(&[4]))));
        assert_eq!(metadata.keys().collect::<Vec<_>>(), ["a", "b", "c-bin"]);
        assert_eq!(metadata.len(), 6);
    }

    #[test]
    fn inserting_replaces_every_value_of_the_name() {
        let mut metadata = Metadata::new();
        metadata.append("a", "1").unwrap();
        metadata.append("a", "2").unwrap();
        metadata.append_bin("b-bin", vec![1]).unwrap();
        metadata.append_bin("b-bin", vec![2]).unwrap();
        metadata.insert("A", "3").unwrap();
        metadata.insert_bin("B-BIN", vec![3]).unwrap();
        let expected = [("a", MetadataValue::Ascii("3")), ("b-bin", MetadataValue::Binary(&Bytes::from_static(&[3])))];
        assert_eq!(metadata.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn look_ups_disregard_the_case_of_names() {
        let mut metadata = Metadata::new();
        metadata.insert("X-Request-ID", "Seven").unwrap();
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [("x-request-id", MetadataValue::Ascii("Seven"))]);
        assert_eq!(metadata.get("x-REQUEST-id"), Some("Seven"));
        assert!(metadata.contains_key("X-request-ID"));
        assert!(metadata.remove("x-request-Id"));
        assert!(metadata.is_empty());
    }

    #[test]
    fn removing_takes_all_values_and_tells_whether_there_were_any() {
        let mut metadata = Metadata::new();
        metadata.append("a", "1").unwrap();
        metadata.append("b", "2").unwrap();
        metadata.append("a", "3").unwrap();
        metadata.append_bin("c-bin", "4").unwrap();
        assert!(metadata.remove("a") && metadata.remove("c-bin"));
        assert!(!metadata.remove("a") && !metadata.remove("c"));
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [("b", MetadataValue::Ascii("2"))]);
        metadata.clear();
        assert_eq!(metadata, Metadata::new());
    }

    #[test]
    fn names_are_checked_as_grpc_does() {
        let refusal = |name: &'static str| Metadata::new().append(name, "").err();
        let owned = |name: &str| name.to_owned();
        for name in ["a", "0", "_", "-", ".", "Azaz09_-.", "bin", "abin", "user-agent", "authorization", "grpc", "tea"]
        {
            assert_eq!(refusal(name), None, "{name}");
        }
        for name in [" ", "a b", ":path", "a:", "ü", "a\n", "a\0", "a/b", "a=b"] {
            assert_eq!(refusal(name), Some(InvalidMetadata::NameCharacters { name: owned(name) }), "{name:?}");
        }
        for name in ["grpc-status", "grpc-", "GRPC-Timeout", "te", "TE", "Content-Type", "host", "transfer-encoding"] {
            assert_eq!(refusal(name), Some(InvalidMetadata::ReservedName { name: name.to_lowercase() }), "{name}");
        }
        assert_eq!(refusal(""), Some(InvalidMetadata::EmptyName));
        let binary = Metadata::new().append_bin("grpc-trace-bin", "").err();
        assert_eq!(binary, Some(InvalidMetadata::ReservedName { name: owned("grpc-trace-bin") }));
    }

    #[test]
    fn text_is_printable_ascii_and_bytes_are_anything() {
        let mut metadata = Metadata::new();
        let printable: String = (' '..='~').collect();
        metadata.insert("a", printable.clone()).unwrap();
        metadata.insert("empty", "").unwrap();
        for (value, position) in [("\n", 0), ("ab\r", 2), ("\x1f", 0), ("a\x7f", 1), ("aü", 1), ("\0", 0)] {
            let refused = InvalidMetadata::NotPrintable { name: "a".to_owned(), position };
            assert_eq!(metadata.insert("a", value), Err(refused.clone()), "{value:?}");
            assert_eq!(metadata.append("A", value), Err(refused), "{value:?}");
        }
        assert_eq!(metadata.get_all("a").collect::<Vec<_>>(), [printable], "what is refused changes nothing");
        let bytes: Vec<u8> = (0..=255).collect();
        metadata.insert_bin("a-bin", bytes.clone()).unwrap();
        assert_eq!(metadata.get_bin("a-bin").unwrap(), &bytes);
    }

    #[test]
    fn each_kind_of_value_has_names_and_functions_of_its_own() {
        let mut metadata = Metadata::new();
        let (binary, ascii) = ("x-bin".to_owned(), "x".to_owned());
        assert_eq!(metadata.insert("X-Bin", "1"), Err(InvalidMetadata::BinaryName { name: binary.clone() }));
        assert_eq!(metadata.append("x-bin", "1"), Err(InvalidMetadata::BinaryName { name: binary }));
        assert_eq!(metadata.insert_bin("X", "1"), Err(InvalidMetadata::AsciiName { name: ascii.clone() }));
        assert_eq!(metadata.append_bin("x", "1"), Err(InvalidMetadata::AsciiName { name: ascii }));
        assert!(metadata.is_empty());
        metadata.insert("x", "1").unwrap();
        metadata.insert_bin("x-bin", "1").unwrap();
        assert_eq!((metadata.get("x-bin"), metadata.get_bin("x")), (None, None));
        assert_eq!((metadata.get_all("x-bin").count(), metadata.get_all_bin("x").count()), (0, 0));
    }

    #[test]
    fn merging_replaces_the_names_of_the_other_and_keeps_the_rest() {
        let mut metadata = Metadata::new();
        let mut other = Metadata::new();
        for (name, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
            metadata.append(name, value).unwrap();
        }
        for (name, value) in [("a", "4"), ("c", "5"), ("a", "6")] {
            other.append(name, value).unwrap();
        }
        metadata.merge(other);
        let all: Vec<_> = metadata.iter().collect();
        let expected = [("b", "2"), ("a", "4"), ("c", "5"), ("a", "6")];
        assert_eq!(all, expected.map(|(name, value)| (name, MetadataValue::Ascii(value))));
    }

    #[test]
    fn size_counts_names_values_and_32_for_each_value() {
        let mut metadata = Metadata::new();
        assert_eq!(metadata.size(), 0);
        metadata.append("name", "value").unwrap();
        metadata.append("name", "").unwrap();
        metadata.append_bin("b-bin", vec![0; 100]).unwrap();
        assert_eq!(metadata.size(), (4 + 5 + 32) + (4 + 32) + (5 + 100 + 32));
    }

    #[test]
    fn debug_hides_secrets_and_nothing_else() {
        let mut metadata = Metadata::new();
        metadata.insert("x-request-id", "visible").unwrap();
        metadata.insert_bin("trace-bin", "bytes").unwrap();
        for secret in SECRETS {
            metadata.insert(format!("X-{secret}-1"), "hush").unwrap();
            metadata.insert_bin(format!("{secret}-bin"), "hush").unwrap();
        }
        let shown = format!("{metadata:?}");
        assert!(!shown.contains("hush"), "{shown}");
        assert_eq!(shown.matches("<hidden>").count(), 2 * SECRETS.len(), "{shown}");
        assert!(shown.starts_with(r#"{"x-request-id": "visible", "trace-bin": b"bytes", "x-api-key-1""#), "{shown}");
    }

    #[test]
    fn an_error_does_not_show_the_value() {
        let refused = Metadata::new().insert("authorization", "Bearer hush\n").unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("hush"));
    }

    /// The simplest thing that could be right: names with the lists of their values.
    type Model = Vec<(String, Vec<Vec<u8>>)>;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(&'static str, Vec<u8>),
        Append(&'static str, Vec<u8>),
        Remove(&'static str),
        Merge(Vec<(&'static str, Vec<u8>)>),
        Clear,
    }

    fn names() -> impl Strategy<Value = &'static str> {
        select(&["a", "A", "b", "b.c", "x-bin", "X-Bin", "y-bin"])
    }

    fn values() -> impl Strategy<Value = Vec<u8>> {
        vec(b' '..=b'~', 0..3)
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (names(), values()).prop_map(|(name, value)| Step::Insert(name, value)),
            8 => (names(), values()).prop_map(|(name, value)| Step::Append(name, value)),
            3 => names().prop_map(Step::Remove),
            2 => vec((names(), values()), 0..4).prop_map(Step::Merge),
            1 => Just(Step::Clear),
        ]
    }

    fn append(metadata: &mut Metadata, name: &'static str, value: &[u8]) {
        match String::from_utf8(value.to_vec()) {
            Ok(text) if !name.to_lowercase().ends_with("-bin") => metadata.append(name, text).unwrap(),
            _ => metadata.append_bin(name, value.to_vec()).unwrap(),
        }
    }

    fn run(metadata: &mut Metadata, model: &mut Model, step: Step) {
        let remove = |model: &mut Model, name: &str| {
            let len_before = model.len();
            model.retain(|(known, _)| *known != name.to_lowercase());
            model.len() < len_before
        };
        let push = |model: &mut Model, name: &str, value: Vec<u8>| {
            let name = name.to_lowercase();
            match model.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => model.push((name, vec![value])),
            }
        };
        match step {
            Step::Insert(name, value) => {
                match String::from_utf8(value.clone()) {
                    Ok(text) if !name.to_lowercase().ends_with("-bin") => metadata.insert(name, text).unwrap(),
                    _ => metadata.insert_bin(name, value.clone()).unwrap(),
                }
                remove(model, name);
                push(model, name, value);
            }
            Step::Append(name, value) => {
                append(metadata, name, &value);
                push(model, name, value);
            }
            Step::Remove(name) => assert_eq!(metadata.remove(name), remove(model, name)),
            Step::Merge(entries) => {
                let mut other = Metadata::new();
                for (name, value) in &entries {
                    append(&mut other, name, value);
                    remove(model, name);
                }
                metadata.merge(other);
                for (name, value) in entries {
                    push(model, name, value);
                }
            }
            Step::Clear => {
                metadata.clear();
                model.clear();
            }
        }
    }

    proptest! {
        #[test]
        fn metadata_behaves_as_names_with_lists_of_values(steps in vec(steps(), 0..24)) {
            let (mut metadata, mut model) = (Metadata::new(), Model::new());
            for step in steps {
                run(&mut metadata, &mut model, step);
                let keys: Vec<&str> = metadata.keys().collect();
                prop_assert_eq!(keys, model.iter().map(|(name, _)| &**name).collect::<Vec<_>>());
                prop_assert_eq!(metadata.len(), model.iter().map(|(_, values)| values.len()).sum::<usize>());
                prop_assert_eq!(metadata.is_empty(), model.is_empty());
                prop_assert_eq!(metadata.iter().count(), metadata.len());
                for name in ["a", "b", "b.c", "x-bin", "y-bin", "z"] {
                    let known = model.iter().find(|(known, _)| known == name);
                    let expected = known.map_or(&[][..], |(_, values)| values);
                    let ascii = metadata.get_all(name).map(|value| value.as_bytes().to_vec());
                    let values: Vec<_> = ascii.chain(metadata.get_all_bin(name).map(|value| value.to_vec())).collect();
                    prop_assert_eq!(&values, expected);
                    let first = metadata.get(name).map(str::as_bytes).or(metadata.get_bin(name).map(|value| &**value));
                    prop_assert_eq!(first, expected.first().map(|value| &**value));
                    prop_assert_eq!(metadata.contains_key(name), !expected.is_empty());
                }
            }
        }
    }
}
