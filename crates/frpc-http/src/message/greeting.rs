//! The first HTTP/2 frame of each side: its settings.

use bytes::Buf;

/// The settings that a peer announces in its first frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Http2Settings {
    /// The announced maximum size of headers (`SETTINGS_MAX_HEADER_LIST_SIZE`), if any.
    pub(crate) head_len_max: Option<usize>,
}

/// Parses the first frame of a peer. Returns `None` if more bytes are needed.
///
/// A frame other than settings yields the default. It is an error, and the HTTP/2 implementation reports it.
pub(crate) fn parse(seen: &[u8]) -> Option<Http2Settings> {
    let ([a, b, c, kind, flags, stream @ ..], settings) = seen.split_first_chunk::<9>()?;
    let len = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
    if (*kind, *flags, stream) != (SETTINGS, 0, &[0; 4]) || len > LEN_MAX || !len.is_multiple_of(SETTING_LEN) {
        return Some(Http2Settings::default());
    }
    let mut settings = settings.get(..len)?;
    let mut greeting = Http2Settings::default();
    while settings.has_remaining() {
        let (id, value) = (settings.get_u16(), settings.get_u32());
        if id == MAX_HEADER_LIST_SIZE {
            greeting.head_len_max = Some(usize::try_from(value).unwrap_or(usize::MAX));
        }
    }
    Some(greeting)
}

const SETTINGS: u8 = 4;
const SETTING_LEN: usize = 6;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The maximum length of a frame before the peer knows our settings.
const LEN_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_for_any_split() {
        let settings = b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x06\0\0\x20\0";
        for len in 0..settings.len() {
            assert_eq!(parse(&settings[..len]), None, "{len}");
        }
        assert_eq!(parse(settings), Some(Http2Settings { head_len_max: Some(8192) }));
        assert_eq!(parse(b"\0\0\0\x04\0\0\0\0\0"), Some(Http2Settings::default()));
    }

    #[test]
    fn invalid_settings_are_recognized_immediately() {
        for frame in [b"\0\0\x08\x06\0\0\0\0\0", b"\xff\xff\xff\x04\0\0\0\0\0", b"\0\0\x05\x04\0\0\0\0\0"] {
            assert_eq!(parse(frame), Some(Http2Settings::default()));
        }
    }
}
