//! Splits the byte stream into frames. All progress is kept in the decoder, so input may be split anywhere.
//!
//! ```text
//!   First ──no foreign protocol──▶ Head
//!   Head ──header, content to keep────────────────────▶ Content ──all of it──▶ Head   (a frame)
//!     └───header of a reserved op, or too long     ───▶ Skip    ──all of it──▶ Head   (a frame without content)
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{
    checksum::{CHECKSUM_LEN, content_checksum, header_checksum},
    header::{FrameKind, Header, HeaderFormat},
};
use crate::error::{ForeignProtocol, ProtocolError};

/// A frame from the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The id of the packet or stream.
    pub id: u16,
    /// The meaning of the operation number.
    pub kind: FrameKind,
    /// The content, a slice of the input. Empty if skipped.
    pub content: Bytes,
    /// Content bytes skipped on arrival, because of a reserved operation or an excessive length.
    pub skipped: u32,
}

/// An incremental decoder for frames.
#[derive(Debug)]
pub struct Decoder {
    format: Option<HeaderFormat>,
    content_len_max: u32,
    skip_len_max: u32,
    reach: FrameFilter,
    state: DecoderState,
    /// The length of the checksum after each header and each nonempty content. Zero without checksums.
    checksum_len: usize,
}

/// The set of reserved operations whose contents are kept. Contents of others are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFilter {
    /// No reserved operations.
    Plain,
    /// Control frames. One of them may identify the peer as extended.
    Control,
    /// All operations of extended peers.
    Extended,
}

#[derive(Debug)]
enum DecoderState {
    /// Before the first frame.
    First,
    Head,
    Content(Header),
    Skip {
        left: usize,
    },
}

impl Decoder {
    /// Creates a decoder for a new connection. Without a format, the first two bytes select it.
    pub fn new(format: Option<HeaderFormat>, content_len_max: u32) -> Self {
        Self {
            format,
            content_len_max,
            skip_len_max: 0,
            reach: FrameFilter::Plain,
            state: DecoderState::First,
            checksum_len: 0,
        }
    }

    /// Skips contents above the limit, up to this length, instead of returning an error.
    pub fn skipping(self, skip_len_max: u32) -> Self {
        Self { skip_len_max, ..self }
    }

    /// Keeps the contents of these reserved operations.
    pub fn set_reach(&mut self, reach: FrameFilter) {
        self.reach = reach;
    }

    /// Expects checksums in all later frames.
    pub fn expect_checksums(&mut self) {
        self.checksum_len = CHECKSUM_LEN;
    }

    /// Encodes a frame in the peer's format, with checksums if the peer uses them.
    pub(super) fn encode(&self, format: HeaderFormat, header: Header, content: &[u8], out: &mut BytesMut) {
        self.encode_header(format, header, out);
        out.extend_from_slice(content);
        if self.checksum_len > 0 && !content.is_empty() {
            out.put_u32(content_checksum(format, header, content));
        }
    }

    fn encode_header(&self, format: HeaderFormat, header: Header, out: &mut BytesMut) {
        header.encode(format, out);
        if self.checksum_len > 0 {
            out.put_u32(header_checksum(format, header));
        }
    }

    /// Returns `true` if frames have checksums.
    pub fn has_checksums(&self) -> bool {
        self.checksum_len > 0
    }

    /// Returns the header format, once known.
    pub fn format(&self) -> Option<HeaderFormat> {
        self.format
    }

    /// Takes the next complete frame from the front of `inbox`. Returns `None` if more bytes are needed.
    pub fn decode(&mut self, inbox: &mut BytesMut) -> Result<Option<Frame>, ProtocolError> {
        loop {
            match self.state {
                DecoderState::First => {
                    if let Some(foreign) = ForeignProtocol::recognize(self.format, inbox) {
                        return Err(ProtocolError::Foreign(foreign));
                    }
                    if inbox.len() < HeaderFormat::Plain8.header_len() {
                        // No header is complete yet, but its magic number may already be wrong.
                        return self.decode_header(inbox).map(|_| None);
                    }
                    self.state = DecoderState::Head;
                }
                DecoderState::Head => {
                    let Some(header) = self.decode_header(inbox)? else { return Ok(None) };
                    let kind = self.kind(header);
                    if kind == FrameKind::Reserved || header.len > self.content_len_max {
                        self.state = DecoderState::Skip { left: self.content_and_checksum_len(header) };
                        return Ok(Some(Frame { id: header.id, kind, content: Bytes::new(), skipped: header.len }));
                    }
                    self.state = DecoderState::Content(header);
                }
                DecoderState::Content(header) => {
                    let (len, whole) = (header.len as usize, self.content_and_checksum_len(header));
                    if inbox.len() < whole {
                        return Ok(None);
                    }
                    if self.checksum_len > 0 && !self.is_content_intact(header, inbox) {
                        // The state is kept, so the input can be put back.
                        return Err(ProtocolError::BadChecksum);
                    }
                    self.state = DecoderState::Head;
                    let content = if len == 0 { Bytes::new() } else { inbox.split_to(len).freeze() };
                    inbox.advance(whole - len);
                    return Ok(Some(Frame { id: header.id, kind: self.kind(header), content, skipped: 0 }));
                }
                DecoderState::Skip { left } => {
                    let here = left.min(inbox.len());
                    inbox.advance(here);
                    if here < left {
                        self.state = DecoderState::Skip { left: left - here };
                        return Ok(None);
                    }
                    self.state = DecoderState::Head;
                }
            }
        }
    }

    /// Takes the next frame from the front of `inbox` if it is a complete application packet.
    ///
    /// Otherwise returns `None` and changes nothing.
    #[inline]
    pub fn decode_packet(&mut self, inbox: &mut BytesMut) -> Option<Frame> {
        let (DecoderState::Head, Some(format)) = (&self.state, self.format) else { return None };
        let header = Header::decode(format, inbox).ok()??;
        let (kind, len) = (self.kind(header), header.len as usize);
        let is_whole = inbox.len() - format.header_len() >= len;
        if !matches!(kind, FrameKind::Application(_) | FrameKind::Extended)
            || header.len > self.content_len_max
            || !is_whole
        {
            return None;
        }
        if self.checksum_len > 0 {
            return self.decode_checked_packet(format, header, kind, inbox);
        }
        let content = if len == 0 {
            inbox.advance(format.header_len());
            Bytes::new()
        } else {
            let mut whole = inbox.split_to(format.header_len() + len).freeze();
            whole.advance(format.header_len());
            whole
        };
        Some(Frame { id: header.id, kind, content, skipped: 0 })
    }

    /// Takes a complete packet with correct checksums. Leaves others to [`decode`](Self::decode), which returns
    /// the error.
    #[cold]
    fn decode_checked_packet(
        &self,
        format: HeaderFormat,
        header: Header,
        kind: FrameKind,
        inbox: &mut BytesMut,
    ) -> Option<Frame> {
        let head_len = format.header_len() + CHECKSUM_LEN;
        let rest_len = self.content_and_checksum_len(header);
        if inbox.len() < head_len + rest_len || !self.is_intact(format, header, inbox) {
            return None;
        }
        inbox.advance(head_len);
        let mut content = inbox.split_to(rest_len).freeze();
        content.truncate(header.len as usize);
        Some(Frame { id: header.id, kind, content, skipped: 0 })
    }

    /// Returns the length of the current content with its checksum, partly in `inbox`. Zero between frames.
    pub fn content_len(&self) -> usize {
        match self.state {
            DecoderState::Content(header) => self.content_and_checksum_len(header),
            DecoderState::First | DecoderState::Head | DecoderState::Skip { .. } => 0,
        }
    }

    /// Returns the number of bytes still to be skipped.
    pub fn skip_len(&self) -> usize {
        match self.state {
            DecoderState::Skip { left } => left,
            DecoderState::First | DecoderState::Head | DecoderState::Content(_) => 0,
        }
    }

    /// Returns the length of the packet at the front of `bytes`, including its header and checksums.
    ///
    /// Returns `None` if the header is incomplete, or if the content is too large and would be skipped.
    pub fn announced_len(&self, bytes: &[u8]) -> Option<usize> {
        let (DecoderState::First | DecoderState::Head, Some(format)) = (&self.state, self.format) else { return None };
        let header = Header::decode(format, bytes).ok()??;
        let head_len = format.header_len() + self.checksum_len;
        (header.len <= self.content_len_max).then(|| head_len + self.content_and_checksum_len(header))
    }

    /// Puts the header of an incomplete content back into `inbox`.
    pub fn undo(&mut self, inbox: &mut BytesMut) {
        if let (DecoderState::Content(header), Some(format)) = (&self.state, self.format) {
            let mut front = BytesMut::with_capacity(format.header_len() + self.checksum_len + inbox.len());
            self.encode_header(format, *header, &mut front);
            front.extend_from_slice(inbox);
            *inbox = front;
            self.state = DecoderState::Head;
        }
    }

    /// Returns `true` if a content of this length is kept, and `false` if it is skipped. Too long for either is an
    /// error.
    pub fn keeps(&self, len: u32) -> Result<bool, ProtocolError> {
        match len <= self.content_len_max {
            false if len > self.skip_len_max => {
                Err(ProtocolError::ContentTooLarge { announced: len, limit: self.content_len_max })
            }
            keeps => Ok(keeps),
        }
    }

    #[inline]
    fn content_and_checksum_len(&self, header: Header) -> usize {
        if header.len == 0 { 0 } else { header.len as usize + self.checksum_len }
    }

    /// Returns `true` if both checksums of the complete frame at the front of `bytes` match.
    fn is_intact(&self, format: HeaderFormat, header: Header, bytes: &[u8]) -> bool {
        let rest = &bytes[format.header_len()..];
        rest.starts_with(&header_checksum(format, header).to_be_bytes())
            && self.is_content_intact(header, &rest[self.checksum_len..])
    }

    /// Returns `true` if the content at the front of `bytes` is empty or matches the checksum after it.
    fn is_content_intact(&self, header: Header, bytes: &[u8]) -> bool {
        let (content, rest) = bytes.split_at(header.len as usize);
        let is_right = |format| rest.starts_with(&content_checksum(format, header, content).to_be_bytes());
        content.is_empty() || self.format.is_some_and(is_right)
    }

    /// Returns the meaning of a header, given the protocol of the peer.
    fn kind(&self, header: Header) -> FrameKind {
        match (header.kind(), self.reach) {
            (FrameKind::Control, FrameFilter::Plain)
            | (FrameKind::Extended | FrameKind::Piece, FrameFilter::Plain | FrameFilter::Control) => {
                FrameKind::Reserved
            }
            (kind, _) => kind,
        }
    }

    fn decode_header(&mut self, inbox: &mut BytesMut) -> Result<Option<Header>, ProtocolError> {
        let format = match (self.format, inbox.first_chunk::<2>()) {
            (Some(format), _) => format,
            (None, Some(first)) => *self.format.insert(HeaderFormat::detect(*first)),
            (None, None) => return Ok(None),
        };
        let Some(header) = Header::decode(format, inbox)? else { return Ok(None) };
        if self.checksum_len > 0 {
            // Before using the length: with a wrong one, this side would wait for bytes that never arrive.
            let Some(sum) = inbox[format.header_len()..].first_chunk::<CHECKSUM_LEN>() else { return Ok(None) };
            if u32::from_be_bytes(*sum) != header_checksum(format, header) {
                return Err(ProtocolError::BadChecksum);
            }
        }
        self.keeps(header.len)?;
        if header.len > 0 && matches!(header.kind(), FrameKind::Ping | FrameKind::Pong) {
            return Err(ProtocolError::HeartbeatWithContent { announced: header.len });
        }
        inbox.advance(format.header_len() + self.checksum_len);
        Ok(Some(header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(hex: &str) -> BytesMut {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn check(hex: &str, expected: Result<Option<u16>, ProtocolError>) {
        let mut decoder = Decoder::new(Some(HeaderFormat::Magic10), 100);
        assert_eq!(decoder.decode(&mut input(hex)).map(|frame| frame.map(|f| f.id)), expected);
    }

    #[test]
    fn contents_above_the_limit_are_rejected() {
        check("000f 0001 0014 00000064", Ok(None));
        let error = ProtocolError::ContentTooLarge { announced: 101, limit: 100 };
        check("000f 0001 0014 00000065", Err(error));
    }

    #[test]
    fn heartbeats_have_no_content() {
        for operation in ["0000", "0001"] {
            check(&format!("000f 0001 {operation} 00000000"), Ok(Some(1)));
            let error = ProtocolError::HeartbeatWithContent { announced: 1 };
            check(&format!("000f 0001 {operation} 00000001"), Err(error));
        }
    }

    #[test]
    fn reserved_content_is_skipped_as_it_arrives() {
        let mut decoder = Decoder::new(None, 100);
        let mut inbox = input("000f 0001 0005 00000004 aabb");
        assert_eq!(decoder.decode(&mut inbox).unwrap().unwrap().kind, FrameKind::Reserved);
        assert_eq!(decoder.decode(&mut inbox), Ok(None));
        assert!(inbox.is_empty());
        inbox.extend_from_slice(&input("ccdd 000f 0002 0014 00000000"));
        assert_eq!(decoder.decode(&mut inbox).unwrap().unwrap().id, 2);
    }

    #[test]
    fn oversized_content_is_skipped_up_to_a_second_limit() {
        let mut decoder = Decoder::new(None, 2).skipping(4);
        let mut inbox = input("000f 0001 0014 00000004 aabb");
        assert_eq!(decoder.announced_len(&inbox), None);
        let frame = decoder.decode(&mut inbox).unwrap().unwrap();
        assert_eq!((frame.id, frame.content.len(), frame.skipped), (1, 0, 4));
        assert_eq!((decoder.content_len(), decoder.skip_len()), (0, 4));
        assert_eq!(decoder.decode(&mut inbox), Ok(None));
        assert_eq!((inbox.len(), decoder.skip_len()), (0, 2));
        inbox.extend_from_slice(&input("ccdd 000f 0002 0014 00000002 eeff 000f 0003 0014 00000005"));
        let frame = decoder.decode(&mut inbox).unwrap().unwrap();
        assert_eq!((frame.id, frame.content.len(), frame.skipped), (2, 2, 0));
        assert_eq!(decoder.decode(&mut inbox), Err(ProtocolError::ContentTooLarge { announced: 5, limit: 2 }));
    }

    #[test]
    fn content_is_a_slice_of_the_input() {
        let mut inbox = input("000f 0001 0014 00000003 616263");
        let within = inbox.as_ptr_range();
        let frame = Decoder::new(None, 100).decode(&mut inbox).unwrap().unwrap();
        assert_eq!(frame.content, "abc");
        assert!(within.contains(&frame.content.as_ptr()));
    }

    #[test]
    fn a_header_taken_off_can_be_put_back() {
        let whole = input("000f 0001 0014 00000003 6162");
        let mut inbox = whole.clone();
        let mut decoder = Decoder::new(None, 100);
        assert_eq!(decoder.decode(&mut inbox), Ok(None));
        assert_eq!(decoder.content_len(), 3);
        decoder.undo(&mut inbox);
        assert_eq!(inbox, whole);
    }

    #[test]
    fn only_complete_application_packets_can_be_taken() {
        let packet = "000f 0001 0014 00000001 61";
        for (next, is_taken) in [
            (packet, true),
            ("000f 0001 0014 00000000", true),
            ("000f 0001 0014 00000003 6162", false),
            ("000f 0001 0014 000000", false),
            ("000f 0001 0014 00000065", false),
            ("000f 0001 0002 00000001 61", false),
            ("000f 0001 0000 00000000", false),
            ("000f 0001 0005 00000000", false),
            ("4745", false),
            ("", false),
        ] {
            let mut decoder = Decoder::new(None, 100);
            let mut inbox = input(&[packet, next].concat());
            assert_eq!(decoder.decode_packet(&mut inbox), None, "the format is not known before the first frame");
            let first = decoder.decode(&mut inbox).unwrap().unwrap();
            let before = inbox.clone();
            let taken = decoder.decode_packet(&mut inbox);
            assert_eq!(taken.is_some(), is_taken, "{next}");
            if is_taken {
                assert!(inbox.is_empty() && taken.unwrap().kind == first.kind);
            } else {
                assert_eq!((inbox, decoder.content_len()), (before, 0));
            }
        }
    }
}
