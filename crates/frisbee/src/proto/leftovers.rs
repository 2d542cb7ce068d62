//! Heartbeats and control frames before raw bytes, sent by a peer before it left packet mode.

use bytes::BufMut as _;

use super::{
    checksum::{CHECKSUM_LEN, header_checksum},
    header::{CONTROL, Header, HeaderFormat},
};

/// Heartbeats and control frames at the front of raw bytes, sent by the peer before it left packet mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftoverFrames {
    /// The first `len` bytes are complete frames, and raw bytes follow.
    Before {
        /// The number of bytes to skip.
        len: usize,
    },
    /// The first `len` bytes are complete frames. The rest may be the start of another.
    Undecided {
        /// The number of bytes to skip for now.
        len: usize,
    },
}

impl LeftoverFrames {
    /// Measures the frames at the front of `bytes`.
    pub fn measure(format: HeaderFormat, has_checksums: bool, bytes: &[u8]) -> Self {
        let checksum_len = if has_checksums { CHECKSUM_LEN } else { 0 };
        let mut len = 0;
        'frames: loop {
            let rest = &bytes[len..];
            let mut undecided = rest.is_empty();
            for header in [Header::PING, Header::PONG] {
                let mut whole = Vec::with_capacity(format.header_len() + checksum_len);
                header.encode(format, &mut whole);
                if has_checksums {
                    whole.put_u32(header_checksum(format, header));
                }
                if rest.starts_with(&whole) {
                    len += whole.len();
                    continue 'frames;
                }
                undecided |= whole.starts_with(rest);
            }
            // A control frame: its operation number may be followed by any bytes.
            let mut control = Vec::with_capacity(format.header_len());
            Header::control(0, 0).encode(format, &mut control);
            // With a magic number, control frames are distinct from raw bytes, so any id of a stream or packet is
            // accepted.
            if let (HeaderFormat::Magic10, Some(id)) = (format, rest.get(2..rest.len().min(4))) {
                control[2..][..id.len()].copy_from_slice(id);
            }
            let known = rest.len().min(format.header_len() - size_of::<u32>());
            undecided |= rest.len() < format.header_len() && control.starts_with(&rest[..known]);
            match Header::decode(format, rest) {
                Ok(Some(Header { id, operation: CONTROL, len: content_len @ 1.. }))
                    if content_len <= SKIPPED_LEN_MAX && (id == 0 || format == HeaderFormat::Magic10) =>
                {
                    let whole = format.header_len() + content_len as usize + 2 * checksum_len;
                    if rest.len() < whole {
                        return Self::Undecided { len };
                    }
                    len += whole;
                }
                _ if undecided => return Self::Undecided { len },
                _ => return Self::Before { len },
            }
        }
    }
}

/// The largest content of a control frame before raw bytes. Longer ones are treated as raw bytes.
const SKIPPED_LEN_MAX: u32 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::header::tests::encoded;

    #[test]
    fn heartbeats_in_front_of_raw_bytes_are_measured() {
        for format in [HeaderFormat::Magic10, HeaderFormat::Plain8] {
            let mut bytes = encoded(Header::PING, format);
            bytes.extend(encoded(Header::PONG, format));
            let len = bytes.len();
            assert_eq!(LeftoverFrames::measure(format, false, &bytes), LeftoverFrames::Undecided { len });
            assert_eq!(
                LeftoverFrames::measure(format, false, &bytes[..len - 1]),
                LeftoverFrames::Undecided { len: len / 2 }
            );
            bytes.push(b'R');
            assert_eq!(LeftoverFrames::measure(format, false, &bytes), LeftoverFrames::Before { len });
        }
    }

    #[test]
    fn control_frames_before_raw_bytes_are_measured() {
        let ids: [(_, &[u16]); 2] = [(HeaderFormat::Magic10, &[0, 7, 0xffff]), (HeaderFormat::Plain8, &[0])];
        for (format, id) in ids.into_iter().flat_map(|(format, ids)| ids.iter().map(move |id| (format, *id))) {
            let mut bytes = encoded(Header::control(id, 5), format);
            bytes.extend([2, 0, 0, 1, 0]);
            let len = bytes.len();
            for cut in 0..len {
                assert_eq!(LeftoverFrames::measure(format, false, &bytes[..cut]), LeftoverFrames::Undecided { len: 0 });
            }
            bytes.push(b'R');
            assert_eq!(LeftoverFrames::measure(format, false, &bytes), LeftoverFrames::Before { len });
        }
        assert_eq!(LeftoverFrames::measure(HeaderFormat::Plain8, false, b"R"), LeftoverFrames::Before { len: 0 });
    }
}
