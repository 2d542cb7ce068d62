//! Decoding of frames into message fragments.

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    close::{CloseFrame, INVALID_TEXT, PROTOCOL_ERROR, TOO_LONG},
    frame::{FrameHeader, Opcode},
    mask::{self, MaskingKey},
    utf8::Utf8Validator,
};

/// The role of a peer in the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The accepting side.
    Server,
    /// The connecting side. It masks its frames.
    Client,
}

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// UTF-8 text.
    Text,
    /// Arbitrary bytes.
    Binary,
}

/// The part of a message received so far, without waiting for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageFragment {
    pub(crate) kind: MessageKind,
    pub(crate) bytes: Bytes,
    pub(crate) is_last: bool,
}

/// A decoded part of the peer's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WebSocketEvent {
    Data(MessageFragment),
    Ping(Bytes),
    Pong,
    Close(CloseFrame),
}

/// A decoder of frames. It buffers no message content.
#[derive(Debug)]
pub(crate) struct Decoder {
    role: Role,
    message_len_max: u64,
    /// The message being received.
    message: Option<MessageProgress>,
    /// The frame being received.
    frame: Option<FrameProgress>,
}

#[derive(Debug)]
struct MessageProgress {
    kind: MessageKind,
    /// The length of all frames of the message so far, including the one being received.
    len: u64,
    utf8: Utf8Validator,
}

#[derive(Debug)]
struct FrameProgress {
    opcode: Opcode,
    is_last: bool,
    mask: Option<MaskingKey>,
    read: usize,
    left: u64,
}

impl Decoder {
    /// Creates a decoder for the side `role`. It decodes the frames of the opposite side.
    pub(crate) fn new(role: Role, message_len_max: u64) -> Self {
        Self { role, message_len_max, message: None, frame: None }
    }

    /// Sets the maximum length of messages, including the one being received.
    pub(crate) fn limit(&mut self, message_len_max: u64) {
        self.message_len_max = message_len_max;
    }

    /// Takes the next piece from `input`, or returns `None` if it needs more input.
    ///
    /// # Errors
    ///
    /// Returns the close frame to send if the peer violates the protocol or the length limit. Afterwards nothing more
    /// can be decoded.
    pub(crate) fn next(&mut self, input: &mut BytesMut) -> Result<Option<WebSocketEvent>, CloseFrame> {
        let frame = match &mut self.frame {
            Some(frame) => frame,
            None => {
                let Some((head, len)) = FrameHeader::read(input)? else { return Ok(None) };
                // Check the length before receiving any content.
                self.begin(head)?;
                input.advance(len);
                let FrameHeader { opcode, is_last, mask, len } = head;
                self.frame.insert(FrameProgress { opcode, is_last, mask, read: 0, left: len })
            }
        };
        let here = usize::try_from(frame.left).map_or(input.len(), |left| left.min(input.len()));
        // Control frames are delivered whole. Their length is at most 125 bytes.
        if frame.left > 0 && (here == 0 || frame.opcode.is_control() && here as u64 != frame.left) {
            return Ok(None);
        }
        let mut bytes = input.split_to(here);
        if let Some(mask) = frame.mask {
            mask::apply(mask, frame.read, &mut bytes);
        }
        frame.read = frame.read.wrapping_add(here);
        frame.left -= here as u64;
        let (opcode, is_last) = (frame.opcode, frame.is_last && frame.left == 0);
        if frame.left == 0 {
            self.frame = None;
        }
        let bytes = bytes.freeze();
        match opcode {
            Opcode::Ping => Ok(Some(WebSocketEvent::Ping(bytes))),
            Opcode::Pong => Ok(Some(WebSocketEvent::Pong)),
            Opcode::Close => CloseFrame::read(&bytes).map(|close| Some(WebSocketEvent::Close(close))),
            Opcode::Text | Opcode::Binary | Opcode::Continuation => self.data(bytes, is_last).map(Some),
        }
    }

    /// Returns the number of missing bytes of the current frame.
    pub(crate) fn frame_left(&self) -> u64 {
        self.frame.as_ref().map_or(0, |frame| frame.left)
    }

    /// Checks the header of a frame against the current message.
    fn begin(&mut self, head: FrameHeader) -> Result<(), CloseFrame> {
        if head.mask.is_some() != (self.role == Role::Server) {
            let why = match self.role {
                Role::Server => "a client frame has no mask",
                Role::Client => "a server frame has a mask",
            };
            return Err(CloseFrame::new(PROTOCOL_ERROR, why));
        }
        let kind = match (head.opcode, &self.message) {
            (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => return Ok(()),
            (Opcode::Continuation, None) => {
                return Err(CloseFrame::new(PROTOCOL_ERROR, "a continuation frame without a message"));
            }
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(CloseFrame::new(PROTOCOL_ERROR, "a new message begins before the end of the previous one"));
            }
            (Opcode::Text, None) => Some(MessageKind::Text),
            (Opcode::Binary, None) => Some(MessageKind::Binary),
            (Opcode::Continuation, Some(_)) => None,
        };
        if let Some(kind) = kind {
            self.message = Some(MessageProgress { kind, len: 0, utf8: Utf8Validator::default() });
        }
        let message = self.message.as_mut().expect("it has begun");
        message.len = message.len.saturating_add(head.len);
        if message.len > self.message_len_max {
            let max = self.message_len_max;
            return Err(CloseFrame::new(TOO_LONG, format!("the message exceeds the limit of {max} bytes")));
        }
        Ok(())
    }

    fn data(&mut self, bytes: Bytes, is_last: bool) -> Result<WebSocketEvent, CloseFrame> {
        let message = self.message.as_mut().expect("checked where the frame began");
        let kind = message.kind;
        if kind == MessageKind::Text && !(message.utf8.push(&bytes) && (!is_last || message.utf8.is_whole())) {
            return Err(CloseFrame::new(INVALID_TEXT, "a text message is not UTF-8"));
        }
        if is_last {
            self.message = None;
        }
        Ok(WebSocketEvent::Data(MessageFragment { kind, bytes, is_last }))
    }
}
