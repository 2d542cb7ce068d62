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
mod tests;
