//! Frame headers.

use crate::{
    close::{CloseFrame, PROTOCOL_ERROR},
    mask::MaskingKey,
};

/// The type of a frame, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    pub(crate) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }

    fn of(number: u8) -> Option<Self> {
        let all = [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong];
        all.into_iter().find(|opcode| *opcode as u8 == number)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// `true` for the last frame of a message.
    pub(crate) is_last: bool,
    pub(crate) opcode: Opcode,
    pub(crate) mask: Option<MaskingKey>,
    pub(crate) len: u64,
}

impl FrameHeader {
    /// Reads a header at the beginning of `bytes` and returns it with its length, or `None` if it is incomplete.
    ///
    /// # Errors
    ///
    /// Returns the close frame to send if the header is invalid for both roles.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, CloseFrame> {
        let Some((&[first, second], rest)) = bytes.split_first_chunk() else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err(CloseFrame::new(PROTOCOL_ERROR, "a frame uses an extension that was not negotiated"));
        }
        let Some(opcode) = Opcode::of(first & 0x0f) else {
            return Err(CloseFrame::new(PROTOCOL_ERROR, format!("a frame has the unknown opcode {}", first & 0x0f)));
        };
        let is_last = first & 0x80 != 0;
        let (len, rest, len_len) = match second & 0x7f {
            126 => match rest.split_first_chunk() {
                None => return Ok(None),
                Some((len, rest)) => (u16::from_be_bytes(*len).into(), rest, 2),
            },
            127 => match rest.split_first_chunk() {
                None => return Ok(None),
                Some((len, rest)) => (u64::from_be_bytes(*len), rest, 8),
            },
            len => (len.into(), rest, 0),
        };
        if opcode.is_control() && (len_len > 0 || !is_last) {
            return Err(CloseFrame::new(PROTOCOL_ERROR, "a control frame is fragmented or longer than 125 bytes"));
        }
        if (len_len == 2 && len < 126) || (len_len == 8 && len <= u16::MAX.into()) || len > i64::MAX as u64 {
            return Err(CloseFrame::new(
                PROTOCOL_ERROR,
                "the length of a frame is invalid or not in its shortest form",
            ));
        }
        let mask = match rest.first_chunk() {
            _ if second & 0x80 == 0 => None,
            None => return Ok(None),
            Some(mask) => Some(*mask),
        };
        let head_len = 2 + len_len + mask.map_or(0, |mask| mask.len());
        Ok(Some((Self { is_last, opcode, mask, len }, head_len)))
    }

    /// Appends the encoded header to `out`.
    pub(crate) fn write(self, out: &mut impl bytes::BufMut) {
        out.put_u8(if self.is_last { 0x80 } else { 0 } | self.opcode as u8);
        let masked = if self.mask.is_some() { 0x80 } else { 0 };
        match self.len {
            #[allow(clippy::cast_possible_truncation, reason = "125 and less fit")]
            len @ 0..=125 => out.put_u8(masked | len as u8),
            #[allow(clippy::cast_possible_truncation, reason = "65535 and less fit")]
            len @ 126..=0xffff => {
                out.put_u8(masked | 126);
                out.put_u16(len as u16);
            }
            len => {
                out.put_u8(masked | 127);
                out.put_u64(len);
            }
        }
        if let Some(mask) = self.mask {
            out.put_slice(&mask);
        }
    }
}

/// The maximum length of a header.
pub(crate) const HEAD_LEN_MAX: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_headers_round_trip_and_need_all_bytes() {
        for len in [0, 1, 125, 126, 0xffff, 0x1_0000, i64::MAX as u64] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let head = FrameHeader { is_last: len % 2 == 0, opcode: Opcode::Binary, mask, len };
                let mut bytes = Vec::new();
                head.write(&mut bytes);
                assert!(bytes.len() <= HEAD_LEN_MAX);
                for end in 0..bytes.len() {
                    assert_eq!(FrameHeader::read(&bytes[..end]), Ok(None));
                }
                let head_len = bytes.len();
                bytes.push(7);
                assert_eq!(FrameHeader::read(&bytes), Ok(Some((head, head_len))));
            }
        }
    }
}
