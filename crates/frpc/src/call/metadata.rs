//! Names and values sent along with the messages of a call.

use std::fmt;

use super::shown::shown;

/// Names and values sent along with the messages of a call, such as credentials and trace ids. A name can have several
/// values. They keep their order.
///
/// Values are printable ASCII, or arbitrary bytes under names ending in `-bin`. Methods for one kind never see the
/// other: [`get`](Self::get) finds nothing under `trace-bin`, and [`insert`](Self::insert) refuses it.
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
/// Names follow the rules of gRPC, so every wire can carry them: ASCII letters, digits, `_`, `-` and `.`. Case does not
/// matter; upper case is stored as lower case. Reserved names:
///
/// - All names starting with `grpc-`, except `grpc-previous-rpc-attempts` and `grpc-retry-pushback-ms`: the first tells a
///   server about retries, and with the second a server asks for a pause before the next one, or for none.
/// - The names HTTP uses to frame, route or type a message: `connection`, `content-length`, `content-type`, `host`,
///   `keep-alive`, `proxy-connection`, `te`, `trailer`, `transfer-encoding` and `upgrade`. An application value under
///   one of them could make two HTTP parsers disagree about the end of a message.
///
/// `user-agent` is not reserved, because handlers of gRPC servers may read it. A wire with a `user-agent` of its own
/// replaces the value of the application.
///
/// # Values
///
/// As in gRPC, blanks at either end of a value may be lost on the way, and several text values of one name may arrive
/// joined by commas. Binary values are never joined.
///
/// # Debug
///
/// `{:?}` hides the values of [names that usually hold secrets](crate::layers::looks_secret). It shows all other values.
///
/// # Which wires carry it
///
/// Calls in process, between two Rust peers and over gRPC carry metadata, provided that the peer accepts its size
/// ([`MessageSettings::metadata_len_max`](crate::MessageSettings::metadata_len_max)). Plain fRPC, the protocol of Go peers,
/// does not. A call with metadata to such a peer fails, unless [`LostMetadata`](crate::LostMetadata) is set to drop it.
/// Metadata that a handler adds to an answer for such a peer is lost.
//
// All entries are in one allocation and searched linearly, because calls have few entries.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Each entry: the lengths of its name and value, then the name, then the value.
    entries: Vec<u8>,
    len: usize,
}

/// One value of [`Metadata`], text or binary as in gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataValue<'a> {
    /// Printable ASCII.
    Ascii(&'a str),
    /// Arbitrary bytes. The name ends in `-bin`.
    Binary(&'a [u8]),
}

impl Metadata {
    /// The names of gRPC about retries: the number of earlier attempts, and the pause asked for by a server.
    pub const OF_RETRIES: [&str; 2] = ["grpc-previous-rpc-attempts", frpc_balance::RetryPushback::NAME];

    /// Creates metadata without entries. Does not allocate.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), len: 0 }
    }

    /// Returns the first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values(name).find_map(MetadataEntry::ascii)
    }

    /// Returns the values of a name, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.values(name).filter_map(MetadataEntry::ascii)
    }

    /// Returns the first value of a name ending in `-bin`.
    pub fn get_bin(&self, name: &str) -> Option<&[u8]> {
        self.values(name).find_map(MetadataEntry::binary)
    }

    /// Returns the values of a name ending in `-bin`, in order.
    pub fn get_all_bin<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.values(name).filter_map(MetadataEntry::binary)
    }

    /// Sets the value of a name and removes its previous values.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if gRPC does not allow the name or the value; see [names](#names).
    pub fn insert(&mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Result<(), InvalidMetadata> {
        self.replace(name.as_ref(), value.as_ref().as_bytes(), ValueKind::Ascii)
    }

    /// Adds a value to a name, after its existing values.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if gRPC does not allow the name or the value; see [names](#names).
    pub fn append(&mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Result<(), InvalidMetadata> {
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref().as_bytes());
        self.push(name, value, check(name, value, ValueKind::Ascii)?);
        Ok(())
    }

    /// Sets the value of a name ending in `-bin` and removes its previous values.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if gRPC does not allow the name; see [names](#names).
    pub fn insert_bin(&mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Result<(), InvalidMetadata> {
        self.replace(name.as_ref(), value.as_ref(), ValueKind::Binary)
    }

    /// Adds a value to a name ending in `-bin`, after its existing values.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if gRPC does not allow the name; see [names](#names).
    pub fn append_bin(&mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Result<(), InvalidMetadata> {
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref());
        self.push(name, value, check(name, value, ValueKind::Binary)?);
        Ok(())
    }

    /// Adds a value received over a wire. It is binary if the name ends in `-bin`, and text otherwise.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if gRPC does not allow the name or the value; see [names](#names).
    pub fn append_received(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidMetadata> {
        self.push(name, value, check(name, value, ValueKind::of(name))?);
        Ok(())
    }

    /// Removes all values of a name, binary or not. Returns `true` if it had any.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.len;
        self.retain(|entry| !entry.is_named(name.as_bytes()));
        self.len < before
    }

    /// Returns `true` if the name has a value, binary or not.
    pub fn contains_key(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Returns each name once, in lower case, in the order of their first values.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let is_first =
            |(index, entry): &(usize, MetadataEntry<'_>)| !self.entries().take(*index).any(|e| e.name == entry.name);
        self.entries().enumerate().filter(is_first).map(|(_, entry)| text(entry.name))
    }

    /// Returns the number of values. A name with several values counts several times.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no values.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns all values with their names in lower case. The values of one name keep their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, MetadataValue<'_>)> {
        self.entries().map(|entry| {
            let value = match ValueKind::of(entry.name) {
                ValueKind::Ascii => MetadataValue::Ascii(text(entry.value)),
                ValueKind::Binary => MetadataValue::Binary(entry.value),
            };
            (text(entry.name), value)
        })
    }

    /// Returns all entries in the form sent on wires.
    pub(crate) fn entries(&self) -> MetadataEntries<'_> {
        MetadataEntries(&self.entries)
    }

    /// Returns a copy with only the values of names accepted by the function.
    pub(crate) fn only(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Self {
        let mut only = self.clone();
        only.retain(|entry| is_wanted(entry.name));
        only
    }

    /// Adds values of another set for names without a value here.
    pub(crate) fn inherit(&mut self, others: &Self) {
        let mut missing = others.clone();
        missing.retain(|entry| !self.entries().any(|known| known.name == entry.name));
        self.add(missing);
    }

    /// Removes all names and values.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.len = 0;
    }

    /// Moves all entries of `other` here. They replace the values of the same names; to add to these instead,
    /// [`append`](Self::append) each value.
    pub fn merge(&mut self, other: Self) {
        self.retain(|entry| !other.entries().any(|theirs| theirs.name == entry.name));
        self.add(other);
    }

    /// Returns the size counted by metadata limits: the bytes of all names and values, plus 32 per value, as HTTP/2
    /// counts header lists. Binary values count with their raw length, not their base64 length.
    pub fn size(&self) -> usize {
        self.entries.len() - self.len * LENGTHS_LEN + self.len * ENTRY_OVERHEAD
    }

    fn values<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = MetadataEntry<'a>> + use<'a, 'n> {
        self.entries().filter(move |entry| entry.is_named(name.as_bytes()))
    }

    fn replace(&mut self, name: &str, value: &[u8], kind: ValueKind) -> Result<(), InvalidMetadata> {
        let checked = check(name.as_bytes(), value, kind)?;
        self.remove(name);
        self.push(name.as_bytes(), value, checked);
        Ok(())
    }

    fn push(&mut self, name: &[u8], value: &[u8], checked: CheckedName) {
        let (start, len) = (self.entries.len(), LENGTHS_LEN + name.len() + value.len());
        // A second entry usually follows, so the first allocation has room for more.
        self.entries.reserve(if start == 0 { len.max(ENTRIES_LEN_MIN) } else { len });
        self.entries.extend_from_slice(&name.len().to_ne_bytes());
        self.entries.extend_from_slice(&value.len().to_ne_bytes());
        self.entries.extend_from_slice(name);
        if checked.has_upper_case {
            self.entries[start + LENGTHS_LEN..].make_ascii_lowercase();
        }
        self.entries.extend_from_slice(value);
        self.len += 1;
    }

    /// Adds a value known to be valid, to a valid name in lower case.
    #[inline]
    pub(super) fn push_known(&mut self, name: &[u8], value: &[u8]) {
        self.push(name, value, CheckedName { has_upper_case: false });
    }

    fn add(&mut self, mut others: Self) {
        self.entries.append(&mut others.entries);
        self.len += others.len;
    }

    fn retain(&mut self, is_kept: impl Fn(MetadataEntry<'_>) -> bool) {
        let (mut from, mut to) = (0, 0);
        while let Some(entry) = MetadataEntries(&self.entries[from..]).next() {
            let (len, is_kept) = (LENGTHS_LEN + entry.name.len() + entry.value.len(), is_kept(entry));
            if !is_kept {
                self.len -= 1;
            } else {
                if from > to {
                    self.entries.copy_within(from..from + len, to);
                }
                to += len;
            }
            from += len;
        }
        self.entries.truncate(to);
    }
}

/// The fixed size of a value in [`Metadata::size`].
const ENTRY_OVERHEAD: usize = 32;

/// The length of the two lengths before the name of an entry.
const LENGTHS_LEN: usize = 2 * size_of::<usize>();

/// The minimum capacity in bytes of the first allocation.
const ENTRIES_LEN_MIN: usize = 256;

/// An entry with a valid name in lower case.
#[derive(Clone, Copy)]
pub(crate) struct MetadataEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

pub(crate) struct MetadataEntries<'a>(&'a [u8]);

impl<'a> Iterator for MetadataEntries<'a> {
    type Item = MetadataEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<MetadataEntry<'a>> {
        let (&name_len, rest) = self.0.split_first_chunk()?;
        let (&value_len, rest) = rest.split_first_chunk()?;
        let (name, rest) = rest.split_at(usize::from_ne_bytes(name_len));
        let (value, rest) = rest.split_at(usize::from_ne_bytes(value_len));
        self.0 = rest;
        Some(MetadataEntry { name, value })
    }
}

impl<'a> MetadataEntry<'a> {
    fn is_named(self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    fn ascii(self) -> Option<&'a str> {
        (ValueKind::of(self.name) == ValueKind::Ascii).then(|| text(self.value))
    }

    fn binary(self) -> Option<&'a [u8]> {
        (ValueKind::of(self.name) == ValueKind::Binary).then_some(self.value)
    }
}

/// Converts the bytes of a checked name or value to text.
fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("checked names and values are ASCII")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Ascii,
    Binary,
}

impl ValueKind {
    fn of(name: &[u8]) -> Self {
        if name.ends_with(b"-bin") { Self::Binary } else { Self::Ascii }
    }
}

/// The result of a successful check.
struct CheckedName {
    has_upper_case: bool,
}

/// Checks a name and its value against the rules for application metadata.
fn check(name: &[u8], value: &[u8], kind: ValueKind) -> Result<CheckedName, InvalidMetadata> {
    let found = name.iter().fold(0, |found, byte| found | NAME_BYTES[usize::from(*byte)]);
    let has_upper_case = found & UPPER_CASE != 0;
    let shown = || String::from_utf8_lossy(name).into_owned();
    if name.is_empty() {
        return Err(InvalidMetadata::EmptyName);
    }
    if found & FORBIDDEN != 0 {
        return Err(InvalidMetadata::NameCharacters { name: shown() });
    }
    if has_upper_case {
        return check(&name.to_ascii_lowercase(), value, kind).map(|_| CheckedName { has_upper_case });
    }
    if name.starts_with(b"grpc-") && !Metadata::OF_RETRIES.iter().any(|known| known.as_bytes() == name)
        || is_of_http(name)
    {
        return Err(InvalidMetadata::ReservedName { name: shown() });
    }
    match (kind, ValueKind::of(name)) {
        (ValueKind::Ascii, ValueKind::Binary) => return Err(InvalidMetadata::BinaryName { name: shown() }),
        (ValueKind::Binary, ValueKind::Ascii) => return Err(InvalidMetadata::AsciiName { name: shown() }),
        (ValueKind::Binary, ValueKind::Binary) => return Ok(CheckedName { has_upper_case }),
        (ValueKind::Ascii, ValueKind::Ascii) => {}
    }
    let is_other = |byte: &u8| !matches!(byte, 0x20..=0x7e);
    // Scans to the end: for short values, this is faster than an early exit.
    if value.iter().fold(false, |found, byte| found | is_other(byte)) {
        let position = value.iter().position(is_other).unwrap_or_default();
        return Err(InvalidMetadata::NotPrintable { name: shown(), position });
    }
    Ok(CheckedName { has_upper_case })
}

const UPPER_CASE: u8 = 1;
const FORBIDDEN: u8 = 2;

/// The class of each byte in a name: allowed, upper case or forbidden.
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

/// Returns `true` if HTTP frames, routes or types messages by this name. The documentation of [`Metadata`] lists them.
fn is_of_http(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection"
            | b"content-length"
            | b"content-type"
            | b"host"
            | b"keep-alive"
            | b"proxy-connection"
            | b"te"
            | b"trailer"
            | b"transfer-encoding"
            | b"upgrade"
    )
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name, DebugValue { name, value }))).finish()
    }
}

/// A value as shown by `{:?}` of the metadata.
struct DebugValue<'a> {
    name: &'a str,
    value: MetadataValue<'a>,
}

impl fmt::Debug for DebugValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            _ if looks_secret(self.name) => f.write_str(HIDDEN),
            MetadataValue::Ascii(value) => value.fmt(f),
            MetadataValue::Binary(value) => write!(f, "b\"{}\"", value.escape_ascii()),
        }
    }
}

/// Returns `true` for names of metadata with probably secret values, such as `authorization` or `x-api-key`: names that
/// contain `api-key`, `apikey`, `auth`, `cookie`, `credential`, `passw`, `secret`, `session`, `signature` or `token`.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    SECRETS.iter().any(|part| name.contains(part))
}

const SECRETS: [&str; 10] =
    ["auth", "cookie", "token", "secret", "passw", "api-key", "apikey", "credential", "session", "signature"];

/// The text in place of secret values.
pub(crate) const HIDDEN: &str = "***";

/// The error for a name or value not allowed in [`Metadata`]. Neither `Display` nor `Debug` shows the value, because it
/// may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidMetadata {
    /// The name is empty.
    EmptyName,
    /// The name contains a forbidden character.
    NameCharacters {
        /// The name.
        name: String,
    },
    /// The name is reserved for the protocols that carry calls; see [`Metadata`](Metadata#names).
    ReservedName {
        /// The name, in lower case.
        name: String,
    },
    /// The name ends in `-bin`, but the value was given as text.
    BinaryName {
        /// The name, in lower case.
        name: String,
    },
    /// The name does not end in `-bin`, but the value was given as bytes.
    AsciiName {
        /// The name, in lower case.
        name: String,
    },
    /// The value contains a character outside printable ASCII, such as a trailing line break.
    NotPrintable {
        /// The name, in lower case.
        name: String,
        /// The byte index of the first such character.
        position: usize,
    },
}

impl fmt::Display for InvalidMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => write!(f, "the name of a metadata entry is empty"),
            Self::NameCharacters { name } => {
                let name = shown(name);
                write!(
                    f,
                    "metadata cannot be named \"{name}\": names consist of ASCII letters, digits, '_', '-' and '.'"
                )
            }
            Self::ReservedName { name } => {
                write!(f, "metadata cannot be named '{name}': the name is reserved for the protocols below calls")
            }
            Self::BinaryName { name } => {
                write!(f, "metadata '{name}' holds bytes: use insert_bin or append_bin, or a name without '-bin'")
            }
            Self::AsciiName { name } => {
                write!(f, "metadata '{name}' holds text: use insert or append, or a name ending in '-bin'")
            }
            Self::NotPrintable { name, position } => write!(
                f,
                "the value of metadata '{name}' is not printable ASCII at byte {position}: encode it, or send it as \
                 bytes under a name ending in '-bin'"
            ),
        }
    }
}

impl std::error::Error for InvalidMetadata {}

#[cfg(test)]
mod tests;
