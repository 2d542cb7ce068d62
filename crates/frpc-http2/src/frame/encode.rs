//! Writing of frames to the end of a buffer.

use super::{FrameBuffer, FrameHeader, HEADER_LEN, flag, kind};
use crate::ErrorCode;

/// Appends a frame header. Payloads are shorter than 2^24 bytes.
#[inline]
pub(crate) fn put_header(out: &mut FrameBuffer, len: usize, kind: u8, flags: u8, stream: u32) {
    debug_assert!(len < 1 << 24, "the length has three bytes");
    let len = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
    let id = stream.to_be_bytes();
    out.count(kind);
    out.extend_from_slice(&[len[1], len[2], len[3], kind, flags, id[0], id[1], id[2], id[3]]);
}

/// Writes the length of the payload after `start` into the frame header at `start`.
#[inline]
pub(crate) fn patch_len(out: &mut [u8], start: usize) {
    let len = u32::try_from(out.len() - start - HEADER_LEN).unwrap_or(u32::MAX);
    out[start..start + 3].copy_from_slice(&len.to_be_bytes()[1..]);
}

/// Splits a HEADERS frame at `start` into HEADERS and CONTINUATION frames with at most `len_max` bytes each.
pub(crate) fn split_block(out: &mut FrameBuffer, start: usize, len_max: usize) {
    let Some(header) = FrameHeader::parse(&out[start..]) else { return };
    let first_end = out.len().min(start + HEADER_LEN + len_max);
    let rest = out.split_off(first_end);
    patch_len(out, start);
    let pieces = rest.chunks(len_max);
    // END_STREAM belongs to the first frame and END_HEADERS to the last.
    if pieces.len() > 0 {
        out[start + 4] &= !flag::END_HEADERS;
    }
    let last = pieces.len().saturating_sub(1);
    for (i, piece) in pieces.enumerate() {
        put_header(out, piece.len(), kind::CONTINUATION, if i == last { flag::END_HEADERS } else { 0 }, header.stream);
        out.extend_from_slice(piece);
    }
}

/// Appends SETTINGS with the given pairs.
pub(crate) fn put_settings(out: &mut FrameBuffer, settings: &[(u16, u32)]) {
    put_header(out, settings.len() * 6, kind::SETTINGS, 0, 0);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(crate) fn put_settings_ack(out: &mut FrameBuffer) {
    put_header(out, 0, kind::SETTINGS, flag::ACK, 0);
}

pub(crate) fn put_window_update(out: &mut FrameBuffer, stream: u32, increment: u32) {
    debug_assert!(increment > 0, "an increment of zero is an error");
    put_header(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(crate) fn put_ping(out: &mut FrameBuffer, is_ack: bool, payload: [u8; 8]) {
    put_header(out, 8, kind::PING, if is_ack { flag::ACK } else { 0 }, 0);
    out.extend_from_slice(&payload);
}

pub(crate) fn put_goaway(out: &mut FrameBuffer, last: u32, code: ErrorCode) {
    put_header(out, 8, kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub(crate) fn put_reset(out: &mut FrameBuffer, stream: u32, code: ErrorCode) {
    put_header(out, 4, kind::RST_STREAM, 0, stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_as_it_was_written() {
        let mut out = FrameBuffer::default();
        put_header(&mut out, 0x012345, kind::DATA, flag::PADDED, 0x7fff_fffe);
        let header = FrameHeader { len: 0x012345, kind: kind::DATA, flags: flag::PADDED, stream: 0x7fff_fffe };
        assert_eq!(FrameHeader::parse(&out), Some(header));
        out[5] |= 0x80;
        assert_eq!(FrameHeader::parse(&out), Some(header), "the reserved bit is ignored");
        assert_eq!(FrameHeader::parse(&out[..8]), None);
    }

    #[test]
    fn every_length_of_three_bytes_and_every_stream_fits_a_header() {
        let lens = (0..1 << 24).step_by(251).chain([(1 << 24) - 1]);
        let streams = (0..31).flat_map(|bit| [(1_u32 << bit) - 1, 1 << bit]).chain([0x7fff_ffff]);
        let headers = lens.map(|len| (len, 1)).chain(streams.map(|stream| (1, stream)));
        for (len, stream) in headers {
            let mut out = FrameBuffer::default();
            put_header(&mut out, len, kind::DATA, flag::END_STREAM, stream);
            let header = FrameHeader { len, kind: kind::DATA, flags: flag::END_STREAM, stream };
            assert_eq!((FrameHeader::parse(&out), out.len()), (Some(header), HEADER_LEN));
        }
    }

    #[test]
    fn padding_leaves_the_payload_or_is_an_error() {
        let header = FrameHeader { len: 0, kind: kind::DATA, flags: flag::PADDED, stream: 1 };
        for len in 0..=300 {
            for padding in 0..=u8::MAX {
                let payload: Vec<u8> = std::iter::once(padding).chain((1..len).map(|_| 7)).take(len).collect();
                let expected = len.checked_sub(1 + usize::from(padding)).map(|len| &payload[1..=len]);
                assert_eq!(super::super::unpad(header, &payload).ok(), expected);
            }
        }
    }

    #[test]
    fn a_long_block_is_split_with_its_flags_on_the_right_frames() {
        for (len, expected) in [(1, vec![1]), (4, vec![4]), (5, vec![4, 1]), (12, vec![4, 4, 4])] {
            let mut out = FrameBuffer::default();
            out.push(0xee);
            put_header(&mut out, 0, kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 3);
            out.extend(std::iter::repeat_n(7, len));
            patch_len(&mut out, 1);
            split_block(&mut out, 1, 4);
            let (mut rest, mut lens) = (&out[1..], Vec::new());
            while let Some(header) = FrameHeader::parse(rest) {
                assert_eq!(header.has(flag::END_STREAM), lens.is_empty());
                assert_eq!(header.kind, if lens.is_empty() { kind::HEADERS } else { kind::CONTINUATION });
                lens.push(header.len);
                assert_eq!(header.has(flag::END_HEADERS), lens.len() == expected.len());
                rest = &rest[HEADER_LEN + header.len..];
            }
            assert_eq!(lens, expected);
            let sent = |kind| out.counters.counts().find(|count| count.kind == kind).unwrap().sent;
            assert_eq!([sent("HEADERS"), sent("CONTINUATION")], [1, lens.len() as u64 - 1]);
        }
    }
}
