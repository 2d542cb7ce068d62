use std::io;

/// A packet of the wire format with a 10-byte header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The id that matches answers to requests.
    pub id: u16,
    /// The requested operation.
    pub operation: u16,
    /// The bytes after the header.
    pub content: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Splits off the first frame of `bytes`. Returns `None` while it is incomplete.
    pub fn split_from(bytes: &'a [u8]) -> io::Result<Option<(Self, &'a [u8])>> {
        let Some(len) = Self::announced_len(bytes)? else { return Ok(None) };
        let Some((frame, rest)) = bytes.split_at_checked(len) else { return Ok(None) };
        let id = u16::from_be_bytes([frame[2], frame[3]]);
        let operation = u16::from_be_bytes([frame[4], frame[5]]);
        Ok(Some((Self { id, operation, content: &frame[HEADER_LEN..] }, rest)))
    }

    /// Returns the total length of header and content, once the header is complete.
    pub fn announced_len(bytes: &[u8]) -> io::Result<Option<usize>> {
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let [0x00, 0x0f, _, _, _, _, len @ ..] = *header else {
            return Err(io::Error::other("frame does not start with 000f"));
        };
        match u32::from_be_bytes(len) {
            len @ ..=CONTENT_LEN_MAX => Ok(Some(HEADER_LEN + len as usize)),
            len => Err(io::Error::other(format!("frame announces {len} bytes of content"))),
        }
    }

    /// Appends the header and the content.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.extend([0x00, 0x0f]);
        into.extend(self.id.to_be_bytes());
        into.extend(self.operation.to_be_bytes());
        let len = u32::try_from(self.content.len()).expect("contents have at most `CONTENT_LEN_MAX` bytes");
        into.extend(len.to_be_bytes());
        into.extend(self.content);
    }
}

/// The content limit of the Go implementation.
pub const CONTENT_LEN_MAX: u32 = 5 << 20;

const HEADER_LEN: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_complete_with_its_last_byte() {
        let frame = Frame { id: 7, operation: 20, content: &[1, 2] };
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert_eq!(bytes, [0x00, 0x0f, 0, 7, 0, 20, 0, 0, 0, 2, 1, 2]);

        for len in 0..bytes.len() {
            assert_eq!(Frame::split_from(&bytes[..len]).unwrap(), None);
        }
        assert_eq!(Frame::split_from(&bytes).unwrap(), Some((frame, &[][..])));
    }

    #[test]
    fn bad_magic_and_too_much_content_are_refused() {
        assert!(Frame::announced_len(&[0; 10]).is_err());
        assert!(Frame::announced_len(&[0x00, 0x0f, 0, 7, 0, 20, 0, 0x50, 0, 1]).is_err());
    }
}
