//! Bytes in, parts of messages out.

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    close::{Close, INVALID_TEXT, PROTOCOL_ERROR, TOO_LONG},
    frame::{Head, Opcode},
    mask::{self, Mask},
    utf8::Utf8,
};

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that was connected to.
    Server,
    /// The side that connected, and masks its frames.
    Client,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text, in UTF-8.
    Text,
    /// Bytes.
    Binary,
}

/// A part of what a peer sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A part of a message, as much of it as was there.
    Data {
        kind: Kind,
        bytes: Bytes,
        is_last: bool,
    },
    Ping(Bytes),
    Pong,
    Close(Close),
}

/// Reads frames. Nothing is kept of a message but what tells how it goes on.
#[derive(Debug)]
pub(crate) struct Decoder {
    role: Role,
    message_len_max: u64,
    /// The message that is being received.
    message: Option<Message>,
    /// The frame that is being received.
    frame: Option<Frame>,
}

#[derive(Debug)]
struct Message {
    kind: Kind,
    /// With the frame that is being received.
    len: u64,
    utf8: Utf8,
}

#[derive(Debug)]
struct Frame {
    opcode: Opcode,
    is_last: bool,
    mask: Option<Mask>,
    read: usize,
    left: u64,
}

impl Decoder {
    /// Reads the frames of the peer of this side.
    pub(crate) fn new(role: Role, message_len_max: u64) -> Self {
        Self { role, message_len_max, message: None, frame: None }
    }

    /// Sets the length that a message may have, those that have begun included.
    pub(crate) fn limit(&mut self, message_len_max: u64) {
        self.message_len_max = message_len_max;
    }

    /// Takes the next part off the front of the input. `None` if more is needed for it.
    ///
    /// # Errors
    ///
    /// If the peer breaks the protocol or the limit. Nothing can be read from then on.
    pub(crate) fn next(&mut self, input: &mut BytesMut) -> Result<Option<Piece>, Close> {
        let frame = match &mut self.frame {
            Some(frame) => frame,
            None => {
                let Some((head, len)) = Head::read(input)? else { return Ok(None) };
                self.begin(head)?;
                input.advance(len);
                let Head { opcode, is_last, mask, len } = head;
                self.frame.insert(Frame { opcode, is_last, mask, read: 0, left: len })
            }
        };
        let here = usize::try_from(frame.left).map_or(input.len(), |left| left.min(input.len()));
        // Frames of control come whole.
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
            Opcode::Ping => Ok(Some(Piece::Ping(bytes))),
            Opcode::Pong => Ok(Some(Piece::Pong)),
            Opcode::Close => Close::read(&bytes).map(|close| Some(Piece::Close(close))),
            Opcode::Text | Opcode::Binary | Opcode::Continuation => self.data(bytes, is_last).map(Some),
        }
    }

    /// Returns how much of the content of a frame is still to come.
    pub(crate) fn frame_left(&self) -> u64 {
        self.frame.as_ref().map_or(0, |frame| frame.left)
    }

    /// Tells whether the input may end here without anything being cut off.
    #[cfg(test)]
    pub(crate) fn is_between_messages(&self) -> bool {
        self.message.is_none() && self.frame.is_none()
    }

    /// Checks the head of a frame against what came before.
    fn begin(&mut self, head: Head) -> Result<(), Close> {
        if head.mask.is_some() != (self.role == Role::Server) {
            let why = match self.role {
                Role::Server => "a frame of a client has no mask",
                Role::Client => "a frame of a server has a mask",
            };
            return Err(Close::new(PROTOCOL_ERROR, why));
        }
        let kind = match (head.opcode, &self.message) {
            (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => return Ok(()),
            (Opcode::Continuation, None) => {
                return Err(Close::new(PROTOCOL_ERROR, "a fragment goes on with a message that has not begun"));
            }
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(Close::new(PROTOCOL_ERROR, "a message begins within another"));
            }
            (Opcode::Text, None) => Some(Kind::Text),
            (Opcode::Binary, None) => Some(Kind::Binary),
            (Opcode::Continuation, Some(_)) => None,
        };
        if let Some(kind) = kind {
            self.message = Some(Message { kind, len: 0, utf8: Utf8::default() });
        }
        let message = self.message.as_mut().expect("it has begun");
        message.len = message.len.saturating_add(head.len);
        if message.len > self.message_len_max {
            let max = self.message_len_max;
            return Err(Close::new(TOO_LONG, format!("a message is longer than the {max} bytes that are accepted")));
        }
        Ok(())
    }

    fn data(&mut self, bytes: Bytes, is_last: bool) -> Result<Piece, Close> {
        let message = self.message.as_mut().expect("checked where the frame began");
        let kind = message.kind;
        if kind == Kind::Text && !(message.utf8.push(&bytes) && (!is_last || message.utf8.is_whole())) {
            return Err(Close::new(INVALID_TEXT, "a text is not UTF-8"));
        }
        if is_last {
            self.message = None;
        }
        Ok(Piece::Data { kind, bytes, is_last })
    }
}
