//! Parsing of payloads.

use super::{FrameHeader, flag, setting};
use crate::{
    ConnectionError, ErrorCode,
    settings::{FRAME_LEN_MIN, WINDOW_MAX},
};

/// Returns the payload of DATA or HEADERS without its padding.
#[inline]
pub(crate) fn unpad(header: FrameHeader, payload: &[u8]) -> Result<&[u8], ConnectionError> {
    if !header.has(flag::PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) =
        payload.split_first().ok_or(ConnectionError::frame_size("a padded frame has no padding length"))?;
    let len = rest.len().checked_sub(usize::from(padding));
    len.map(|len| &rest[..len]).ok_or(ConnectionError::protocol("padding is longer than its frame"))
}

/// Returns the header block fragment of HEADERS, and `true` if the frame makes its stream depend on itself.
pub(crate) fn block_fragment(header: FrameHeader, payload: &[u8]) -> Result<(&[u8], bool), ConnectionError> {
    let payload = unpad(header, payload)?;
    if !header.has(flag::PRIORITY) {
        return Ok((payload, false));
    }
    let (priority, fragment) =
        payload.split_at_checked(5).ok_or(ConnectionError::frame_size("HEADERS is shorter than its priority"))?;
    Ok((fragment, parse_u32(priority) & WINDOW_MAX == header.stream))
}

/// A setting of the peer with a value in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    HeaderTableSize(u32),
    MaxConcurrentStreams(u32),
    InitialWindowSize(u32),
    MaxFrameSize(u32),
    MaxHeaderListSize(u32),
    /// A setting without effect here.
    Other,
}

/// Parses the payload of SETTINGS. The iterator ends after its first error.
pub(crate) fn parse_settings(
    payload: &[u8],
    peer_is_server: bool,
) -> Result<impl Iterator<Item = Result<Setting, ConnectionError>> + '_, ConnectionError> {
    if !payload.len().is_multiple_of(6) {
        return Err(ConnectionError::frame_size("SETTINGS is not a list of settings"));
    }
    Ok(payload.chunks_exact(6).map(move |pair| {
        let (id, value) = (u16::from_be_bytes([pair[0], pair[1]]), parse_u32(&pair[2..]));
        Ok(match id {
            setting::HEADER_TABLE_SIZE => Setting::HeaderTableSize(value),
            // A server must not enable push, and no other values exist.
            setting::ENABLE_PUSH if value > u32::from(!peer_is_server) => {
                return Err(ConnectionError::protocol("ENABLE_PUSH is out of range"));
            }
            setting::MAX_CONCURRENT_STREAMS => Setting::MaxConcurrentStreams(value),
            setting::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => {
                let code = ErrorCode::FLOW_CONTROL_ERROR;
                return Err(ConnectionError::peer(code, "INITIAL_WINDOW_SIZE is out of range"));
            }
            setting::INITIAL_WINDOW_SIZE => Setting::InitialWindowSize(value),
            setting::MAX_FRAME_SIZE if !(FRAME_LEN_MIN..1 << 24).contains(&value) => {
                return Err(ConnectionError::protocol("MAX_FRAME_SIZE is out of range"));
            }
            setting::MAX_FRAME_SIZE => Setting::MaxFrameSize(value),
            setting::MAX_HEADER_LIST_SIZE => Setting::MaxHeaderListSize(value),
            _ => Setting::Other,
        })
    }))
}

/// The content of GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoAway {
    pub(crate) last: u32,
    pub(crate) code: ErrorCode,
}

pub(crate) fn parse_goaway(payload: &[u8]) -> Result<GoAway, ConnectionError> {
    let Some((last, rest)) = payload.split_at_checked(4).filter(|(_, rest)| rest.len() >= 4) else {
        return Err(ConnectionError::frame_size("GOAWAY is too short"));
    };
    Ok(GoAway { last: parse_u32(last) & WINDOW_MAX, code: ErrorCode(parse_u32(rest)) })
}

/// Parses the increment of WINDOW_UPDATE.
pub(crate) fn parse_increment(payload: &[u8]) -> Result<u32, ConnectionError> {
    if payload.len() != 4 {
        return Err(ConnectionError::frame_size("WINDOW_UPDATE has four bytes"));
    }
    Ok(parse_u32(payload) & WINDOW_MAX)
}

/// Reads the first four bytes. Callers have checked the length.
#[inline]
pub(crate) fn parse_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |chunk| u32::from_be_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::kind;

    fn header(flags: u8) -> FrameHeader {
        FrameHeader { len: 0, kind: kind::HEADERS, flags, stream: 3 }
    }

    #[test]
    fn padding_may_fill_its_frame_but_not_exceed_it() {
        assert_eq!(unpad(header(0), &[9, 1]).unwrap(), [9, 1]);
        assert_eq!(unpad(header(flag::PADDED), &[2, 1, 0, 0]).unwrap(), [1]);
        assert_eq!(unpad(header(flag::PADDED), &[2, 0, 0]).unwrap(), []);
        assert_eq!(unpad(header(flag::PADDED), &[3, 0, 0]).unwrap_err().code, ErrorCode::PROTOCOL_ERROR);
        assert_eq!(unpad(header(flag::PADDED), &[]).unwrap_err().code, ErrorCode::FRAME_SIZE_ERROR);
    }

    #[test]
    fn a_priority_is_skipped_after_a_check_for_self_dependency() {
        let flags = flag::PRIORITY | flag::PADDED;
        assert_eq!(block_fragment(header(flags), &[1, 0x80, 0, 0, 3, 16, 7, 0]).unwrap(), (&[7][..], true));
        assert_eq!(block_fragment(header(flag::PRIORITY), &[0, 0, 0, 5, 16, 7]).unwrap(), (&[7][..], false));
        let error = block_fragment(header(flag::PRIORITY), &[0, 0, 0, 5]).unwrap_err();
        assert_eq!(error.code, ErrorCode::FRAME_SIZE_ERROR);
    }

    #[test]
    fn settings_are_read_at_their_limits_and_refused_past_them() {
        let read = |id: u16, value: u32| {
            let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
            parse_settings(&payload, false).unwrap().next().unwrap().map_err(|error| error.code)
        };
        assert_eq!(read(4, WINDOW_MAX), Ok(Setting::InitialWindowSize(WINDOW_MAX)));
        assert_eq!(read(4, WINDOW_MAX + 1), Err(ErrorCode::FLOW_CONTROL_ERROR));
        assert_eq!(read(5, 16_384), Ok(Setting::MaxFrameSize(16_384)));
        assert_eq!(read(5, 16_383), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(read(5, 16_777_215), Ok(Setting::MaxFrameSize(16_777_215)));
        assert_eq!(read(5, 16_777_216), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(read(2, 1), Ok(Setting::Other));
        assert_eq!(read(2, 2), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(read(0x99, 7), Ok(Setting::Other));
        let of_server = parse_settings(&[0, 2, 0, 0, 0, 1], true).unwrap().next().unwrap();
        assert!(of_server.is_err(), "a server must not enable push");
        assert!(parse_settings(&[0; 7], false).is_err());
    }

    #[test]
    fn goaway_may_carry_debug_data() {
        let goaway = GoAway { last: 5, code: ErrorCode::CANCEL };
        assert_eq!(parse_goaway(&[0x80, 0, 0, 5, 0, 0, 0, 8, 1, 2]), Ok(goaway));
        assert!(parse_goaway(&[0, 0, 0, 5, 0, 0, 0]).is_err());
    }
}
