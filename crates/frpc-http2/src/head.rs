//! Decoded header lists, and the rules of RFC 9113, section 8, for requests, responses and trailers.

use crate::{hpack::FIELD_OVERHEAD, settings::Settings};

/// A decoded header list: the head of a request or response, or trailers.
///
/// The rules of HTTP/2 for names, values and pseudo-headers hold for every head in an event.
#[derive(Debug, Default)]
pub struct Head {
    /// The text of the regular fields in order, name before value.
    text: Vec<u8>,
    spans: Vec<FieldSpan>,
    /// Values of pseudo-headers. Their bytes are checked once, when they are decoded.
    pseudo_text: String,
    method: ValueSpan,
    scheme: ValueSpan,
    path: ValueSpan,
    authority: ValueSpan,
    /// Bits of the pseudo-headers present.
    pseudo: u8,
    status: u16,
    content_length: Option<u64>,
    list_len: usize,
    is_malformed: bool,
    /// Bits of the rules that the list follows. A head in the cache is checked once.
    shapes: u8,
    is_too_large: bool,
}

#[derive(Clone, Copy, Debug)]
struct FieldSpan {
    start: u32,
    name_len: u32,
    value_len: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct ValueSpan {
    start: u32,
    len: u32,
}

const METHOD: u8 = 1;
const SCHEME: u8 = 2;
const PATH: u8 = 4;
const AUTHORITY: u8 = 8;
const STATUS: u8 = 16;

/// The list is a valid head of a request.
const REQUEST: u8 = 1;
/// The same, within the limit and without CONNECT.
const PLAIN_REQUEST: u8 = 2;
/// The list is a final head of a response that may have data, within the limit.
const PLAIN_RESPONSE: u8 = 4;
/// The list is valid as trailers, within the limit.
const PLAIN_TRAILERS: u8 = 8;

impl Head {
    /// Returns `:method`.
    pub fn method(&self) -> Option<&str> {
        self.pseudo_value(METHOD, self.method)
    }

    /// Returns `:scheme`.
    pub fn scheme(&self) -> Option<&str> {
        self.pseudo_value(SCHEME, self.scheme)
    }

    /// Returns `:path`.
    pub fn path(&self) -> Option<&str> {
        self.pseudo_value(PATH, self.path)
    }

    /// Returns `:authority`.
    pub fn authority(&self) -> Option<&str> {
        self.pseudo_value(AUTHORITY, self.authority)
    }

    /// Returns `:status`.
    pub fn status(&self) -> Option<u16> {
        (self.pseudo & STATUS != 0).then_some(self.status)
    }

    /// Returns the value of `content-length`.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Returns the first value of a field, by its name in lower case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| *other == name.as_bytes()).map(|(_, value)| value)
    }

    /// Returns names and values of the fields in order, without pseudo-headers.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.spans.iter().map(|span| {
            let start = span.start as usize;
            let middle = start + span.name_len as usize;
            (&self.text[start..middle], &self.text[middle..middle + span.value_len as usize])
        })
    }

    /// Returns the number of fields, without pseudo-headers.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns `true` if there are no fields except pseudo-headers.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    fn pseudo_value(&self, bit: u8, span: ValueSpan) -> Option<&str> {
        let start = span.start as usize;
        (self.pseudo & bit != 0).then(|| &self.pseudo_text[start..start + span.len as usize])
    }

    /// Adds a decoded field and checks the rules that depend on no other message.
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8], list_max: usize) {
        self.list_len += name.len() + value.len() + FIELD_OVERHEAD;
        // A block of a few bytes may name a large entry many times. Only fields within the limit are copied.
        if self.list_len > list_max {
            self.is_too_large = true;
            return;
        }
        self.is_malformed |= !is_value(value);
        if let [b':', pseudo @ ..] = name {
            self.push_pseudo(pseudo, value);
            return;
        }
        let start = to_u32(self.text.len());
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.is_malformed |= name.is_empty() || !name.iter().all(|byte| is_name_byte(*byte));
        self.push_regular(name, value);
        self.spans.push(FieldSpan { start, name_len: to_u32(name.len()), value_len: to_u32(value.len()) });
    }

    fn push_pseudo(&mut self, name: &[u8], value: &[u8]) {
        // Text of pseudo-headers reaches applications as `str`. Other bytes make the head malformed.
        let is_visible = value.iter().all(|byte| (0x21..0x7f).contains(byte));
        let text = str::from_utf8(value).ok().filter(|_| is_visible).unwrap_or_default();
        let span = ValueSpan { start: to_u32(self.pseudo_text.len()), len: to_u32(text.len()) };
        self.pseudo_text.push_str(text);
        let bit = match name {
            b"method" => {
                self.method = span;
                self.is_malformed |= value.is_empty() || !value.iter().all(|byte| is_method_byte(*byte));
                METHOD
            }
            b"scheme" => {
                self.scheme = span;
                SCHEME
            }
            b"path" => {
                self.path = span;
                PATH
            }
            b"authority" => {
                self.authority = span;
                AUTHORITY
            }
            b"status" => {
                self.status = parse_status(value).unwrap_or(0);
                self.is_malformed |= self.status == 0;
                STATUS
            }
            _ => 0,
        };
        self.is_malformed |= bit == 0 || self.pseudo & bit != 0 || !self.spans.is_empty();
        self.is_malformed |= !is_visible;
        self.pseudo |= bit;
    }

    fn push_regular(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
                self.is_malformed = true;
            }
            b"te" => self.is_malformed |= value != b"trailers",
            b"content-length" => {
                let len = parse_len(value);
                let repeats = self.content_length.is_none() || self.content_length == len;
                self.is_malformed |= len.is_none() || !repeats;
                self.content_length = len;
            }
            // Different hosts in both fields would let one request pass two checks.
            b"host" if self.pseudo & AUTHORITY != 0 => {
                self.is_malformed |=
                    self.authority().is_some_and(|authority| !authority.as_bytes().eq_ignore_ascii_case(value));
            }
            _ => {}
        }
    }

    /// Marks the list as incomplete: a field was too long to decode.
    pub(crate) fn mark_too_large(&mut self) {
        self.is_too_large = true;
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Ends the list, and checks it.
    pub(crate) fn finish(&mut self) {
        let is_request = self.has_shape_of_request();
        let may_have_data = !self.is_informational() && !matches!(self.status(), Some(204 | 304));
        let shapes = [
            (REQUEST, is_request),
            (PLAIN_REQUEST, is_request && !self.is_connect() && !self.is_too_large),
            (PLAIN_RESPONSE, self.is_response() && may_have_data && !self.is_too_large),
            (PLAIN_TRAILERS, self.is_trailers() && !self.is_too_large),
        ];
        self.shapes = shapes.iter().filter(|(_, is_true)| *is_true).map(|(shape, _)| shape).sum();
    }

    /// Returns `true` for a request other than CONNECT with data of this length.
    #[inline]
    pub(crate) fn is_plain_request(&self, len: usize) -> bool {
        self.shapes & PLAIN_REQUEST != 0 && self.allows(len)
    }

    /// Returns `true` for a final response with data of this length, unless the request forbids data.
    #[inline]
    pub(crate) fn is_plain_response(&self, len: usize) -> bool {
        self.shapes & PLAIN_RESPONSE != 0 && self.allows(len)
    }

    /// Returns `true` for valid trailers within the limit.
    #[inline]
    pub(crate) fn is_plain_trailers(&self) -> bool {
        self.shapes & PLAIN_TRAILERS != 0
    }

    #[inline]
    fn allows(&self, len: usize) -> bool {
        self.content_length.is_none_or(|announced| announced == len as u64)
    }

    /// Frees spare capacity, for a head in a cache.
    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.pseudo_text.shrink_to_fit();
        self.spans.shrink_to_fit();
    }

    /// Returns `true` if the list is a valid head of a request.
    pub(crate) fn is_request(&self) -> bool {
        self.shapes & REQUEST != 0
    }

    fn has_shape_of_request(&self) -> bool {
        let path = || {
            self.path().is_some_and(|path| path.starts_with('/') || (path == "*" && self.method() == Some("OPTIONS")))
        };
        let has_shape = match self.is_connect() {
            true => self.pseudo == METHOD | AUTHORITY,
            false => self.pseudo | AUTHORITY == METHOD | SCHEME | PATH | AUTHORITY && path(),
        };
        has_shape && !self.is_malformed
    }

    pub(crate) fn is_connect(&self) -> bool {
        self.method() == Some("CONNECT")
    }

    /// Returns `true` if the list is a valid head of a response. Status 101 does not exist in HTTP/2.
    pub(crate) fn is_response(&self) -> bool {
        self.pseudo == STATUS && self.status != 101 && !self.is_malformed
    }

    pub(crate) fn is_trailers(&self) -> bool {
        self.pseudo == 0 && !self.is_malformed
    }

    pub(crate) fn is_informational(&self) -> bool {
        self.status < 200
    }

    /// Returns the memory of this head, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.text.capacity() + self.pseudo_text.capacity() + self.spans.capacity() * size_of::<FieldSpan>()
    }
}

/// The largest list of settings fits into `u32`, and longer fields are dropped before.
fn to_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Returns the limit for lists.
pub(crate) fn list_max(settings: &Settings) -> usize {
    settings.header_list_max as usize
}

fn is_name_byte(byte: u8) -> bool {
    // A token of RFC 9110 without upper case.
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'^' | b'`' | b'|' | b'~')
}

fn is_method_byte(byte: u8) -> bool {
    is_name_byte(byte) || byte.is_ascii_uppercase()
}

fn is_value(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let breaks = value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'));
    !breaks && !is_space(value.first()) && !is_space(value.last())
}

fn parse_status(value: &[u8]) -> Option<u16> {
    let &[a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = value else { return None };
    Some(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
}

fn parse_len(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    digits.then(|| str::from_utf8(value).ok()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        let mut head = Head::default();
        for line in text.split(" | ") {
            let at = line[1..].find('=').unwrap() + 1;
            head.push(&line.as_bytes()[..at], &line.as_bytes()[at + 1..], 1000);
        }
        head.finish();
        head
    }

    const GET: &str = ":method=GET | :scheme=http | :path=/";

    #[test]
    fn requests_have_their_pseudo_headers_once_and_first() {
        for fine in ["", " | :authority=a", " | te=trailers", " | x=y", " | content-length=3 | content-length=3"] {
            assert!(head(&format!("{GET}{fine}")).is_request(), "{fine}");
        }
        for bad in [
            " | :path=/",
            " | :status=200",
            " | :protocol=websocket",
            " | X=y",
            " | te=gzip",
            " | connection=close",
            " | upgrade=h2c",
            " | transfer-encoding=chunked",
            " | x=y | :authority=a",
            " | content-length=3 | content-length=4",
            " | content-length=+3",
            " | x= y",
            " | x=y\r",
            " | :authority=a | host=b",
        ] {
            assert!(!head(&format!("{GET}{bad}")).is_request(), "{bad}");
        }
        assert!(!head(":method=GET | :scheme=http").is_request());
        assert!(!head(":method=GET | :scheme=http | :path=").is_request());
        assert!(!head(":method=GET | :scheme=http | :path=*").is_request());
        assert!(head(":method=OPTIONS | :scheme=http | :path=*").is_request());
    }

    #[test]
    fn connect_has_an_authority_only() {
        assert!(head(":method=CONNECT | :authority=a:1").is_request());
        assert!(!head(":method=CONNECT | :authority=a:1 | :path=/ | :scheme=http").is_request());
        assert!(!head(":method=CONNECT | x=y").is_request());
    }

    #[test]
    fn responses_have_a_status_of_three_digits() {
        assert!(head(":status=200 | x=y").is_response());
        assert!(head(":status=103").is_informational());
        for bad in
            [":status=20", ":status=2000", ":status=abc", ":status=099", ":status=101", "x=y", ":status=200 | :path=/"]
        {
            assert!(!head(bad).is_response(), "{bad}");
        }
        assert!(head("x=y").is_trailers());
        assert!(!head(":status=200").is_trailers());
    }

    #[test]
    fn a_list_is_accepted_at_its_limit_and_dropped_past_it() {
        for (value_len, is_too_large) in [(967, false), (968, true)] {
            let mut head = Head::default();
            head.push(b"a", "v".repeat(value_len).as_bytes(), 1000);
            assert_eq!(head.is_too_large(), is_too_large);
            assert_eq!(head.len(), usize::from(!is_too_large));
        }
    }
}
